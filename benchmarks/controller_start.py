"""A cold start of the controller with many Jobs: until it makes the one pod that is missing.

    python -m benchmarks.controller_start [--jobs 5000] [--pods 50000] [--repeats 5] [--quick] [--save]

The static list server (benchmarks/static_server.py, a process of its own) serves Jobs, PodGroups and pods as a controller
has left them, but for one pod of the last Job. The first write must be the creation of that pod, and all else is right as
it is: any other write within the next moment fails the run. Seconds by phase: ``import`` until the first request, ``lists``
from there until the last page of pods is sent, ``decide`` from there until the pod is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from kit.results import arguments

from benchmarks.daemon import static_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude, median

MINUTES = 2


async def cold_start(jobs: int, pods: int) -> dict[str, float]:
    missing = f"job-{jobs - 1}-main-{pods // jobs - 1}"
    async with static_server(1, pods, pending=0, jobs=jobs) as server:
        daemon = await server.start_controller()
        try:
            first = (await server.hear("first_request"))["at"]
            listed = (await server.hear("last_page"))["at"]
            made = await server.hear("write")
            assert (made["write"], made["name"]) == ("POST /api/v1/namespaces/default/pods", missing), made
            cpu = daemon.cpu()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    while True:
                        other = (await server.hear("write"))["write"]
                        assert other.endswith(f"/jobs/job-{jobs - 1}/status"), other
            resident = daemon.memory()
        finally:
            await daemon.kill()
    return {"first_pod_s": made["at"] - daemon.began, "import_s": first - daemon.began, "lists_s": listed - first,
            "decide_s": made["at"] - listed, "cpu_s": cpu, "resident_mib": resident}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="one start with a tenth of everything")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    if given.quick:
        given.repeats, given.jobs, given.pods = 1, given.jobs // 10, given.pods // 10
    runs = [asyncio.run(cold_start(given.jobs, given.pods)) for _ in range(given.repeats)]
    start = {name: median([run[name] for run in runs], 2) for name in runs[0]}
    result = {"server": "static list server (benchmarks/static_server.py), loopback", "jobs": given.jobs, "pods": given.pods,
              "start": start}  # fmt: skip
    goals = goals_of("controller_start", {
        "start to the pod that is missing": start["first_pod_s"]["median"], "resident then": start["resident_mib"]["median"],
    })  # fmt: skip
    return conclude("controller_start", result, goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
