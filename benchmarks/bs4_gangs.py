"""BS4, gangs: 10,000 pods in groups of several sizes on 1,000 nodes; all of a gang or none of it.

    python -m benchmarks.bs4_gangs [--server auto|kube|embedded] [--nodes N] [--repeats N] [--quick] [--save]

Cases are gangs x members: 1 x 500 (twice), 20 x 500, 500 x 20, 10,000 x 1, minMember equal to the size, PodGroups made before;
each repeat has a fresh server, which the cases fill one after the other. The time of a gang goes from its last create answered to
its last Binding answered, by the server's clock; a pause is the time between two Bindings that follow each other, once the first
is there. No gang may have a Binding before its last pod was asked for; at the end of a repeat the store is checked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.end_to_end.contenders import Contender, Ours
from benchmarks.end_to_end.load import check, create_groups, create_pods, make_pod, prepare
from benchmarks.end_to_end.measures import Figures, percentiles, settled
from benchmarks.end_to_end.options import Options, medians, options_of, progress
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude

MINUTES = 5
CASES = ((1, 500), (1, 500), (20, 500), (500, 20), (10000, 1))
QUICK = ((1, 40), (1, 40), (2, 40), (20, 4), (100, 1))
"""So many gangs of so many pods."""


async def case(server: Server, scheduler: Contender, gangs: int, size: int, label: str) -> tuple[Figures, set[str]]:
    log = server.log
    groups = [f"{label}-{index}" for index in range(gangs)]
    await create_groups(server.kube, groups, size)
    await settled(server)
    log.mark()
    scheduler.mark()
    members = {group: {f"{group}-{i}" for i in range(size)} for group in groups}
    names = await create_pods(server.kube, [make_pod(f"{group}-{i}", index, gang=group) for index, group in enumerate(groups)
                                            for i in range(size)])  # fmt: skip
    await log.until_bound(names, 180)
    cpu = scheduler.cpu_since_mark()
    early = [group for group, pods in members.items() if min(log.bound[n] for n in pods) < max(log.requested[n] for n in pods)]
    assert not early, f"bound before they were whole: {early[:3]}"
    moments = sorted(log.bound[name] for name in names)
    taken = sorted(1000 * (max(log.bound[n] for n in pods) - max(log.created[n] for n in pods)) for pods in members.values())
    total = moments[-1] - min(log.requested[name] for name in names)
    return {"gang_p50_ms": percentiles(taken)["p50_ms"], "gang_max_ms": taken[-1], "total_s": total,
            "pods_per_s": len(names) / total, "longest_pause_ms": 1000 * max(b - a for a, b in pairwise(moments)),
            "cpu_ms_per_pod": cpu / len(names) * 1000}, names  # fmt: skip


async def one_repeat(options: Options, cases: Sequence[tuple[int, int]], run: int) -> list[tuple[str, Figures]]:
    found = []
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        async with Ours(server) as scheduler:
            _, every = await case(server, scheduler, 1, 200, "warm-up")
            for number, (gangs, size) in enumerate(cases):
                figures, names = await case(server, scheduler, gangs, size, f"g{number}-{gangs}x{size}")
                every |= names
                found.append((f"{gangs}x{size}", {**figures, "peak_rss_mib": scheduler.peak_mib()}))
                progress(f"gangs {run + 1}/{options.repeats} {gangs}x{size}", figures)
        await check(server.kube, every)
    return found


async def run(options: Options) -> dict[str, Any]:
    cases = QUICK if options.quick else CASES
    found: dict[str, list[Figures]] = {}
    for index in range(options.repeats):
        for name, figures in await one_repeat(options, cases, index):
            found.setdefault(name, []).append(figures)
    return {"api_server": "kube-apiserver v1.36 and etcd" if options.server == "kube" else "embedded", "nodes": options.nodes,
            "cases": {name: medians(runs) for name, runs in found.items()}}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = options_of(__doc__, argv, nodes=1000, pods=0, repeats=3)
    result = asyncio.run(run(options))
    one = next(iter(result["cases"].values()))["gang_max_ms"]["median"]
    goals = goals_of("bs4_gangs", {"a gang of 500, all Bindings sent": one})
    return conclude(f"bs4_gangs_{options.server}", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
