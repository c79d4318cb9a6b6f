"""One round of a monitor's feedback, and that it reaches the region (HAMi cmd/vGPUmonitor/feedback.go, volcano-sh/devices
pkg/plugin/nvidia, HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.region_files import region_bytes, write

from pumice.adapters.region import read_region
from pumice.adapters.region.writer import write_feedback
from pumice.node.feedback import WAIT, Tenant, Word, feedback

A, B = "GPU-a", "GPU-b"


def after(tenants: dict[str, Tenant], **options: int) -> dict[str, Tenant]:
    """The tenants once a round's words are written."""
    words = feedback(tenants, **options)
    found = {}
    for key, tenant in tenants.items():
        word = words.get(key, Word())
        found[key] = Tenant(tenant.uuids, tenant.priority, tenant.recent if word.recent is None else word.recent,
                            tenant.limited if word.limited is None else word.limited)  # fmt: skip
    return found


def test_the_less_important_waits_while_the_more_important_works() -> None:
    now = after({"high": Tenant((A,), 0, 2), "low": Tenant((A,), 1, 2)})
    assert now == {"high": Tenant((A,), 0, 1, limited=False), "low": Tenant((A,), 1, WAIT)}
    now = after(now)  # nobody launched since
    assert now == {"high": Tenant((A,), 0, 0, limited=False), "low": Tenant((A,), 1, 0, limited=False)}


def test_who_may_not_go_first_makes_nobody_wait_and_who_may_only_those_of_less_importance() -> None:
    silent = {"class": Tenant((A,), -1000, 2, goes_first=False), "plain": Tenant((A,), 0, 2, goes_first=False)}
    assert all(word.recent != WAIT for word in feedback(silent).values())
    words = feedback(silent | {"first": Tenant((A,), -500, 2)})
    assert words["plain"].recent == WAIT
    assert words["class"].recent == words["first"].recent == 1


def test_equals_do_not_wait_and_keep_their_limits() -> None:
    now = after({"one": Tenant((A,), 1, 2, limited=False), "other": Tenant((A,), 1, 2)})
    assert now == {"one": Tenant((A,), 1, 1), "other": Tenant((A,), 1, 1)}


def test_nobody_waits_for_work_on_another_card() -> None:
    now = after({"high": Tenant((A,), 0, 2), "low": Tenant((B,), 1, 2)})
    assert now["low"].recent == 1


def test_one_shared_card_of_several_is_enough_to_wait() -> None:
    tenants = {"high": Tenant((B,), 0, 2), "low": Tenant((A, B), 1, 2), "other": Tenant((A,), 1, 2)}
    assert after(tenants)["low"].recent == WAIT
    assert after(tenants)["other"].recent == 1


def test_limits_that_are_to_hold_are_never_lifted() -> None:
    now = after({"alone": Tenant((A,), 1, 2, limited=False)}, lift_limits=False)
    assert now == {"alone": Tenant((A,), 1, 1)}


def bursts(*tenants: Tenant) -> list[int]:
    words = feedback(dict(enumerate(tenants)))
    return [words.get(key, Word()).burst for key in range(len(tenants))]


def asks(cores: int, burst: int = 0, recent: int = 2, card: str = A) -> Tenant:
    return Tenant((card,), 1, recent, cores=(cores,), burst=burst)


@pytest.mark.parametrize(
    ("tenants", "found"),
    [
        ((asks(30, 80), asks(40)), [60, 0]),  # 30 that nobody asked for
        ((asks(30, 50), asks(40)), [50, 0]),  # its own bound
        ((asks(30, 80), asks(70)), [0, 0]),  # the neighbour needs what it asked for
        ((asks(30, 80), asks(70, recent=0)), [80, 0]),  # and when it does not, not
        ((asks(30, 80), asks(0)), [0, 0]),  # whoever has no limit may need all
        ((asks(20, 90), asks(20, 90), asks(20)), [40, 40, 0]),  # what is left is shared alike
        ((asks(20, 90), asks(20, 90, recent=0), asks(20)), [80, 40, 0]),  # by who works
        ((asks(30, 80), asks(40, card=B)), [80, 0]),
        ((asks(80, 60), asks(10)), [0, 0]),  # a bound below its ask
    ],
)
def test_who_may_burst_has_what_its_active_neighbours_did_not_ask_for(tenants: tuple[Tenant, ...], found: list[int]) -> None:
    assert bursts(*tenants) == found


def test_of_several_cards_the_fullest_says_how_far_and_who_waits_has_nothing() -> None:
    both = Tenant((A, B), 1, 2, cores=(30, 30), burst=90)
    assert bursts(both, asks(20), asks(50, card=B)) == [50, 0, 0]
    assert bursts(both, asks(20), asks(70, card=B)) == [0, 0, 0]
    assert bursts(both, Tenant((A,), 0, 2, cores=(20,))) == [0, 0]


percent = st.integers(0, 100)


@given(st.lists(st.builds(asks, percent, percent, st.integers(0, 2)), min_size=1, max_size=5))
def test_bursts_take_nothing_that_an_active_neighbour_asked_for(tenants: list[Tenant]) -> None:
    """Of those who are active then; and each bursting tenant has more than it asked for, and at most its bound."""
    found = bursts(*tenants)
    for tenant, burst in zip(tenants, found, strict=True):
        assert burst == 0 or tenant.asked(A) < burst <= tenant.burst
    active = [(tenant, burst) for tenant, burst in zip(tenants, found, strict=True) if tenant.recent > 1]
    if any(burst for _, burst in active):
        assert sum(burst or tenant.asked(A) for tenant, burst in active) <= 100


tenant = st.builds(Tenant, st.lists(st.sampled_from([A, B, "GPU-c"]), max_size=3).map(tuple), st.integers(0, 1),
                   st.integers(-3, 5), st.booleans())  # fmt: skip


@given(st.dictionaries(st.integers(0, 5), tenant))
def test_the_most_important_never_wait_and_silence_frees_everybody(tenants: dict[int, Tenant]) -> None:
    now = tenants
    for _ in range(6):
        now = after(now)
        assert all(found.recent >= 0 for found in now.values() if found.priority == 0)
    assert all(found.recent == 0 for found in now.values())
    assert feedback(now) == {}


@given(st.dictionaries(st.integers(0, 5), tenant), st.integers(1, 4))
def test_nobody_waits_longer_than_the_patience_however_long_others_work(tenants: dict[int, Tenant], patience: int) -> None:
    now, waited = tenants, dict.fromkeys(tenants, 0)
    for _ in range(12):
        now = {key: replace(t, recent=t.recent if t.recent == WAIT else 9, waited=waited[key]) for key, t in now.items()}
        now = after(now, patience=patience)
        waited = {key: waited[key] + 1 if t.recent == WAIT else 0 for key, t in now.items()}
        assert all(rounds <= patience for rounds in waited.values())
        assert all(t.recent <= 2 for t in now.values())


@pytest.mark.parametrize("version", ["0", "1.1", "1.2"])
def test_feedback_reaches_a_region_of_every_layout_and_changes_nothing_else(version: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.cache", region_bytes(version, last=7))
    before = read_region(path)
    write_feedback(path, recent=WAIT, limited=False)
    region = read_region(path)
    assert (region.recent_kernel, region.utilization_switch) == (WAIT, 0)
    write_feedback(path, recent=before.recent_kernel, limited=True)
    assert read_region(path) == before
