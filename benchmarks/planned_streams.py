"""Pods that come together, laid out together: bursts of requests for MIG slices and for parts of NPUs, against one by one.

The streams of ``mig_streams.py`` and ``npu_streams.py``, and one for chips that are cut by memory (HAMi's way), with eight
requests at once. Where one by one somebody is refused, the burst is laid out as a whole (``devices/layout.py``): "kept", so that
nobody loses the place that he would have had, or "fullest", so that as much as can be is served of those who stand equal. Small
instances are compared with the best that brute force finds.

All three ways meet the same streams, so a seed's gain is the difference of a pair, and beside the mean of a cell stands its
standard error. One burst laid out otherwise changes all that comes after it, for better or worse: a cell is worse than one by
one where its mean is further below nothing than that chance leads it.
``python -m benchmarks.planned_streams [--quick] [--save]``
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.npu_core_world import ChipBoard
from kit.results import arguments

from benchmarks import mig_instances, mig_streams, npu_streams
from benchmarks.goals import goals_of
from benchmarks.report import conclude
from pumice.devices.ascend_hami.device_request import ContainerRequest
from pumice.devices.ascend_hami.scheduling import Left, board_of
from pumice.devices.card_policies import POLICIES
from pumice.devices.layout import Board, Want, lay_out
from pumice.devices.nvidia_vgpu.planning import MigBoard
from pumice.model.hardware.npu import Dvpp, shipped_chips

BURST = 8
MINUTES = 17
LOADS = mig_streams.LOADS
TEMPLATE_CHIPS = 32
TEMPLATE_LOADS = (0.8, 1.0, 1.2)
TEMPLATE_RULES = ("310P3, binpack", "310P3, spread", "910B2, binpack", "910B2, spread")
HOW = ("one by one", "kept", "fullest")
ERRORS = 4
"""So many standard errors below nothing are no chance: with 64 seeds one of 12,000 cells without any loss is there."""

Size, Place = int, tuple[int, Any]


@dataclass(frozen=True, slots=True)
class Request:
    size: Size
    need: Any


class Fleet(Protocol):
    """Cards under a policy; ``cards``: those on which something could be planned, with their numbers."""

    def place(self, request: Request) -> Place | None: ...

    def put(self, place: Place) -> Place: ...

    def spot(self, place: Place) -> Place:
        """Return the created objects, as planned."""
        ...

    def leave(self, place: Place) -> None: ...

    def cards(self) -> Iterator[tuple[int, Board, Hashable]]: ...


class MigFleet:
    def __init__(self, rule: str) -> None:
        self.fleet = mig_streams.Fleet(mig_streams.a100(), mig_streams.CARDS, rule)
        self.board = MigBoard(self.fleet.geometry)

    def place(self, request: Request) -> Place | None:
        return self.fleet.place(request.size)

    def put(self, place: Place) -> Place:
        self.fleet.put(*place)
        return place

    def spot(self, place: Place) -> Place:
        return place

    def leave(self, place: Place) -> None:
        self.fleet.leave(*place)

    def cards(self) -> Iterator[tuple[int, Board, Hashable]]:
        for state, cards in self.fleet.by_state.items():
            for card in sorted(cards)[:BURST]:  # more of one state than there are requests are as good as none
                yield card, self.board, state


class NpuFleet:
    def __init__(self, rule: str) -> None:
        self.fleet = npu_streams.Fleet(npu_streams.RULES[rule])
        self.board = ChipBoard(npu_streams.KIND, 8)

    def place(self, request: Request) -> Place | None:
        return self.fleet.place(request.size, request.need)

    def put(self, place: Place) -> Place:
        chip, template = place
        return chip, self.fleet.put(chip, "whole" if template is None else template.name)

    def spot(self, place: Place) -> Place:
        chip, made = place
        return chip, None if made == npu_streams.WHOLE else npu_streams.KIND.templates[made[0]]

    def leave(self, place: Place) -> None:
        self.fleet.leave(*place)

    def cards(self) -> Iterator[tuple[int, Board, Hashable]]:
        taken: dict[Any, int] = {}
        for chip, slices in enumerate(self.fleet.chips):
            taken[slices] = taken.get(slices, 0) + 1
            if taken[slices] <= BURST:
                yield chip, self.board, npu_streams.left(slices)


class TemplateFleet:
    """Chips that are cut by memory; ``rule``: the chip's name and the policy by which one is taken."""

    def __init__(self, rule: str) -> None:
        name, policy = rule.split(", ")
        self.chip = shipped_chips("")[[chip.name for chip in shipped_chips("")].index(name)]
        self.board, self.policy = board_of(self.chip, self.chip.memory), POLICIES[policy]
        self.templates = {template.name: template for template in self.chip.templates}
        self.held: list[tuple[str, ...]] = [()] * TEMPLATE_CHIPS

    def place(self, request: Request) -> Place | None:
        first: dict[tuple[str, ...], int] = {}
        for number, held in enumerate(self.held):
            first.setdefault(held, number)
        fitting = [number for held, number in first.items() if next(iter(self.board.ways(self.left(held), request.need)), None)]
        if not fitting:
            return None
        return self.put((max(fitting, key=lambda number: (self.score(number), -number)), request.need.template))

    def score(self, number: int) -> float:
        held = self.held[number]
        return float(self.policy.score(self.chip.memory - self.left(held).idle, self.chip.memory, len(held)))

    def left(self, held: tuple[str, ...]) -> Left:
        if held == ("",):
            return Left(0, 0)
        memory = sum(self.templates[name].memory for name in held)
        return Left(self.chip.memory - memory, self.chip.shares - len(held), held)

    def put(self, place: Place) -> Place:
        number, template = place
        self.held[number] = tuple(sorted((*self.held[number], template)))
        return place

    def spot(self, place: Place) -> Place:
        return place

    def leave(self, place: Place) -> None:
        number, template = place
        held = list(self.held[number])
        held.remove(template)
        self.held[number] = tuple(held)

    def cards(self) -> Iterator[tuple[int, Board, Hashable]]:
        taken: dict[Any, int] = {}
        for number, held in enumerate(self.held):
            taken[held] = taken.get(held, 0) + 1
            if taken[held] <= BURST:
                yield number, self.board, self.left(held)


def burst(fleet: Fleet, requests: Sequence[Request], how: str) -> list[Place | None]:
    """One by one; where somebody is refused, and the layout as a whole serves more, as it says."""
    places = [fleet.place(request) for request in requests]
    if how == HOW[0] or None not in places:
        return places
    for place in places:
        if place is not None:
            fleet.leave(place)
    numbers, *boards = zip(*fleet.cards(), strict=True)
    kept = [how == "kept" and place is not None for place in places]
    wants = [Want(_no_less(r.need, place), r.size, None, must) for r, place, must in zip(requests, places, kept, strict=True)]
    spots = lay_out(wants, list(zip(*boards, strict=True)))
    lost = any(must and spot is None for must, spot in zip(kept, spots, strict=True))
    if lost or _served(requests, spots) <= _served(requests, places):
        return [place if place is None else fleet.put(fleet.spot(place)) for place in places]
    return [None if spot is None else fleet.put((numbers[spot[0]], spot[1])) for spot in spots]


def _served(requests: Sequence[Request], places: Sequence[Any]) -> int:
    return sum(request.size for request, place in zip(requests, places, strict=True) if place is not None)


def _no_less(need: Any, place: Place | None) -> Any:
    """Of the templates in their order those up to the one that it had."""
    if place is None or not isinstance(need, tuple):
        return need
    return need[: 1 + [template.name for template in need].index(place[1][0])] if need else need


Draw = Callable[[random.Random], Request]


def run(fleet: Fleet, draw: Draw, rate: float, seed: int, arrivals: int, how: str) -> float:
    """Per cent of the sizes asked for that were given, over the last three quarters of the arrivals."""
    rng, leaving, now, offered, accepted = random.Random(seed), [], 0.0, 0, 0
    for number in range(0, arrivals, BURST):
        now += rng.expovariate(rate / BURST)
        requests = [draw(rng) for _ in range(BURST)]
        lives = [rng.lognormvariate(-0.5, 1.0) for _ in requests]
        while leaving and leaving[0][0] <= now:
            fleet.leave(heapq.heappop(leaving)[2])
        for at, place in enumerate(burst(fleet, requests, how)):
            counts = number >= arrivals // 4
            offered += requests[at].size * counts
            if place is not None:
                accepted += requests[at].size * counts
                heapq.heappush(leaving, (now + lives[at], number + at, place))
    return 100 * accepted / offered


@dataclass(frozen=True, slots=True)
class Cell:
    """``accepted``: per cent, by way and seed; all ways meet the same streams."""

    accepted: Mapping[str, Sequence[float]]

    def gains(self, how: str) -> list[float]:
        """By seed, against one by one."""
        return [got - alone for got, alone in zip(self.accepted[how], self.accepted[HOW[0]], strict=True)]

    def error(self, how: str) -> float:
        """The standard error of the mean gain."""
        gains = self.gains(how)
        return float(stdev(gains)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0

    def plain(self) -> dict[str, Any]:
        return {
            HOW[0]: mean(self.accepted[HOW[0]]),
            **{how: {"gained": mean(self.gains(how)), "standard_error": self.error(how)} for how in HOW[1:]},
        }


Cells = dict[str, dict[str, Cell]]
"""rule -> mix and load -> what is accepted."""


def compared(fleet: Callable[[], Fleet], draw: Draw, rate: float, seeds: Iterable[int], arrivals: int) -> Cell:
    return Cell({how: [run(fleet(), draw, rate, seed, arrivals, how) for seed in seeds] for how in HOW})


def mig_cells(seeds: Sequence[int], arrivals: int) -> Cells:
    def cell(rule: str, mix: tuple[float, ...], load: float) -> Cell:
        sizes = mig_streams.SIZES
        rate = load * mig_streams.CARDS * mig_streams.TOTAL / sum(p * s for p, s in zip(mix, sizes, strict=True))

        def draw(rng: random.Random) -> Request:
            size = rng.choices(sizes, mix)[0]
            return Request(size, size)

        return compared(lambda: MigFleet(rule), draw, rate, seeds, arrivals)

    return {rule: {f"{name}, {load}": cell(rule, mix, load) for name, mix in mig_streams.MIXES.items() for load in LOADS}
            for rule in (*mig_streams.RULES, mig_streams.FREE[0])}  # fmt: skip


def npu_cells(seeds: Sequence[int], arrivals: int) -> Cells:
    def cell(rule: str, mix: tuple[float, tuple[float, float, float]], load: float) -> Cell:
        high, dvpps = mix
        cores, weights = npu_streams.CORES, npu_streams.WEIGHTS
        rate = load * npu_streams.CHIPS * 8 / sum(c * w for c, w in zip(cores, weights, strict=True))

        def draw(rng: random.Random) -> Request:
            size, level = rng.choices(cores, weights)[0], rng.random() < high
            dvpp = Dvpp(rng.choices(("null", "yes", "no"), dvpps)[0] if size == 4 else "null")
            return Request(size, () if size == 8 else npu_streams.KIND.choices(size, dvpp, high=level))

        return compared(lambda: NpuFleet(rule), draw, rate, seeds, arrivals)

    return {rule: {f"{name}, {load}": cell(rule, mix, load) for name, mix in npu_streams.MIXES.items()
                   for load in npu_streams.LOADS} for rule in npu_streams.RULES}  # fmt: skip


def template_cells(seeds: Sequence[int], arrivals: int) -> Cells:
    """The sizes of a chip and the chip as a whole, in the frequencies of ``npu_streams.py``."""

    def cell(rule: str, load: float) -> Cell:
        chip = TemplateFleet(rule).chip
        whole = Request(chip.memory, ContainerRequest(1))
        sizes = [*(Request(t.memory, ContainerRequest(1, t.memory, t.name)) for t in chip.templates[:3]), whole]
        weights = (*npu_streams.WEIGHTS[: len(sizes) - 1], npu_streams.WEIGHTS[-1])
        rate = load * TEMPLATE_CHIPS * chip.memory * sum(weights) / sum(r.size * w for r, w in zip(sizes, weights, strict=True))

        def draw(rng: random.Random) -> Request:
            return rng.choices(sizes, weights)[0]

        return compared(lambda: TemplateFleet(rule), draw, rate, seeds, arrivals)

    return {rule: {str(load): cell(rule, load) for load in TEMPLATE_LOADS} for rule in TEMPLATE_RULES}


def below_optimum(count: int) -> dict[str, float]:
    """mix -> how far the layout of 24 requests on four idle cards is below the optimum, in per cent (``mig_instances.py``)."""
    geometry, found = mig_streams.a100(), {}
    for name, mix in mig_streams.MIXES.items():
        lost = []
        for number in range(count):
            sizes = random.Random(f"1-{name}-{number}").choices(mig_streams.SIZES, mix, k=mig_instances.REQUESTS)
            spots = lay_out([Want(size, size) for size in sizes], [(MigBoard(geometry), (-1, 0))] * mig_instances.CARDS)
            best = mig_instances.optimum(geometry, sizes)
            lost.append(100 * (1 - sum(s for s, spot in zip(sizes, spots, strict=True) if spot is not None) / best))
        found[name] = mean(lost)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="two seeds and a tenth of the arrivals")
    options = parser.parse_args(argv)
    seeds, arrivals = (range(1, 3), 100) if options.quick else (range(1, 65), 1000)
    streams = {
        "MIG": mig_cells(seeds, arrivals), "NPU": npu_cells(seeds, arrivals), "NPU by memory": template_cells(seeds, arrivals),
    }  # fmt: skip
    lost = below_optimum(2 if options.quick else 200)

    def cells(name: str) -> list[Cell]:
        return [cell for by_cell in streams[name].values() for cell in by_cell.values()]

    def gained(name: str, how: str) -> float:
        return mean(mean(cell.gains(how)) for cell in cells(name))

    def worst(name: str, how: str) -> float:
        return min(mean(cell.gains(how)) + ERRORS * cell.error(how) for cell in cells(name))

    values = {
        "MIG: below the optimum, worst mix": max(lost.values()),
        "MIG, kept: points gained, mean": gained("MIG", "kept"),
        "MIG, kept: worst cell, 4 errors up": worst("MIG", "kept"),
        "MIG, fullest: points gained, mean": gained("MIG", "fullest"),
        "MIG, fullest: worst cell, 4 errors up": worst("MIG", "fullest"),
        "NPU, kept: points gained, mean": gained("NPU", "kept"),
        "NPU, kept: worst cell, 4 errors up": worst("NPU", "kept"),
        "NPU, fullest: points gained, mean": gained("NPU", "fullest"),
        "NPU, fullest: worst cell, 4 errors up": worst("NPU", "fullest"),
        "NPU by memory, kept: points gained, mean": gained("NPU by memory", "kept"),
        "NPU by memory, kept: worst cell, 4 errors up": worst("NPU by memory", "kept"),
        "NPU by memory, fullest: points gained, mean": gained("NPU by memory", "fullest"),
        "NPU by memory, fullest: worst cell, 4 errors up": worst("NPU by memory", "fullest"),
    }
    plain = {name: {rule: {at: cell.plain() for at, cell in by_cell.items()} for rule, by_cell in rules.items()}
             for name, rules in streams.items()}  # fmt: skip
    result = {"burst": BURST, "arrivals": arrivals, "seeds": list(seeds), **plain, "below_optimum_percent": lost}
    return conclude("planned_streams", result, goals_of("planned_streams", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
