"""BS6: resident memory after a million pods have passed through, and what a bound pod costs.

    python -m benchmarks.bs6_memory [--lives 1000000] [--nodes 5000] [--pods 50000] [--quick] [--save]

The start of BS5, then that many pod lives through the real watch and real Bindings of a daemon process: the static
list server (benchmarks/static_server.py) keeps 300 pods on their way; each is created, bound by the scheduler, seen
running and deleted, and the next one comes. The server counts every Binding against its card and ends the run when
one is over; a life that does not come to its end leaves the run without its last word. ``kib_per_pod`` is the slope
of resident memory between 10,000 and 50,000 bound pods.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from kit.results import arguments

from benchmarks.daemon import Server, static_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude

MINUTES = 12


async def ready(server: Server, settle: float = 3.0) -> tuple[Any, float]:
    """A scheduler that has bound the newcomer (lives: its first pods), and its resident MiB a moment later."""
    daemon = await server.start_scheduler()
    await server.hear("last_page")
    await asyncio.sleep(settle)
    return daemon, daemon.memory()


async def resident(nodes: int, pods: int) -> float:
    async with static_server(nodes, pods) as server:
        daemon, found = await ready(server)
        await daemon.kill()
        return found


async def pass_through(nodes: int, pods: int, lives: int) -> dict[str, Any]:
    before = await resident(nodes, pods)
    async with static_server(nodes, pods, pending=0, lives=lives) as server:
        daemon = await server.start_scheduler()
        try:
            await server.hear("last_page")
            began, cpu = time.monotonic(), daemon.cpu()
            course = []
            said = {"lives": 0}
            while said["lives"] < lives:
                said = await server.hear("lives")
                course.append({"lives": said["lives"], "resident_mib": daemon.memory()})
            seconds, cpu = time.monotonic() - began, daemon.cpu() - cpu
            await asyncio.sleep(2)
            after = daemon.memory()
        finally:
            await daemon.kill()
    return {
        "lives": lives, "seconds": round(seconds, 1), "lives_per_s": round(lives / seconds),
        "cpu_us_per_life": round(cpu / lives * 1e6),
        "ready_mib": before, "end_mib": after, "growth_percent": growth(before, after),
        "growth_after_a_tenth_percent": growth(course[len(course) // 10]["resident_mib"], after), "course": course,
    }  # fmt: skip


def growth(before: float, after: float) -> float:
    return round((after - before) / before * 100, 2)


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="a tenth of the nodes and pods, 1,000 lives")
    parser.add_argument("--lives", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    given = parser.parse_args(argv)
    if given.quick:
        given.nodes, given.pods, given.lives = given.nodes // 10, given.pods // 10, 1000
    few, many = given.pods // 5, given.pods
    small, large = (asyncio.run(resident(given.nodes, pods)) for pods in (few, many))
    passed = asyncio.run(pass_through(given.nodes, given.pods, given.lives))
    result = {
        "server": "static list server (benchmarks/static_server.py), loopback", "nodes": given.nodes, "bound_pods": given.pods,
        "kib_per_pod": round((large - small) * 1024 / (many - few), 2), "resident_mib_with_a_fifth": small, "passed": passed,
    }  # fmt: skip
    goals = goals_of("bs6_memory", {"resident when ready": passed["ready_mib"],
                                    "growth over all lives": passed["growth_percent"]})  # fmt: skip
    return conclude("bs6_memory", result, goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
