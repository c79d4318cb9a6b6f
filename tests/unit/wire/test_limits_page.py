"""The limits page: what is rendered is read back, and lies where the C compiler puts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.native_build import compiled

from pumice.wire import limits_page
from pumice.wire.limits_page import CARD, HEAD, GrantedCard, LimitsPage, parse, render

HEADER = Path(__file__).parents[3] / "native/vgpu/include/vgpu/limits_page.h"
MIRROR = {
    "LIMITS_PAGE_MAGIC": limits_page.MAGIC,
    "LIMITS_PAGE_VERSION": limits_page.VERSION,
    "REGION_DEVICES": limits_page.CARDS,
    "PAGE_OVERSUBSCRIBE": limits_page.OVERSUBSCRIBE,
    "PAGE_NO_CORE_LIMIT": limits_page.NO_CORE_LIMIT,
    "sizeof(LIMITS_PAGE_PATH) - 1": len(limits_page.PATH),
    "sizeof(struct limits_page)": limits_page.BYTES + limits_page.MORE.size,
    "LIMITS_PAGE_BYTES": limits_page.BYTES,
    "PAGE_MORE_MAGIC": limits_page.MORE_MAGIC,
    "offsetof(struct limits_page, more)": limits_page.BYTES,
    "offsetof(struct page_more, priority)": 4,
    "offsetof(struct limits_page, more.held)": limits_page.HELD_AT,
    "offsetof(struct page_more, beat_ms) - offsetof(struct page_more, held)": limits_page.HELD.size - 8,
    "offsetof(struct page_more, burst) - offsetof(struct page_more, held)": limits_page.HELD.size - 4,
    "offsetof(struct page_more, burst_memory)": limits_page.MORE.size - 8 * limits_page.CARDS,
    "offsetof(struct limits_page, flags)": 12,  # the fourth of HEAD
    "offsetof(struct limits_page, count)": 16,
    "offsetof(struct limits_page, lifted)": limits_page.LIFTED_AT,
    "offsetof(struct limits_page, region)": 24,
    "LIMITS_PAGE_REGION_BYTES": 256,
    "offsetof(struct limits_page, cards)": HEAD.size,
    "sizeof(struct page_card)": CARD.size,
    "REGION_UUID_BYTES": 96,
    "offsetof(struct page_card, memory)": 96,
    "offsetof(struct page_card, cores)": 104,
}
PAGE = LimitsPage((GrantedCard("GPU-1", 3000 << 20, 50), GrantedCard("MIG-2")), "/tmp/vgpu/x.cache", True, False, True)

BURSTS = LimitsPage((GrantedCard("GPU-1"), GrantedCard("GPU-2", 10 << 30, 30, 20 << 30)), "/r", priority=1, burst=60)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return compiled(HEADER, "vgpu/limits_page.h", MIRROR, tmp_path_factory.mktemp("layout"))


@pytest.mark.parametrize("expression", list(MIRROR))
def test_a_place_of_the_page_is_where_the_compiler_puts_it(laid_out: dict[str, int], expression: str) -> None:
    assert MIRROR[expression] == laid_out[expression]


def test_the_path_is_the_libraries() -> None:
    assert f'LIMITS_PAGE_PATH "{limits_page.PATH}"' in HEADER.read_text()


@pytest.mark.parametrize("page", [PAGE, LimitsPage((), ""), LimitsPage((), "", priority=0, held=5), BURSTS])
def test_what_is_rendered_is_read_back(page: LimitsPage) -> None:
    assert parse(render(page)) == page


def test_a_page_that_ends_before_what_came_later_is_a_page() -> None:
    """As older plugins wrote it, with priority and no bursts."""
    assert parse(render(LimitsPage((GrantedCard("GPU-1"),), "/r", priority=0))[: limits_page.BYTES + 20]) == LimitsPage(
        (GrantedCard("GPU-1"),), "/r", priority=0
    )


def test_what_is_no_page_is_none() -> None:
    whole = render(PAGE)
    assert parse(whole[:-1]) is None
    for at in (0, 4, 8):
        assert parse(whole[:at] + b"\xff" + whole[at + 1 :]) is None
    assert parse(whole[:16] + b"\x11" + whole[17:]) is None
