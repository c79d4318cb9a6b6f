"""BS4, gangs: 10,000 pods in groups of several sizes on 1,000 nodes; all of a gang or none of it.

    python -m benchmarks.bs4_gangs [--server auto|kube|embedded] [--nodes N] [--repeats N] [--quick] [--save]

Cases are gangs x members: 1 x 500, 20 x 500, 500 x 20, 10,000 x 1, minMember equal to the size, PodGroups made beforehand. The
time of a gang goes from its last create answered to its last Binding answered, by the server's clock; a pause is the time between
two Bindings that follow each other, once the first is there. After each case the store is checked: no partial gang, no card over.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from typing import Any

from benchmarks.end_to_end.contenders import Ours
from benchmarks.end_to_end.load import check, clean, create_groups, create_pods, make_pod, prepare
from benchmarks.end_to_end.measures import Figures, percentiles
from benchmarks.end_to_end.options import Options, arguments, medians, progress
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.report import Goal, conclude

MINUTES = 9
CASES = ((1, 500), (20, 500), (500, 20), (10000, 1))


async def case(server: Server, gangs: int, size: int, label: str) -> Figures:
    log = server.log
    log.read()
    log.mark()
    groups = [f"{label}-{index}" for index in range(gangs)]
    await create_groups(server.kube, groups, size)
    members = {group: {f"{group}-{i}" for i in range(size)} for group in groups}
    names = await create_pods(server.kube, [make_pod(f"{group}-{i}", index, gang=group) for index, group in enumerate(groups)
                                            for i in range(size)])  # fmt: skip
    await log.until_bound(names, 180)
    await check(server.kube, names)
    moments = sorted(log.bound[name] for name in names)
    taken = sorted(1000 * (max(log.bound[n] for n in pods) - max(log.created[n] for n in pods)) for pods in members.values())
    total = moments[-1] - min(log.asked[name] for name in names)
    return {"gang_p50_ms": percentiles(taken)["p50_ms"], "gang_max_ms": taken[-1], "total_s": total,
            "pods_per_s": len(names) / total, "longest_pause_ms": 1000 * max(b - a for a, b in pairwise(moments))}  # fmt: skip


async def run(options: Options) -> dict[str, Any]:
    part = 10 if options.quick else 1
    cases = [(max(1, gangs // part), size) for gangs, size in CASES]
    found: dict[str, list[Figures]] = {f"{gangs}x{size}": [] for gangs, size in cases}
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        async with Ours(server) as scheduler:
            await case(server, 1, 200, "warm-up")
            await clean(server.kube)
            scheduler.mark()
            for index in range(options.repeats):
                for gangs, size in cases:
                    found[f"{gangs}x{size}"].append(await case(server, gangs, size, f"g{index}-{gangs}x{size}"))
                    progress(f"gangs {index + 1}/{options.repeats} {gangs}x{size}", found[f"{gangs}x{size}"][-1])
                    await clean(server.kube)
            peak = scheduler.peak_mib()
        return {"api_server": server.name, "nodes": options.nodes, "cases": {name: medians(runs) for name, runs in found.items()},
                "peak_rss_mib": round(peak, 1)}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = arguments(__doc__ or "", argv, nodes=1000, pods=0, repeats=5)
    result = asyncio.run(run(options))
    one = result["cases"]["1x500"]["gang_max_ms"]["median"]
    return conclude(f"bs4_gangs_{options.server}", result, [Goal("a gang of 500, all Bindings sent", one, 700, "ms")],
                    keep=options.save)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
