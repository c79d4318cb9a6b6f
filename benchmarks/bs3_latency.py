"""BS3, latency: pods that come one by one to a large cluster which is at work already.

    python -m benchmarks.bs3_latency [--server auto|kube|embedded] [--nodes N] [--running N] [--repeats N] [--quick] [--save]

5,000 nodes of 8 cards hold 20,000 running pods; 20 pods a second arrive. The delay goes from a create answered to its Binding
answered, by the server's clock; PodGroups and events are on. At the end the whole store is checked.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.end_to_end.contenders import Ours
from benchmarks.end_to_end.load import check, preload, prepare
from benchmarks.end_to_end.measures import one_burst, percentiles, settled, steady
from benchmarks.end_to_end.options import Options, medians, options_of, progress
from benchmarks.end_to_end.server import api_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude

MINUTES = 3
RATE = 20.0


async def run(options: Options) -> dict[str, Any]:
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        await preload(server.kube, options.running, options.nodes)
        progress("prepared", {"nodes": options.nodes, "running": options.running})
        runs, every = [], []
        async with Ours(server) as scheduler:
            names = await one_burst(server, scheduler, "warm", 50)
            await settled(server)
            scheduler.mark()
            for index in range(options.repeats):
                delays = await steady(server, f"l{index}", scheduler.schedules, RATE, options.steady_pods)
                runs.append(percentiles(delays))
                every += delays
                progress(f"latency {index + 1}/{options.repeats}", runs[-1])
            count = options.repeats * options.steady_pods
            cpu, peak = scheduler.cpu_since_mark() / count * 1000, scheduler.peak_mib()
        names |= {f"l{index}-{i}" for index in range(options.repeats) for i in range(options.steady_pods)}
        await check(server.kube, names | {f"running-{i}" for i in range(options.running)})
        every.sort()
        return {
            "api_server": server.name, "nodes": options.nodes, "running": options.running,
            "start_s": round(scheduler.start_s, 2), "latency_20_per_s": {"pods": options.steady_pods, **medians(runs)},
            "p999_ms": round(every[int(count * 0.999)], 2), "cpu_ms_per_pod": round(cpu, 3), "peak_rss_mib": round(peak, 1),
        }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = options_of(__doc__, argv, nodes=5000, pods=0, running=20000, repeats=5)
    result = asyncio.run(run(options))
    found = result["latency_20_per_s"]
    goals = goals_of("bs3_latency", {"created to bound p50 at 20 pods/s": found["p50_ms"]["median"],
                                     "created to bound p99 at 20 pods/s": found["p99_ms"]["median"]})  # fmt: skip
    return conclude(f"bs3_latency_{options.server}", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
