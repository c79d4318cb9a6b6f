"""Inside one container GPU time is shared by processes and not by launches, by virtual time on the emulated machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.launch_waits import read_launches, worst_excess_ms
from kit.vgpu_kit import build

from pumice_lab import machine
from tests.native.conducting import busy, conduct

ONE, MANY, SHORT, LONG = "kernel=1000000", "kernel=1000000,streams=8", "kernel=10000", "kernel=20000000"
GRAPH, SYNCHRONOUS = "kernel=100000,shape=graph", "kernel=1000000,shape=sync"
SHORT_MANY, MIXED = "kernel=50000,streams=8", "kernel=300000,shape=mixed,streams=4"
DRAWN, SHORT_DRAWN = "kernel=200000,shape=lognormal", "kernel=20000,shape=lognormal"
NEW_BLOCKS, NEW_MODULES = "kinds=32768", "modules=1"  # each launch of a new kind, as far as a program runs here
NEW, NEW_LONG, NEW_DRAWN = f"{ONE},{NEW_BLOCKS}", f"kernel=2000000,{NEW_BLOCKS}", f"{DRAWN},{NEW_BLOCKS}"
NEW_SHORT, COMPILED = f"kernel=50000,{NEW_BLOCKS}", f"{ONE},{NEW_MODULES}"
NEW_PAUSING = f"{NEW},pause=5000000"
BURSTS, COPIES = "kernel=20000,burst=300,pause=5000000", f"{ONE},copy=65536,fill=65536"


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    folder = tmp_path_factory.mktemp("card")
    machine.create(machine.machine_of("A100-SXM4-40GB", virtual_time=True), folder / "m")
    return folder / "m"


@pytest.mark.parametrize(
    "players",
    [
        (MANY, ONE),
        ("kernel=100000,streams=16", "kernel=100000"),
        (MANY, SHORT),
        (SHORT, ONE),
        (ONE, LONG),
        (MANY, LONG),
        (GRAPH, LONG),
        (SYNCHRONOUS, MANY),
        (MANY, "kernel=3000000", "kernel=100000"),
    ],
)
def test_processes_get_the_same_whatever_they_launch(card: Path, tmp_path: Path, players: tuple[str, ...]) -> None:
    workers = conduct(card, tmp_path, 5000, *(f"limit=30,{player}" for player in players))
    for worker in workers:
        assert busy(worker, 1500, 4900) == pytest.approx(30 / len(players), abs=1)


@pytest.mark.parametrize("limit", [30, 80])
@pytest.mark.parametrize("player", ["kernel=100000,pause=1900000", "kernel=1000000,pause=19000000"])
def test_what_one_process_does_not_ask_for_is_the_others(card: Path, tmp_path: Path, limit: int, player: str) -> None:
    """Of a program that pauses after each kernel: it gets the 5 % that it asks for, and nothing of the limit is lost."""
    pausing, greedy = conduct(card, tmp_path, 5000, f"limit={limit},{player}", f"limit={limit},{ONE}")
    assert busy(pausing, 1500, 4900) == pytest.approx(5, abs=0.6)
    assert busy(pausing, 1500, 4900) + busy(greedy, 1500, 4900) == pytest.approx(limit, abs=1)


def test_who_comes_late_takes_half_from_then_on_and_nothing_for_the_time_before(card: Path, tmp_path: Path) -> None:
    early, late = conduct(card, tmp_path, 5000, f"limit=30,{MANY}", f"limit=30,{ONE},start=2500")
    assert busy(early, 500, 2400) == pytest.approx(30, abs=1)
    assert [busy(worker, 2700, 4900) for worker in (early, late)] == pytest.approx([15, 15], abs=1)


@pytest.mark.parametrize("limit", [30, 80])
@pytest.mark.parametrize(
    "players",
    [
        (MANY, MANY),
        (DRAWN, DRAWN),
        (DRAWN, ONE),
        (SHORT_MANY, DRAWN),
        (SHORT_DRAWN, SHORT_DRAWN),
        (BURSTS, SHORT_DRAWN),
        (BURSTS, MIXED),
        (COPIES, DRAWN),
        (GRAPH, DRAWN, MIXED),
        (NEW, ONE),
        (NEW_LONG, "kernel=50000"),
        (COMPILED, ONE),
        (COMPILED, NEW),
        (NEW_SHORT, MANY),
        (NEW_DRAWN, ONE, GRAPH),
    ],
)
def test_with_the_arbiter_processes_take_turns_and_get_the_same_whatever_they_launch(
    card: Path, tmp_path: Path, players: tuple[str, ...], limit: int
) -> None:
    """Side by side each would be measured with the time of the other; lengths that nobody can know beforehand most of all.

    Ten seconds: within five one takes now and then a turn more than the other, 1.06 of 40 at most in fifty runs."""
    workers = conduct(card, tmp_path, 10000, *(f"limit={limit},arbiter=1,{player}" for player in players))
    for worker in workers:
        assert busy(worker, 1500, 9900) == pytest.approx(limit / len(players), abs=1)


@pytest.mark.parametrize(
    "players",
    [
        (SHORT, MANY),
        (DRAWN, MANY),
        (BURSTS, MANY),
        (BURSTS, MIXED),
        (COPIES, DRAWN),
        (SHORT_DRAWN, SYNCHRONOUS),
        (NEW, ONE),
        (ONE, NEW),
        (NEW_LONG, "kernel=50000"),
        (COMPILED, ONE),
        (NEW, COMPILED),
        (NEW_DRAWN, ONE),
        (MANY, NEW_SHORT),
    ],
)
def test_with_the_arbiter_tenants_get_their_limits_whatever_they_launch(
    card: Path, tmp_path: Path, players: tuple[str, str]
) -> None:
    """Check that the smaller share keeps what it earns during the larger one's turn."""
    small, large = conduct(
        card,
        tmp_path,
        5000,
        *(f"tenant={limit},limit={limit},arbiter=1,{player}" for limit, player in zip((20, 70), players, strict=True)),
    )
    assert [busy(worker, 1500, 4900) for worker in (small, large)] == pytest.approx([20, 70], abs=1)


@pytest.mark.parametrize("arbiter", [0, 1])
def test_who_launches_a_new_kind_each_time_and_pauses_holds_up_nobody_meanwhile(
    card: Path, tmp_path: Path, arbiter: int
) -> None:
    """It gets what it asks for, and the other the rest: nobody waits for an answer that nobody looks at."""
    pausing, greedy = conduct(
        card, tmp_path, 5000, *(f"limit=80,arbiter={arbiter},{player}" for player in (NEW_PAUSING, ONE))
    )
    assert [busy(worker, 1500, 4900) for worker in (pausing, greedy)] == pytest.approx([20, 60], abs=1)


@pytest.mark.parametrize("kinds", [NEW_BLOCKS, NEW_MODULES])
def test_a_program_of_nothing_but_new_kinds_keeps_to_its_limit_from_the_first_second_on(
    card: Path, tmp_path: Path, kinds: str
) -> None:
    """A launch of unknown length starts when all before it is paid for: on debt each would, for ever."""
    (alone,) = conduct(card, tmp_path, 3000, f"limit=70,{ONE},{kinds}")
    assert [busy(alone, at, at + 1000) for at in (0, 1000, 1900)] == pytest.approx([70, 70, 70], abs=1.5)


@pytest.mark.parametrize("limits", [(30, 30), (20, 70)])
@pytest.mark.parametrize(
    "players", [(DRAWN, MANY), (BURSTS, LONG), (SHORT, SHORT_DRAWN), (NEW_LONG, MANY), (NEW_DRAWN, LONG)]
)
def test_with_the_arbiter_no_launch_waits_long_once_it_is_paid_for_and_the_card_is_free(
    card: Path, tmp_path: Path, players: tuple[str, str], limits: tuple[int, int]
) -> None:
    """50 ms at most beyond what its limit and the kernel demand that is running; the first second is for measuring lengths."""
    requested = [f"tenant={at},limit={at},arbiter=1,{player}" for at, player in zip(limits, players, strict=True)]
    workers = conduct(card, tmp_path, 3000, f"launches={tmp_path / 'launches'}", "sample=1", *requested)
    launches = [read_launches(tmp_path / f"launches.{number}") for number in range(len(workers))]
    assert min(len(rows) for rows in launches) > 10
    assert worst_excess_ms(workers, launches, limits, after_ms=1000) <= 50
