"""BS2, end to end: bursts and steady arrivals over an API server, beside a null binder and the real kube-scheduler.

    python -m benchmarks.bs2_end_to_end [--server auto|kube|embedded] [--nodes N] [--pods N] [--repeats N] [--quick] [--save]

All contenders run on one server in one run, one after another and in turn, so that drift of the machine hits all alike. Pods
(5,000 on 1,000 nodes of 8 cards) are created at once, 32 requests at a time; a rate goes from the first create received to the
last Binding answered by the server's clock. ``ours`` runs with PodGroups and events off (the null binder writes neither),
``ours_grouped`` with both on and all pods in one PodGroup, ``ours_whole`` with both on and the controller beside it, which makes
a PodGroup for each pod; these two and kube-scheduler in three of the repeats. Nothing is pinned to a core: kube-apiserver, etcd,
the load and the scheduler share what the machine has. The real kube-scheduler is there when KUBEBUILDER_ASSETS names its binaries
and the server is the real one.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.end_to_end.contenders import (
    KUBE_SCHEDULER_LIMITS,
    Contender,
    KubeScheduler,
    NullBinder,
    OursBare,
    OursGrouped,
    OursWhole,
)
from benchmarks.end_to_end.load import check, clean, prepare
from benchmarks.end_to_end.measures import Figures, burst, one_burst, percentiles, settled, steady
from benchmarks.end_to_end.options import Options, medians, options_of, progress
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.goals import Goal, goals_of
from benchmarks.report import conclude

MINUTES = 13
RATE = 20.0
FEW_REPEATS = {"ours_grouped": 3, "ours_whole": 3, "kube_scheduler": 3}
"""These take up to a minute a burst."""
LATENCIES = 2
"""Repeats of the steady arrivals."""
CONTENDERS: dict[str, type[Contender]] = {
    "null_binder": NullBinder, "ours": OursBare, "ours_grouped": OursGrouped, "ours_whole": OursWhole,
    "kube_scheduler": KubeScheduler,
}  # fmt: skip


async def bursts(server: Server, names: list[str], options: Options) -> tuple[dict[str, list[Figures]], dict[str, Figures]]:
    """Figures of every burst, and who wrote what per pod in the last one."""
    found: dict[str, list[Figures]] = {name: [] for name in names}
    writes: dict[str, Figures] = {}
    for name in names if not options.quick else ():  # warm-up: the server's caches and every program's pages
        await burst(server, CONTENDERS[name](server), options.pods // 5, f"w-{name.replace('_', '-')}")
    for run in range(options.repeats):
        for name in names[run % len(names) :] + names[: run % len(names)]:
            if run >= FEW_REPEATS.get(name, run + 1):
                continue
            figures = await burst(server, CONTENDERS[name](server), options.pods, f"b{run}-{name.replace('_', '-')}")
            progress(f"burst {run + 1}/{options.repeats} {name}", figures)
            found[name].append(figures)
            writes[name] = {what: round(count / options.pods, 3) for what, count in server.log.kinds.most_common()
                            if what.startswith(CONTENDERS[name].agents)}  # fmt: skip
    return found, writes


async def latencies(server: Server, names: list[str], options: Options) -> dict[str, list[Figures]]:
    """Each contender alone, at 20 pods a second."""
    found: dict[str, list[Figures]] = {name: [] for name in names}
    repeats = min(options.repeats, LATENCIES)
    for run in range(repeats):
        for name in names:
            async with CONTENDERS[name](server) as contender:
                label = f"l{run}-{name.replace('_', '-')}"
                warm = await one_burst(server, contender, f"{label}-warm", 50)
                await settled(server)
                delays = await steady(server, label, contender.schedules, RATE, options.steady_pods)
            await check(server.kube, warm | {f"{label}-{i}" for i in range(options.steady_pods)}, cards=contender.chooses_cards)
            await clean(server.kube)
            found[name].append(percentiles(delays))
            progress(f"latency {run + 1}/{repeats} {name}", found[name][-1])
    return found


async def run(options: Options) -> dict[str, Any]:
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        names = [name for name in CONTENDERS if name != "kube_scheduler" or server.kind == "kube"]
        found, writes = await bursts(server, names, options)
        slow = await latencies(server, [n for n in names if n not in ("null_binder", "ours_grouped")], options)
        result: dict[str, Any] = {
            "api_server": server.name, "nodes": options.nodes, "pods": options.pods,
            "kube_scheduler_client": str(KUBE_SCHEDULER_LIMITS), "bursts": {name: medians(runs) for name, runs in found.items()},
            "writes_per_pod": writes,
            "latency_20_per_s": {"pods": options.steady_pods, **{name: medians(runs) for name, runs in slow.items()}},
        }  # fmt: skip
        rate = {name: result["bursts"][name]["pods_per_s"]["median"] for name in names}
        result["ratios"] = {f"ours_to_{other}": round(rate["ours"] / rate[other], 3) for other in names if other != "ours"}
        for name in ("ours_grouped", "ours_whole"):
            result["ratios"][f"{name}_to_null_binder"] = round(rate[name] / rate["null_binder"], 3)
        cpu = {name: result["bursts"][name]["cpu_ms_per_pod"]["median"] for name in names}
        result["ratios"]["cpu_of_ours_grouped_to_null_binder"] = round(cpu["ours_grouped"] / cpu["null_binder"], 3)
        return result


def goals(result: dict[str, Any]) -> list[Goal]:
    """They hold on the real server; figures on the embedded one do not stand in for it."""
    ours, slow = result["bursts"]["ours"], result["latency_20_per_s"]["ours_whole"]
    values = {
        "bare pods: rate to the null binder's": result["ratios"]["ours_to_null_binder"],
        "one PodGroup with events: rate to the null binder's": result["ratios"]["ours_grouped_to_null_binder"],
        "one PodGroup with events: CPU to the null binder's": result["ratios"]["cpu_of_ours_grouped_to_null_binder"],
        "PodGroups by our controller: rate to the null binder's": result["ratios"]["ours_whole_to_null_binder"],
        "scheduler CPU a pod": ours["cpu_ms_per_pod"]["median"],
        "resident at most": max(entry["peak_rss_mib"]["max"] for name, entry in result["bursts"].items()
                                if name.startswith("ours")),
        "created to bound p50 at 20 pods/s": slow["p50_ms"]["median"],
        "created to bound p99 at 20 pods/s": slow["p99_ms"]["median"],
    }  # fmt: skip
    if "ours_to_kube_scheduler" in result["ratios"]:
        values["bare pods: rate to kube-scheduler's"] = result["ratios"]["ours_to_kube_scheduler"]
    return goals_of("bs2_end_to_end", values)


def main(argv: list[str] | None = None) -> int:
    options = options_of(__doc__, argv, nodes=1000, pods=5000, repeats=4)
    result = asyncio.run(run(options))
    return conclude(f"bs2_end_to_end_{options.server}", result, goals(result), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
