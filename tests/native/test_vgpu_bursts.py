"""Memory beyond what a container asked for: it is managed, so whoever asked for that memory has it, and the limits hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.vgpu_kit import LIBRARY, MIB, PROGRAMS, build
from kit.vgpu_talk import Tenant
from kit.walled import Walled, page_of

from pumice.wire import limits_page
from pumice.wire.limits_page import GrantedCard
from pumice_lab import machine
from pumice_lab.machine.witness import Share

GIB = 1 << 30
USABLE = 40_339 * MIB
OUT_OF_MEMORY = 2


@pytest.fixture
def card(tmp_path: Path) -> Path:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    return tmp_path / "m"


def container(card: Path, folder: Path, memory: int, burst: int = 0) -> Walled:
    folder.mkdir()
    uuid = machine.machine_of("A100-SXM4-40GB").cards[0].uuid
    page = page_of(GrantedCard(uuid, memory * GIB, 0, burst * GIB), priority=1)
    return Walled(card, folder, {"LIBCUDA_LOG_LEVEL": "0"}, page=page)


def seen(card: Path, *tenants: Tenant) -> list[Share]:
    """What the driver holds of them, the newest last."""
    shares = [share for share in machine.open_machine(card).witness().live() if share.bytes]
    assert len(shares) == len(tenants)
    return list(shares)


def test_what_is_held_beyond_the_ask_gives_way_to_who_asked_for_that_memory(card: Path, tmp_path: Path) -> None:
    with (
        Tenant(container(card, tmp_path / "a", 10, 60)) as bursting,
        Tenant(container(card, tmp_path / "b", 25)) as plain,
    ):
        total = bursting.ask("info")[1]
        assert total == 10 * GIB  # nobody is told to count on more
        assert bursting.ask(f"fill {GIB // 2}") == 119  # beside its context
        assert bursting.ask("info") == [0, total]
        own, _ = seen(card, bursting, plain)
        assert own.bytes + own.host <= 60 * GIB
        assert own.bytes - own.managed <= 10 * GIB
        assert machine.open_machine(card).witness().bytes(0) > USABLE - 2 * MIB
        assert plain.ask(f"alloc {25 * GIB - 500 * MIB}") == 0
        assert plain.ask("info")[0] <= 500 * MIB
        assert plain.ask(f"alloc {GIB}") == OUT_OF_MEMORY
        after, theirs = seen(card, bursting, plain)
        assert theirs.managed == theirs.host == 0
        assert after.bytes + after.host == own.bytes + own.host
        assert after.host > own.host


def test_two_who_burst_have_alike_of_what_is_left_and_no_more_than_their_bounds(card: Path, tmp_path: Path) -> None:
    with (
        Tenant(container(card, tmp_path / "a", 10, 40)) as first,
        Tenant(container(card, tmp_path / "b", 10, 40)) as second,
    ):
        for tenant in (first, second):
            assert tenant.ask(f"fill {GIB // 2}") == 79
        one, other = seen(card, first, second)
        assert abs(one.bytes - other.bytes) <= GIB
        for share in (one, other):
            assert 40 * GIB - GIB < share.bytes + share.host <= 40 * GIB
            assert share.bytes - share.managed <= 10 * GIB


def test_only_linear_and_managed_memory_bursts(card: Path, tmp_path: Path) -> None:
    with Tenant(container(card, tmp_path / "a", 2, 6)) as tenant:
        assert tenant.ask(f"managed {3 * GIB}") == 0  # what a program manages itself gives way, too
        assert tenant.ask(f"array {GIB >> 12}") == OUT_OF_MEMORY
        assert tenant.ask(f"alloc {GIB}") == 0
        assert tenant.ask("told_as_managed") == [0, 0]
        assert tenant.ask("freeall") == 0
        assert tenant.ask(f"array {GIB >> 12}") == 0


def test_processes_that_ask_at_once_hold_no_more_on_the_card_than_their_container_asked_for(card: Path, tmp_path: Path) -> None:
    both = container(card, tmp_path / "a", 10, 30)
    with Tenant(both) as one, Tenant(both) as other:
        for tenant in (one, other):
            tenant.report(f"fill {64 * MIB}")
        blocks = [tenant.hear() for tenant in (one, other)]
        shares = seen(card, one, other)
        assert sum(share.bytes + share.host for share in shares) <= 30 * GIB
        assert sum(blocks) * 64 * MIB > 28 * GIB
        assert sum(share.bytes - share.managed for share in shares) <= 10 * GIB


@pytest.mark.parametrize("capable", [0, 2])
def test_where_the_driver_cannot_move_pages_the_ask_is_all_there_is(tmp_path: Path, capable: int) -> None:
    build()
    model = machine.machine_of("A100-SXM4-40GB")
    machine.create(model, tmp_path / "m")
    with machine.open_machine(tmp_path / "m") as emulated:
        emulated.state.card[0].managed_capable = capable
    with Tenant(container(tmp_path / "m", tmp_path / "a", 10, 30)) as tenant:
        assert tenant.ask(f"fill {GIB // 2}") == 19
        for kind in ("alloc", "managed"):  # managed memory lies on such a card as any other does
            assert tenant.ask(f"{kind} {GIB}") == OUT_OF_MEMORY
        assert tenant.ask("info")[0] < GIB // 2


@pytest.mark.parametrize(("burst", "share"), [(0, 30), (20, 30), (70, 70)])
def test_the_percent_that_neighbours_leave_is_the_limit_while_the_monitor_is_heard(
    tmp_path: Path, burst: int, share: int
) -> None:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB", virtual_time=True), tmp_path / "m")
    uuid = machine.machine_of("A100-SXM4-40GB").cards[0].uuid
    page = bytearray(limits_page.render(page_of(GrantedCard(uuid, 0, 30), priority=1)))
    limits_page.HELD.pack_into(page, limits_page.HELD_AT, 0, 1, 60_000, burst)
    walled = Walled(tmp_path / "m", tmp_path, page=bytes(page))
    command = (PROGRAMS / "conduct", LIBRARY, walled.region.parent, "4000", "limit=0,kernel=1000000")
    told = walled.run(*command).json()
    served = told["workers"][0]["served"]
    assert (served[-1] - served[100]) / ((len(served) - 101) * 100_000) == pytest.approx(share, abs=1.5)
