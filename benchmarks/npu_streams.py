"""Ascend 310P chips cut on demand, on streams of requests: 1, 2, 4, 8 AI cores in .4/.3/.2/.1, ten seeds, five loads.

Poisson arrivals, lognormal lives, blocked requests are lost, and the node's plugin makes a slice at once. Prints the AI cores
that were accepted, in per cent of those that were asked for, by ``pumice.NpuPolicy``, mix of labels and load, and what the policy
gains with its standard error: ten seeds tell a point from nothing, and not from half a point. Beside them stands what could be
had if slices were moved together for each request, by the same templates; and a bound: what somebody could accept at most who
knows all that comes and may move, end and divide slices at will.
``python -m benchmarks.npu_streams [--quick] [--save]``
"""

from __future__ import annotations

import heapq
import random
import sys
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude
from pumice.devices.ascend_mindcluster.inventory import FREE_DVPP, loss, takes
from pumice.model.hardware.npu import Dvpp, SliceTemplate, slice_kinds

KIND = slice_kinds()["Ascend310P"]
CORES, WEIGHTS = (1, 2, 4, 8), (0.4, 0.3, 0.2, 0.1)
LOADS = (0.8, 0.9, 1.0, 1.1, 1.2)
Mix = tuple[float, tuple[float, float, float]]
MIXES: Mapping[str, Mix] = {
    "low": (0.0, (1, 0, 0)), "high": (1.0, (1, 0, 0)), "levels": (0.5, (1, 0, 0)), "media": (0.3, (0.6, 0.2, 0.2)),
}  # fmt: skip
"""Share of level high; of dvpp null, yes and no among requests of four cores."""
CHIPS, ARRIVALS = 64, 2000
MINUTES = 5

Slices = tuple[tuple[str, int], ...]
"""The slices of a chip: template and vGroup, sorted; ``whole`` for a chip that is given whole."""
Left = tuple[int, int, int]
WHOLE = ("whole", 0)


@cache
def left(slices: Slices) -> Left:
    """Free AI cores, AI CPUs, and the rest as the family writes it."""
    if WHOLE in slices:
        return 0, 0, 0
    templates = [KIND.templates[name] for name, _ in slices]
    taken = {template.dvpp for template in templates}
    dvpp = Dvpp.NO if Dvpp.YES in taken else Dvpp.SHARE if Dvpp.SHARE in taken else Dvpp.YES
    groups = len({group for _, group in slices})
    return 8 - sum(t.cores for t in templates), 7 - sum(t.cpus for t in templates), FREE_DVPP[dvpp] | groups << 2


def with_slice(slices: Slices, name: str) -> tuple[Slices, tuple[str, int]]:
    """The driver takes the first vGroup that nobody is in, else the one with the fewest slices."""
    used = Counter(group for _, group in slices)
    made = (name, min(range(4), key=lambda group: (used[group], group)))
    return tuple(sorted((*slices, made))), made


Rule = Callable[[SliceTemplate, Slices, bool], tuple[float, ...]]
"""The key by which a chip is chosen for a slice, the least first; whether some chip is idle."""
RULES: Mapping[str, Rule] = {
    "listed": lambda template, slices, idle: left(slices)[:2],
    "expected": lambda template, slices, idle: (round(loss(KIND, template, *left(slices), idle=idle), 9), *left(slices)[:2]),
}


class Fleet:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.chips: list[Slices] = [()] * CHIPS

    def place(self, cores: int, templates: tuple[SliceTemplate, ...]) -> tuple[int, tuple[str, int]] | None:
        if cores == 8:
            chip = next((at for at, slices in enumerate(self.chips) if not slices), None)
            if chip is None:
                return None
            self.chips[chip] = (WHOLE,)
            return chip, WHOLE
        first: dict[Slices, int] = {}
        for at, slices in enumerate(self.chips):
            first.setdefault(slices, at)
        for template in templates:
            fitting = [(slices, at) for slices, at in first.items() if takes(template, *left(slices))]
            if fitting:
                slices, chip = min(fitting, key=lambda found: (self.rule(template, found[0], () in first), found[1]))
                self.chips[chip], made = with_slice(slices, template.name)
                return chip, made
        return None

    def put(self, chip: int, name: str) -> tuple[str, int]:
        """Make a slice where somebody else has planned it; ``whole`` for the chip."""
        if name == WHOLE[0]:
            self.chips[chip] = (WHOLE,)
            return WHOLE
        self.chips[chip], made = with_slice(self.chips[chip], name)
        return made

    def leave(self, chip: int, made: tuple[str, int]) -> None:
        rest = list(self.chips[chip])
        rest.remove(made)
        self.chips[chip] = tuple(rest)


class Arrival(NamedTuple):
    at: float
    ends: float
    cores: int
    templates: tuple[SliceTemplate, ...]


def stream(mix: Mix, load: float, seed: int) -> Iterator[Arrival]:
    rng = random.Random(seed)
    high, dvpps = mix
    rate = load * CHIPS * 8 / sum(c * w for c, w in zip(CORES, WEIGHTS, strict=True))  # lives have mean 1
    now = 0.0
    for _ in range(ARRIVALS):
        now += rng.expovariate(rate)
        cores = rng.choices(CORES, WEIGHTS)[0]
        level, dvpp, life = rng.random() < high, rng.choices(("null", "yes", "no"), dvpps)[0], rng.lognormvariate(-0.5, 1.0)
        yield Arrival(now, now + life, cores, KIND.choices(cores, Dvpp(dvpp if cores == 4 else "null"), high=level))


def bound(arrivals: Sequence[Arrival], room: int = CHIPS * 8) -> float:
    """Per cent of the cores asked for that can be given at most. Cores alone count, each a unit that may be taken from its pod:
    then it is best to give up whatever would stay longest, whenever there are too many (Faigle and Nawijn 1995)."""
    counting = arrivals[len(arrivals) // 4 :]  # the others are accepted only if they cost nothing
    held: list[tuple[float, int]] = []
    lost = 0
    for arrival in counting:
        held = [entry for entry in held if entry[0] > arrival.at]
        insort(held, (arrival.ends, arrival.cores))
        over = sum(cores for _, cores in held) - room
        while over > 0:
            ends, cores = held.pop()
            lost += min(over, cores)
            if cores > over:
                held.append((ends, cores - over))
            over -= min(over, cores)
    offered = sum(arrival.cores for arrival in counting)
    return 100 * (offered - lost) / offered


def run(rule: Rule, mix: Mix, load: float, seed: int) -> float:
    """Per cent of the cores asked for that were given, over the last three quarters of the arrivals."""
    fleet, leaving, offered, accepted = Fleet(rule), [], 0, 0
    for number, (now, ends, cores, templates) in enumerate(stream(mix, load, seed)):
        while leaving and leaving[0][0] <= now:
            fleet.leave(*heapq.heappop(leaving)[2:])
        place = fleet.place(cores, templates)
        counts = number >= ARRIVALS // 4
        offered += cores * counts
        if place is not None:
            accepted += cores * counts
            heapq.heappush(leaving, (ends, number, *place))
    return 100 * accepted / offered


def moved(arrivals: Sequence[Arrival]) -> float:
    """Per cent of the cores asked for that are given where slices may be moved at any time and nobody is refused who then has
    room: templates by the table, no chip cut badly. No bound, for who refuses some on purpose may accept more; the distance to it
    is what the choice of chips loses."""
    ending: list[tuple[float, int, int, int]] = []
    whole = cores = cpus = accepted = 0

    def there_is_room(more_whole: int, more_cores: int, more_cpus: int) -> bool:
        sliced = max(-(-(cores + more_cores) // 8), -(-(cpus + more_cpus) // 7))
        return whole + more_whole + sliced <= CHIPS

    counting = len(arrivals) // 4
    for number, arrival in enumerate(arrivals):
        while ending and ending[0][0] <= arrival.at:
            _, was_whole, had_cores, had_cpus = heapq.heappop(ending)
            whole, cores, cpus = whole - was_whole, cores - had_cores, cpus - had_cpus
        ways = [(1, 0, 0)] if arrival.cores == 8 else [(0, t.cores, t.cpus) for t in arrival.templates]
        way = next((way for way in ways if there_is_room(*way)), None)
        if way is not None:
            accepted += arrival.cores * (number >= counting)
            whole, cores, cpus = whole + way[0], cores + way[1], cpus + way[2]
            heapq.heappush(ending, (arrival.ends, *way))
    return 100 * accepted / sum(arrival.cores for arrival in arrivals[counting:])


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="two seeds, two loads")
    options = parser.parse_args(argv)
    seeds = range(1, 3) if options.quick else range(1, 11)
    loads = (1.0, 1.2) if options.quick else LOADS
    by_seed = {
        mix: {name: {str(load): [run(rule, shares, load, seed) for seed in seeds] for load in loads}
              for name, rule in RULES.items()}
        for mix, shares in MIXES.items()
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {
        mix: {name: {load: mean(got) for load, got in by_load.items()} for name, by_load in rules.items()}
        for mix, rules in by_seed.items()
    }

    def gains(mix: str, load: str) -> list[float]:
        return [more - less for more, less in zip(by_seed[mix]["expected"][load], by_seed[mix]["listed"][load], strict=True)]

    def gain(mix: str, load: str) -> float:
        return mean(gains(mix, load))

    for mix, shares in MIXES.items():
        streams = {str(load): [list(stream(shares, load, seed)) for seed in seeds] for load in loads}
        found[mix]["gained"] = {
            load: {"mean": gain(mix, load), "standard_error": stdev(gains(mix, load)) / len(seeds) ** 0.5} for load in streams
        }
        found[mix]["slices moved"] = {load: mean(map(moved, its)) for load, its in streams.items()}
        found[mix]["bound"] = {load: mean(map(bound, its)) for load, its in streams.items()}

    values = {
        "points gained, low, load 1.0": gain("low", "1.0"), "points gained, low, load 1.2": gain("low", "1.2"),
        "points gained, levels, load 1.0": gain("levels", "1.0"), "points gained, levels, load 1.2": gain("levels", "1.2"),
        "points gained, media, load 1.0": gain("media", "1.0"), "points gained, media, load 1.2": gain("media", "1.2"),
        "points gained, high, load 1.0": gain("high", "1.0"), "points gained, high, load 1.2": gain("high", "1.2"),
        "points gained at the least": min(gain(mix, str(load)) for mix in MIXES for load in loads),
        "points above the bound": max(gain_of[load] - found[mix]["bound"][load] for mix in MIXES for gain_of in
                                      (found[mix]["expected"], found[mix]["listed"]) for load in map(str, loads)),
    }  # fmt: skip
    about = {"chips": CHIPS, "arrivals": ARRIVALS, "seeds": list(seeds)}
    result = {**about, "accepted_percent": found}
    return conclude("npu_streams", result, goals_of("npu_streams", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
