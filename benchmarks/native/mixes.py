"""Programs that are unlike each other on one card, as processes of a container and as tenants: shares, and how long they wait.

In virtual time. With the arbiter both are held to a point, and no launch may wait for more than 50 ms beyond what its limit
and the kernel on the card demand; without it the figures are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit.launch_waits import Rows, read_launches, worst_excess_ms

from benchmarks.native.harness import MS, Figures, conduct_workers, share

MILLISECONDS, SETTLED_MS, FROM_MS, UNTIL_MS = 6000, 1000, 1500, 5900

ONE, MANY, SHORT, LONG = f"kernel={MS}", f"kernel={MS},streams=8", "kernel=10000", f"kernel={20 * MS}"
GRAPH, SYNCHRONOUS, STAYS = "kernel=100000,shape=graph", f"kernel={MS},shape=sync", f"kernel={50 * MS}"
SHORT_MANY, FIFTY, FIFTY_MANY = "kernel=10000,streams=8", "kernel=50000", "kernel=50000,streams=8"
MIXED, MIXED_MANY = f"kernel={MS},shape=mixed", "kernel=300000,shape=mixed,streams=4"
DRAWN, SHORT_DRAWN = "kernel=200000,shape=lognormal", "kernel=20000,shape=lognormal"
BURSTS, SHORT_BURSTS = "kernel=500000,burst=20,pause=5000000", "kernel=20000,burst=300,pause=5000000"
NEW_BLOCKS, NEW_MODULES = "kinds=32768", "modules=1"  # each launch of a new kind, as far as a program runs here
NEW, NEW_LONG, COMPILED = f"{ONE},{NEW_BLOCKS}", f"kernel={2 * MS},{NEW_BLOCKS}", f"{ONE},{NEW_MODULES}"
NEW_SHORT, NEW_DRAWN, NEW_PAUSING = f"kernel=50000,{NEW_BLOCKS}", f"{DRAWN},{NEW_BLOCKS}", f"{ONE},{NEW_BLOCKS},pause=100000"
COMPILED_SHORT, EIGHT_KINDS = f"{SHORT_DRAWN},{NEW_MODULES}", f"{DRAWN},kinds=8"
COPIES, FILLS = f"{ONE},copy=1048576", f"{DRAWN},fill=1048576"

PROCESSES: tuple[tuple[str, ...], ...] = (
    (MANY, ONE), (MANY, SHORT), (SHORT, ONE), (ONE, LONG), (MANY, LONG), (GRAPH, LONG), (SHORT_MANY, ONE),
    (MANY, f"kernel={3 * MS}", "kernel=100000"), (STAYS, SHORT), (GRAPH, MANY), (SYNCHRONOUS, LONG),
    ("kernel=300000,shape=cooperative", f"kernel={MS},streams=16"), (SHORT_MANY, LONG),
    (f"kernel={MS},streams=2", MANY, GRAPH, SHORT), (FIFTY_MANY, LONG), (FIFTY_MANY, DRAWN), (MANY, MANY),
    (MIXED, MIXED), (MIXED_MANY, DRAWN), (DRAWN, DRAWN), (SHORT_DRAWN, SHORT_DRAWN), (SHORT_DRAWN, "kernel=100000"),
    (BURSTS, ONE), (BURSTS, MANY), (SHORT_BURSTS, MIXED_MANY), (SHORT_BURSTS, DRAWN), (COPIES, ONE), (COPIES, FILLS),
    (FILLS, GRAPH, BURSTS), (DRAWN, GRAPH, MIXED, SHORT_MANY), (NEW, ONE), (NEW_LONG, FIFTY), (COMPILED, LONG), (COMPILED, NEW),
    (NEW_SHORT, MANY), (NEW_DRAWN, GRAPH), (COMPILED_SHORT, ONE), (EIGHT_KINDS, NEW_DRAWN), (NEW_PAUSING, MANY),
)  # fmt: skip
TENANTS: tuple[tuple[str, str], ...] = (
    (SHORT, MANY), (MANY, LONG), (LONG, MANY), (DRAWN, MANY), (MANY, DRAWN), (DRAWN, DRAWN), (SHORT_DRAWN, SYNCHRONOUS),
    (FIFTY_MANY, DRAWN), (SHORT_MANY, GRAPH), (BURSTS, MANY), (SHORT_BURSTS, MIXED_MANY), (MIXED, MIXED),
    (COPIES, DRAWN), (FILLS, GRAPH), (NEW, ONE), (NEW_LONG, FIFTY), (COMPILED, LONG), (MANY, COMPILED), (COMPILED, NEW),
    (MANY, NEW_SHORT), (NEW_DRAWN, GRAPH), (COMPILED_SHORT, ONE), (EIGHT_KINDS, NEW_DRAWN), (NEW_DRAWN, MANY),
)  # fmt: skip


def _play(folder: Path, players: Sequence[str], *, where: str = "virtual") -> tuple[list[dict[str, Any]], list[Rows]]:
    workers, directory = conduct_workers(folder, MILLISECONDS, *players, time_mode=where, record=True)
    launches = [read_launches(directory / f"launches.{number}") for number in range(len(workers))]
    for worker, rows in zip(workers, launches, strict=True):
        if where == "virtual" and worker["served"][-1] > rows[:, 2].sum():
            raise RuntimeError("the card did more than was launched")
    return workers, launches


def _shares(workers: Sequence[dict[str, Any]]) -> list[float]:
    return [share(worker["served"][::10], FROM_MS, UNTIL_MS) for worker in workers]


def _one(
    folder: Path, players: Sequence[str], limits: Sequence[float], parts: Sequence[float]
) -> tuple[float, float, float]:
    """How far the worst is from its part, the longest wait too much once all is measured, and from the first launch on."""
    workers, launches = _play(folder, players)
    distance = max(abs(got - part) for got, part in zip(_shares(workers), parts, strict=True))
    return distance, *(worst_excess_ms(workers, launches, limits, after) for after in (SETTLED_MS, 0))


Run = tuple[list[str], Sequence[float], Sequence[float]]


def _processes(players: Sequence[str], limit: int) -> Run:
    """Players, their limits and what each should get."""
    count = len(players)
    return [f"limit={limit},{player}" for player in players], [limit] * count, [limit / count] * count


def _tenants(players: Sequence[str], limits: Sequence[int]) -> Run:
    return [f"tenant={at},limit={at},{player}" for at, player in zip(limits, players, strict=True)], limits, limits


def mixes(figures: Figures, folder: Path) -> None:
    processes = [_processes(players, limit) for players in PROCESSES for limit in (30, 80)]
    tenants = [_tenants(players, limits) for players in TENANTS for limits in ((30, 50), (20, 70))]
    for arbiter, reported in ((1, "with"), (0, "without")):
        for name, part, runs in (
            ("processes of a container", "fair part", processes),
            ("tenants", "limit", tenants),
        ):
            found = [
                _one(folder, [f"{player},arbiter={arbiter}" for player in players], limits, parts)
                for players, limits, parts in runs
            ]
            distance, wait, first = (max(column) for column in zip(*found, strict=True))
            of = f"unlike {name}, {reported} the arbiter"
            add = figures.goal if arbiter else figures.report
            add(f"{of}: distance from the {part}, worst", round(distance, 3))
            add(f"{of}: a launch waits too long by, worst", round(wait, 1))
            figures.report(f"{of}: the same while lengths are unknown, ms", round(first, 1))
    name = "two processes at 30 %, one copies for 50 us before each kernel on a card that does nothing else meanwhile"
    figures.report(f"{name}: percent in kernels", _beside_copies(folder))


def _beside_copies(folder: Path) -> list[float]:
    """The machine's copies take the card's time; what of a process was kernels is what it launched."""
    _, launches = _play(folder, [f"limit=30,arbiter=1,{player}" for player in (COPIES, ONE)], where="copying")
    span = (UNTIL_MS - FROM_MS) * MS
    within = [rows[(rows[:, 1] >= FROM_MS * MS) & (rows[:, 1] < UNTIL_MS * MS), 2] for rows in launches]
    return [round(100 * float(lengths.sum()) / span, 2) for lengths in within]
