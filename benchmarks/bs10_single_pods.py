"""BS10, single bare pods: what each costs and how long it waits, beside kube-scheduler in the same run.

    python -m benchmarks.bs10_single_pods [--server auto|kube|embedded] [--nodes N] [--repeats N] [--quick] [--save]

Pods that name no PodGroup arrive at a steady 20, 50 and 100 a second. Ours is ``pumice scheduler``, which names PodGroups in
Bindings, with ``pumice controller`` beside it, which makes them; conditions, events and the status of queues are on. By turns the
real kube-scheduler places the same pods on the same server. The delay goes from a create answered to its Binding answered, by the
server's clock; processor time is the scheduler's own, and the API server's with all that is written later. Without the real one's
binaries only ours is measured.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.end_to_end.contenders import Contender, KubeScheduler, OursWhole
from benchmarks.end_to_end.load import check, clean, prepare
from benchmarks.end_to_end.measures import Figures, one_burst, percentiles, settled, steady
from benchmarks.end_to_end.options import Options, medians, options_of, progress
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude

RATES = (20, 50, 100)


async def one(server: Server, contender: Contender, rate: int, name: str, count: int) -> Figures:
    """One rate at a fresh process of this scheduler; everything is deleted afterwards."""
    async with contender as running:
        warm = await one_burst(server, running, f"{name}-warm", 50)
        await settled(server)
        running.mark()
        server.log.mark()
        before = server.cpu()
        found = percentiles(await steady(server, name, running.schedules, float(rate), count))
        await settled(server, quiet=3.0)  # the status of what stands waits for more of its kind
        found["cpu_ms_per_pod"] = running.cpu_since_mark() / count * 1000
        found["server_cpu_ms_per_pod"] = (server.cpu() - before) / count * 1000
        found["api_writes_per_pod"] = sum(server.log.writes[agent] for agent in running.agents) / count
    await check(server.kube, warm | {f"{name}-{i}" for i in range(count)}, cards=contender.chooses_cards)
    await clean(server.kube)
    return found


async def run(options: Options) -> dict[str, Any]:
    contenders: dict[str, type[Contender]] = {"ours": OursWhole}
    if options.server == "kube":
        contenders["kube-scheduler"] = KubeScheduler
    runs: dict[str, list[Figures]] = {f"{who} {rate}": [] for who in contenders for rate in RATES}
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        for index in range(options.repeats):
            for rate in RATES:
                for who, kind in contenders.items():
                    name = f"{who.partition('-')[0]}{rate}-{index}"
                    found = await one(server, kind(server), rate, name, options.steady_pods)
                    runs[f"{who} {rate}"].append(found)
                    progress(f"{who} {rate}/s", found)
        return {"api_server": server.name, "nodes": options.nodes, "pods": options.steady_pods,
                **{name: medians(found) for name, found in runs.items()}}  # fmt: skip


def figures(result: dict[str, Any]) -> dict[str, float]:
    """The measured values that have a goal."""
    found: dict[str, float] = {}
    for rate in RATES:
        ours, theirs = result[f"ours {rate}"], result.get(f"kube-scheduler {rate}")
        found[f"scheduler's processor time a pod at {rate} pods/s"] = ours["cpu_ms_per_pod"]["median"]
        if theirs is not None:
            for part, words in (("p50_ms", "p50"), ("p99_ms", "p99"), ("server_cpu_ms_per_pod", "API server's processor time")):
                found[f"{words} to kube-scheduler's at {rate} pods/s"] = ours[part]["median"] / theirs[part]["median"]
    return found


def main(argv: list[str] | None = None) -> int:
    options = options_of(__doc__, argv, nodes=100, pods=0, repeats=3)
    result = asyncio.run(run(options))
    goals = goals_of("bs10_single_pods", figures(result))
    return conclude(f"bs10_single_pods_{options.server}", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
