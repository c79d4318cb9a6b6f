"""MIG placement on streams of requests: 100 A100-40GB, four mixes, three loads, four seeds.

Poisson arrivals, lognormal lives, blocked requests are lost. Prints the mean memory in use (requested memory over all
memory, per cent, after a warm-up) and the share of requested memory that was accepted, per rule, mix and load.
``python benchmarks/mig_streams.py [--quick]``
"""

from __future__ import annotations

import heapq
import math
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.results import arguments, save

from pumice.devices.nvidia_vgpu.mig import Chooser, Geometry, chooser
from pumice.devices.nvidia_vgpu.mig_catalogue import PUBLISHED, Catalogue
from pumice.wire.device_config import NvidiaConfig

SIZES = (5120, 10240, 20480, 40960)
MIXES = {
    "small-heavy": (0.55, 0.25, 0.15, 0.05),
    "uniform": (0.25, 0.25, 0.25, 0.25),
    "bimodal": (0.5, 0.05, 0.05, 0.4),
    "openb-like": (0.12, 0.10, 0.33, 0.45),
}
LOADS = (0.85, 1.0, 1.2)
SEEDS = (1, 2, 3, 4)
RULES = ("upstream", "tightest", "expected")
FREE = ("tightest, any place", "expected, any place")
"""The same policies where slices may lie outside the groups (``pumice.MigOffGroup``)."""
CARDS = 100
TOTAL = 40960

State = tuple[int, int]
Held = tuple[int, int]
"""(group, slot) of one request, in the geometry's own numbers."""


class Fleet:
    """Cards grouped by state, so that a decision looks at each distinct state once."""

    def __init__(self, geometry: Geometry, cards: int, rule: str) -> None:
        policy, _, anywhere = rule.partition(", ")
        self.geometry = geometry.free if anywhere and geometry.free is not None else geometry
        self.choose: Chooser | None = chooser(policy)
        self.states: list[State] = [(-1, 0)] * cards
        self.held: list[list[Held]] = [[] for _ in range(cards)]
        self.filled: dict[State, int] = {(-1, 0): 0}
        self.by_state: dict[State, list[int]] = defaultdict(list)
        self.by_state[-1, 0] = list(range(cards))
        heapq.heapify(self.by_state[-1, 0])

    def place(self, need: int) -> tuple[int, Held] | None:
        """(card, slot): least cost, then the most used card, then the lowest index."""
        best: tuple[float, int, int] | None = None
        found: tuple[State, Held] | None = None
        for state, cards in self.by_state.items():
            if not cards:
                continue
            if self.choose is None:
                choice = self.geometry.first_fit(*state, need)
                offer = (0.0, *choice) if choice else None
            else:
                offer = self.choose(self.geometry, *state, need)
            if offer is None:
                continue
            cost, group, slot = offer
            rank = (round(cost, 6), -self.filled[state], cards[0])
            if best is None or rank < best:
                best, found = rank, (state, (group, slot))
        if found is None:
            return None
        before, slot_of_group = found
        card = heapq.heappop(self.by_state[before])
        self.held[card].append(slot_of_group)
        self._stand(card)
        return card, slot_of_group

    def put(self, card: int, slot: Held) -> None:
        """Place a request where somebody else has planned it."""
        self.by_state[self.states[card]].remove(card)
        heapq.heapify(self.by_state[self.states[card]])
        self.held[card].append(slot)
        self._stand(card)

    def leave(self, card: int, slot: Held) -> None:
        state = self.states[card]
        self.by_state[state].remove(card)
        heapq.heapify(self.by_state[state])
        self.held[card].remove(slot)
        self._stand(card)

    def _stand(self, card: int) -> None:
        """The card's state anew, from what lies on it."""
        state, filled = (-1, 0), 0
        for group, slot in self.held[card]:
            state = self.geometry.taken(*state, group, slot)
            filled += self.geometry.memory(group, slot)
        self.states[card], self.filled[state] = state, filled
        heapq.heappush(self.by_state[state], card)


def run(geometry: Geometry, rule: str, mix: tuple[float, ...], load: float, seed: int, arrivals: int) -> tuple[float, float]:
    """(mean memory in use, accepted memory), both in per cent, over the last three quarters of the arrivals."""
    rng = random.Random(seed)
    mean_size = sum(p * s for p, s in zip(mix, SIZES, strict=True))
    rate = load * CARDS * TOTAL / mean_size  # lives have mean 1
    sigma = 1.0
    fleet = Fleet(geometry, CARDS, rule)
    terminating: list[tuple[float, int, Held, int]] = []
    now = held = area = offered = accepted = 0.0
    begun = 0.0
    for number in range(arrivals):
        arrival = now + rng.expovariate(rate)
        size = rng.choices(SIZES, mix)[0]
        life = rng.lognormvariate(-sigma * sigma / 2, sigma)
        while terminating and terminating[0][0] <= arrival:
            at, card, slot, freed = heapq.heappop(terminating)
            area += held * (at - now)
            now = at
            held -= freed
            fleet.leave(card, slot)
        area += held * (arrival - now)
        now = arrival
        if number == arrivals // 4:
            area, begun, offered, accepted = 0.0, now, 0.0, 0.0
        offered += size
        place = fleet.place(size)
        if place is not None:
            accepted += size
            held += size
            heapq.heappush(terminating, (now + life, *place, size))
    return 100 * area / (now - begun) / (CARDS * TOTAL), 100 * accepted / offered


def a100() -> Geometry:
    config = NvidiaConfig(known_mig_geometries=PUBLISHED)
    geometry = Catalogue(config, anywhere=True).of("NVIDIA-NVIDIA A100-SXM4-40GB")
    assert geometry is not None
    return geometry


def table(arrivals: int, rules: tuple[str, ...] = (*RULES, *FREE)) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """rule -> mix -> load -> (memory in use, accepted), means over the seeds."""
    geometry = a100()
    result: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    for rule in rules:
        for mix_name, mix in MIXES.items():
            for load in LOADS:
                runs = [run(geometry, rule, mix, load, seed, arrivals) for seed in SEEDS]
                means = tuple(math.fsum(column) / len(runs) for column in zip(*runs, strict=True))
                result.setdefault(rule, {}).setdefault(mix_name, {})[str(load)] = (means[0], means[1])
    return result


def main() -> int:
    options = arguments(__doc__, quick="a thirtieth of the arrivals")
    chosen = options.parse_args()
    start = time.perf_counter()
    arrivals = 500 if chosen.quick else 15_000
    result = table(arrivals)
    if chosen.save:
        save("mig_streams", {"arrivals": arrivals, "seeds": SEEDS, "used_and_accepted_percent": result}, keep=True)
    print(f"mean memory in use % (accepted memory %), {arrivals} arrivals, seeds {SEEDS}")
    print(f"{'rule':20}{'load':>6}  " + "".join(f"{mix:>18}" for mix in MIXES) + f"{'mean':>8}")
    for load in map(str, LOADS):
        for rule, mixes in result.items():
            cells = [mixes[mix][load] for mix in MIXES]
            row = "".join(f"{f'{used:.1f} ({accepted:.0f})':>18}" for used, accepted in cells)
            print(f"{rule:20}{load:>6}  {row}{sum(c[0] for c in cells) / len(cells):8.2f}")
    worse = [
        (rule, mix, load)
        for rule in (*RULES[1:], *FREE)
        for mix in MIXES
        for load in map(str, LOADS)
        if result[rule][mix][load][0] < result["upstream"][mix][load][0]
    ]
    print("cells below upstream's rule:", worse or "none")
    print(f"{time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
