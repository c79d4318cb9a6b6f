"""BS5 and BS6: a cold start with many nodes and bound pods, memory then and after many pods, and the cost of idling.

    python -m benchmarks.bs5_start [--nodes 5000] [--pods 50000] [--lives 200000] [--quick] [--save]

A static server on loopback (aiohttp, a process of its own) serves the lists from ready bytes and then watches that carry node
heartbeats; it is no API server and says so in the result. The first right decision is the Binding of the one pending pod, which
fits on the one card that the bound pods leave free. ``growth`` feeds synthetic pod lives through the engine in process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.kit.objects import node, pod, queue

from benchmarks.bs1_decide import EVERYTHING
from benchmarks.report import median, save

LISTS = {
    "/api/v1/nodes": "nodes", "/api/v1/pods": "pods",
    "/apis/scheduling.volcano.sh/v1beta1/queues": "queues",
}  # fmt: skip
MIB, SHARES = 81920, 10


def bound_pod(index: int, node_index: int, card: int) -> dict[str, Any]:
    """A running pod of 8,000 MiB with the annotations that the scheduler and the node plugin leave, and managedFields."""
    where, uuid = f"n{node_index:05d}", f"GPU-n{node_index:05d}-{card}"
    ids = f"{uuid},NVIDIA,8000,10:"
    obj = pod(f"running-{index}", mib=8000, cores=10, cards=1, cpu="500m", memory="1Gi", nodeName=where, annotations={
        "volcano.sh/vgpu-node": where, "volcano.sh/vgpu-time": "1", "volcano.sh/vgpu-ids-new": ids,
        "volcano.sh/devices-to-allocate": ids, "volcano.sh/bind-phase": "success", "volcano.sh/bind-time": "1",
        "scheduling.k8s.io/group-name": f"podgroup-{index}"})  # fmt: skip
    obj["metadata"]["resourceVersion"] = str(index + 10)
    obj["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {
        f"f:field-{n}": {"f:inner": {}, "f:other": {}} for n in range(40)}}]  # fmt: skip
    obj["status"] = {"phase": "Running", "conditions": [{"type": t, "status": "True"} for t in ("Ready", "PodScheduled")]}
    return obj


def pages(objects: list[dict[str, Any]], size: int = 2000) -> list[bytes]:
    """A list in pages, as kube-apiserver serves it to clients that ask for them."""
    found = []
    for start in range(0, max(1, len(objects)), size):
        metadata = {"resourceVersion": "1000000"}
        if start + size < len(objects):
            metadata["continue"] = str(len(found) + 1)
        found.append(json.dumps({"kind": "List", "metadata": metadata, "items": objects[start : start + size]}).encode())
    return found


async def serve(port: int, nodes: int, pods: int, beats: float) -> None:
    """The static server. Prints the moment of every Binding to stdout."""
    node_objects = [node(f"n{i:05d}", cards=8, mib=MIB, cpu="192", memory="1536Gi") for i in range(nodes)]
    for number, obj in enumerate(node_objects):
        obj["metadata"]["resourceVersion"] = str(number + 10)
    cards = [(i, c) for i in range(nodes) for c in range(8)]
    # Nodes fill in order; binpack's best card for the newcomer is the last, half-filled one.
    running = [bound_pod(index, *cards[index // SHARES]) for index in range(pods)]
    pending = pod("newcomer", mib=8000, cores=10, cards=1)
    pending["metadata"]["resourceVersion"] = "999999"
    tables = {
        "nodes": pages(node_objects), "pods": pages([*running, pending]),
        "queues": pages([queue("default"), queue("root")]), "": pages([]),
    }  # fmt: skip

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            if request.path.endswith("/binding"):
                body = await request.json()
                print(json.dumps({"at": time.time(), "node": body["target"]["name"]}), flush=True)
            return web.json_response({"kind": "Status", "status": "Success", "metadata": {}}, status=201)
        if request.method != "GET":
            return web.json_response({"metadata": {}})
        table = LISTS.get(request.path, "")
        if "watch" not in request.query:
            page = int(request.query.get("continue", "0"))
            return web.Response(body=tables[table][page], content_type="application/json")
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        number = 0
        while True:
            await asyncio.sleep(1 / beats if table == "nodes" else 30)
            if table == "nodes":
                obj = node_objects[number % nodes]
                number += 1
                obj["metadata"]["resourceVersion"] = str(1_000_000 + number)
                obj["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": str(number)}]
                event = {"type": "MODIFIED", "object": obj}
            else:
                event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(1_000_000 + number)}}}
            await stream.write(json.dumps(event).encode() + b"\n")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.Event().wait()


async def cold_start(nodes: int, pods: int, idle_seconds: float) -> dict[str, Any]:
    code = f"import asyncio; from benchmarks.bs5_start import serve; asyncio.run(serve(0, {nodes}, {pods}, 50))"
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    port = json.loads(await server.stdout.readline())["port"]
    with tempfile.TemporaryDirectory() as place:
        conf, kubeconfig = Path(place) / "conf", Path(place) / "kubeconfig"
        conf.write_text(EVERYTHING)
        kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "x", "user": {"token": "t"}}]}))  # fmt: skip
        began = time.time()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pumice", "scheduler", "--kubeconfig", str(kubeconfig), "--scheduler-conf", str(conf),
            "--listen-address", "127.0.0.1:0", stderr=(Path(place) / "log").open("w"),
        )  # fmt: skip
        try:
            binding = json.loads(await asyncio.wait_for(server.stdout.readline(), 120))
            expected = f"n{(pods - 1) // SHARES // 8:05d}" if pods % SHARES else f"n{pods // SHARES // 8:05d}"
            assert binding["node"] == expected, (binding, expected)
            starting = cpu_of(child.pid)
            await asyncio.sleep(2)
            peak, resident = memory(child.pid, "VmHWM"), memory(child.pid, "VmRSS")
            cpu = cpu_of(child.pid)
            await asyncio.sleep(idle_seconds)
            idle = (cpu_of(child.pid) - cpu) / idle_seconds
        finally:
            for process in (child, server):
                process.terminate()
                await process.wait()
    return {"server": "static aiohttp server", "nodes": nodes, "bound_pods": pods,
            "first_decision_s": round(binding["at"] - began, 2),
            "first_decision_cpu_s": round(starting, 2), "resident_mib": resident, "peak_mib": peak,
            "idle_core_percent_at_50_heartbeats_per_s": round(idle * 100, 2)}  # fmt: skip


def memory(pid: int, field: str) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return round(int(next(line.split()[1] for line in text.splitlines() if line.startswith(field))) / 1024, 1)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growth(lives: int) -> dict[str, Any]:
    """Pods that come, are bound, run and go, through one engine; resident memory before and after."""
    from tests.kit.engine_world import World

    from pumice.engine.effects import Bind
    from pumice.wire.objects import Pod, convert

    world = World(EVERYTHING)
    world.add(*(node(f"n{i}", cards=8, mib=MIB, cpu="192", memory="1536Gi", pods=1000) for i in range(20)))
    state, engine = world.engine.state, world.engine

    def live(start: int, count: int) -> None:
        batch = 500
        for first in range(start, start + count, batch):
            objects = {}
            for i in range(first, first + batch):
                obj = pod(f"p{i}", mib=1000 + i % 2000, cores=1 + i % 9, cards=1, cpu="100m")
                obj["metadata"]["resourceVersion"] = str(10 * i + 1)
                objects[obj["metadata"]["uid"]] = obj
                state.put_pod(convert(Pod, obj), world.now)
            world.now += 1.0
            for effect in engine.cycle(world.now).effects:
                if isinstance(effect, Bind):
                    obj = objects[effect.uid]
                    obj["spec"]["nodeName"] = effect.node
                    obj["metadata"]["annotations"].update(effect.annotations)
                    obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)
                    obj["status"] = {"phase": "Running"}
                    engine.bound(effect.uid)
                    state.put_pod(convert(Pod, obj), world.now)
            for obj in objects.values():
                state.drop_pod(convert(Pod, obj))

    def measure(step: Callable[[], None]) -> float:
        step()
        gc.collect()
        return memory(os.getpid(), "VmRSS")

    before = measure(lambda: live(0, 20_000))
    after = measure(lambda: live(20_000, lives))
    assert not state.tasks, "every pod is gone"
    assert not state.ledger.holdings
    return {"lives": lives, "rss_before_mib": before, "rss_after_mib": after,
            "growth_percent": round((after - before) / before * 100, 2)}  # fmt: skip


def metrics_page() -> dict[str, Any]:
    """The scheduler's page at 400 nodes of 8 cards with 12,800 pods: the first time, and when nothing changed."""
    from pumice.apps.scheduler_metrics import SchedulerMetrics
    from pumice.engine.engine import Engine
    from pumice.wire.objects import Node, Pod, convert
    from pumice.wire.scheduler_conf import parse_scheduler_conf

    engine = Engine(parse_scheduler_conf(EVERYTHING))
    for i in range(400):
        engine.state.put_node(convert(Node, node(f"n{i:05d}", cards=8, mib=MIB, cpu="192", memory="1536Gi")))
    for i in range(12800):
        engine.state.put_pod(convert(Pod, bound_pod(i, i // 32, (i // 4) % 8)))
    metrics = SchedulerMetrics(engine)
    taken = []
    for _ in range(6):
        began = time.perf_counter()
        page = metrics.page()
        taken.append((time.perf_counter() - began) * 1000)
    assert page.count(b"volcano_vgpu_device_core_allocation_for_a_certain_pod{") == 12800
    return {"first_ms": round(taken[0], 1), "again_ms": median(taken[1:], 1), "kib": len(page) // 1024}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50000)
    parser.add_argument("--lives", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args(argv)
    if options.quick:
        options.lives = min(options.lives, 40_000)
    result = {"start": asyncio.run(cold_start(options.nodes, options.pods, 5 if options.quick else 30)),
              "growth": growth(options.lives), "metrics_page": metrics_page(),
              "goals": {"first_decision_s": 4, "resident_mib": 250, "idle_percent": 2, "growth_percent": 2,
                        "metrics_page_ms": 50}}  # fmt: skip
    save("bs5_start", result, keep=options.save)


if __name__ == "__main__":
    main()
