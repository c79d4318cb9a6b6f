"""Distance to the offline optimum: 200 small instances per mix, 4 A100-40GB, 24 requests in order, none leaving.

The optimum knows all requests and may refuse some: for every way to give groups to the cards, the most memory that fits is
found exactly (nested slots make accepting by size optimal). ``python benchmarks/mig_instances.py [--count N] [--quick]``
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.results import arguments, save

from benchmarks.mig_streams import MIXES, RULES, SIZES, Fleet, a100
from pumice.devices.nvidia_vgpu.mig import Geometry

CARDS, REQUESTS = 4, 24


def optimum(geometry: Geometry, requests: Sequence[int]) -> int:
    """The most requested memory that any choice of groups and requests holds."""
    best = 0
    for groups in combinations_with_replacement(geometry.groups, CARDS):
        slots = sorted((memory for group in groups for memory in group.memory), reverse=True)
        best = max(best, most(slots, requests))
    return best


def most(slots: Sequence[int], requests: Sequence[int]) -> int:
    """Slots of at least a size hold all requests of at least that size, so taking requests by size is optimal."""
    total, taken = 0, 0
    for size in sorted(requests, reverse=True):
        if taken < len(slots) and sum(1 for slot in slots if slot >= size) > taken:
            taken += 1
            total += size
    return total


def online(geometry: Geometry, rule: str, requests: Sequence[int]) -> int:
    fleet = Fleet(geometry, CARDS, rule)
    return sum(size for size in requests if fleet.place(size) is not None)


def distances(count: int, seed: int = 1) -> dict[str, dict[str, float]]:
    """mix -> rule -> mean distance to the optimum, in per cent of it."""
    geometry = a100()
    result: dict[str, dict[str, float]] = {}
    for mix_name, mix in MIXES.items():
        lost = dict.fromkeys(RULES, 0.0)
        for number in range(count):
            requests = random.Random(f"{seed}-{mix_name}-{number}").choices(SIZES, mix, k=REQUESTS)
            best = optimum(geometry, requests)
            for rule in RULES:
                reached = online(geometry, rule, requests)
                assert reached <= best, (rule, requests, reached, best)
                lost[rule] += 100 * (best - reached) / best
        result[mix_name] = {rule: total / count for rule, total in lost.items()}
    return result


def main() -> int:
    options = arguments(__doc__, quick="a tenth of the instances")
    options.add_argument("--count", type=int, default=200)
    chosen = options.parse_args()
    if chosen.quick:
        chosen.count //= 10
    result = distances(chosen.count)
    if chosen.save:
        save("mig_instances", {"instances": chosen.count, "below_optimum_percent": result}, keep=True)
    print(f"{'mix':14}" + "".join(f"{rule:>12}" for rule in RULES) + "   (per cent below the offline optimum)")
    for mix, by_rule in result.items():
        print(f"{mix:14}" + "".join(f"{by_rule[rule]:12.2f}" for rule in RULES))
    return 0 if all(min(r["tightest"], r["expected"]) < r["upstream"] for r in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
