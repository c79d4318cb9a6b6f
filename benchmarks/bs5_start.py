"""BS5: a cold start with many nodes and bound pods, a kill in the middle of a burst, and the cost of idling.

    python -m benchmarks.bs5_start [--nodes 5000] [--pods 50000] [--repeats 5] [--quick] [--save]

The static list server (benchmarks/static_server.py, a process of its own) serves the lists from ready bytes and then watches
with 50 node heartbeats a second. The first right decision is the Binding of the one pending pod, which has one right place: the
node and card that the bound pods leave half filled. Seconds by phase: ``import`` until the first request, ``lists`` from there
until the last page of the pods is sent (pages are indexed while the next ones come), ``decide`` from there until the Binding is
received. ``kill``: a scheduler is killed in the middle of a burst of pending pods and another one finishes; the server refuses
a second Binding of a pod and ends when a card is over its memory.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

from kit.results import arguments

from benchmarks.daemon import static_server
from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from benchmarks.static_server import CARDS, SHARES, Store

MINUTES = 4
BURST = 1000


async def cold_start(nodes: int, pods: int, idle_seconds: float) -> dict[str, float]:
    """One start. Fails when the first decision is a wrong one, or comes before everything was listed."""
    async with static_server(nodes, pods) as server:
        daemon = await server.start_scheduler()
        try:
            first = (await server.hear("first_request"))["at"]
            listed = (await server.hear("last_page"))["at"]  # a Binding before this would have been passed over, and missed
            binding = await server.hear("bound")
            expected = f"n{pods // SHARES // CARDS:05d}"
            assert binding["node"] == expected, (binding, expected)
            assert binding["bound"] == 1, "decided before everything was listed"
            starting = daemon.cpu()
            await asyncio.sleep(2)
            resident, peak = daemon.memory(), daemon.memory("VmHWM")
            cpu, began = daemon.cpu(), time.monotonic()
            await asyncio.sleep(idle_seconds)
            idle = (daemon.cpu() - cpu) / (time.monotonic() - began)
        finally:
            await daemon.kill()
    return {
        "first_decision_s": binding["at"] - daemon.began, "import_s": first - daemon.began, "lists_s": listed - first,
        "decide_s": binding["at"] - listed, "cpu_s": starting, "resident_mib": resident, "peak_mib": peak,
        "idle_core_percent": idle * 100,
    }  # fmt: skip


async def killed(nodes: int, pods: int) -> dict[str, Any]:
    """kill -9 in the middle of a burst, a second scheduler finishes it. The server checks every Binding."""
    async with static_server(nodes, pods, pending=BURST) as server:
        first = await server.start_scheduler()
        said = await server.hear("bound")
        while said["bound"] < BURST // 3:
            said = await server.hear("bound")
        await first.kill()
        second = await server.start_scheduler()
        names = {said["name"]}
        try:
            while said["bound"] < BURST:
                said = await server.hear("bound")
                assert said["name"] not in names, f"{said['name']} was bound twice"
                names.add(said["name"])
        finally:
            await second.kill()
    return {"burst": BURST, "bound": said["bound"], "double_allocations": 0}


def phases(nodes: int, pods: int) -> dict[str, float]:
    """Seconds of processor time in this process, without network: reading the bytes, indexing, the first cycle."""
    from benchmarks.rescan import EVERYTHING
    from pumice.adapters.kube.watch import form_of
    from pumice.scheduler.engine import Engine
    from pumice.wire.objects import Node, Pod, decode
    from pumice.wire.scheduler_conf import parse_scheduler_conf
    from pumice.wire.volcano import Queue

    store = Store(nodes, pods, 1, 0)
    engine = Engine(parse_scheduler_conf(EVERYTHING))
    for raw in store.ready["queues"]:
        engine.state.groups.put_queue(decode(Queue, raw))
    taken: dict[str, float] = {}
    gc.collect()
    gc.freeze()
    gc.disable()
    for name, kind, put in (("nodes", Node, engine.state.bookings.put_node), ("pods", Pod, engine.state.pods.put)):
        reading = indexing = 0.0
        for start in range(0, len(store.ready[name]), 1000):
            page = b'{"items":[%s]}' % b",".join(store.ready[name][start : start + 1000])
            began = time.process_time()
            objects = [obj for _, _, obj in form_of(kind).page(page).entries]
            read = time.process_time()
            for obj in objects:
                put(obj)
            reading, indexing = reading + read - began, indexing + time.process_time() - read
        taken |= {f"read_{name}_s": round(reading, 2), f"index_{name}_s": round(indexing, 2)}
    began = time.process_time()
    engine.cycle(1.0)
    taken["first_cycle_s"] = round(time.process_time() - began, 3)
    gc.enable()
    return taken


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="one start with a tenth of everything, two seconds of idling")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20, help="seconds of idling that are measured, each time")
    given = parser.parse_args(argv)
    if given.quick:
        given.nodes, given.pods, given.repeats, given.idle = given.nodes // 10, given.pods // 10, 1, 2
    runs = [asyncio.run(cold_start(given.nodes, given.pods, given.idle)) for _ in range(given.repeats)]
    start = {name: median([run[name] for run in runs], 2) for name in runs[0]}
    result = {
        "server": "static list server (benchmarks/static_server.py), loopback", "nodes": given.nodes, "bound_pods": given.pods,
        "start": start, "cpu_by_phase": phases(given.nodes, given.pods),
        "kill": asyncio.run(killed(given.nodes, given.pods)), "placements_before_ready": 0,
    }  # fmt: skip
    goals = goals_of("bs5_start", {
        "start to the first right decision": start["first_decision_s"]["median"],
        "resident then": start["resident_mib"]["median"],
        "idle with 50 heartbeats a second": start["idle_core_percent"]["median"],
    })  # fmt: skip
    return conclude("bs5_start", result, goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
