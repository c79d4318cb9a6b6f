"""Everything together, from outside: time to ready, idle memory, one pod, and 1,000 pods on 100 hollow nodes.

    python -m benchmarks.backbone [--quick] [--save]

Goals: ready within 3 s; 160 MiB (PSS) idle in one process, 450 MiB as separate daemons; one pod created to running in
250 ms; 1,000 pods bound within 10 s of the first create, never a card over its memory, cores or shares (checked from the
objects alone).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.manifests import manifest, resource_of
from kit.node_objects import facts
from kit.results import arguments, save

from benchmarks.report import median
from pumice.adapters.kube import KubeClient
from pumice.audit.auditor import audit
from pumice.devices.nvidia_vgpu.node.inventory import hollow_node
from pumice.ports.cluster import Json
from pumice.wire.kinds import CONFIGMAPS, NODES, PODS
from pumice_lab.datadir import DataDir
from pumice_lab.machine import machine_of

PUMICE = [sys.executable, "-m", "pumice"]


def up(directory: Path, *arguments: str) -> float:
    """Seconds from the start of the command until it says ready."""
    began = time.monotonic()
    subprocess.run([*PUMICE, "up", "-d", "--emulated", "--data-dir", str(directory), *arguments], check=True,
                   capture_output=True, timeout=120)  # fmt: skip
    return time.monotonic() - began


def down(directory: Path) -> None:
    subprocess.run([*PUMICE, "down", "--data-dir", str(directory)], check=True, capture_output=True, timeout=60)


def pss_mib(pid: int) -> float:
    """Proportional memory of a process and its descendants, in MiB."""
    total = 0
    for process in [pid, *descendants(pid)]:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def descendants(pid: int) -> list[int]:
    children = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    return [d for child in children for d in (child, *descendants(child))]


def starting(directory: Path, runs: int) -> dict[str, Any]:
    """Each time a new data dir; then the same again, with the objects there."""
    fresh, again, memory = [], [], []
    for run in range(runs):
        place = directory / f"start-{run}"
        fresh.append(up(place))
        time.sleep(3)
        memory.append(pss_mib(int((DataDir(place).facts() or {})["pid"])))
        down(place)
        again.append(up(place))
        down(place)
    return {"up_fresh_s": median(fresh, 2), "up_again_s": median(again, 2), "idle_pss_mib": median(memory, 1)}


def separate_daemons(place: Path) -> dict[str, Any]:
    """Idle memory when scheduler, controller, device plugin and monitor are pods of their own, by our manifests."""
    up(place, "--bare")
    try:
        async def deploy() -> None:
            objects = [*manifest("volcano.yml"), *manifest("volcano-vgpu-device-plugin.yml")]
            daemons = sum(obj["kind"] in ("Deployment", "DaemonSet") for obj in objects)
            async with KubeClient.from_kubeconfig(DataDir(place).kubeconfig) as kube:
                for obj in objects:
                    await kube.create(resource_of(obj), obj)
                while [p["status"].get("phase") for p in (await kube.list(PODS))["items"]] != ["Running"] * daemons:
                    await asyncio.sleep(0.1)

        asyncio.run(asyncio.wait_for(deploy(), 60))
        time.sleep(5)
        return {"idle_pss_separate_daemons_mib": round(pss_mib(int((DataDir(place).facts() or {})["pid"])), 1)}
    finally:
        down(place)


def pod(name: str, memory: int, cores: int, command: list[str] | None = None) -> Json:
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory, "volcano.sh/vgpu-cores": cores}
    container = {"name": "c", "image": "any", "resources": {"limits": limits}, **({"command": command} if command else {})}
    return {"metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container]}}  # fmt: skip


async def one_pod(kube: KubeClient, count: int) -> dict[str, Any]:
    """Created to running, one after another, by the events of a watch on the client's side."""
    running: asyncio.Queue[str] = asyncio.Queue()

    async def look() -> None:
        async for event in kube.watch(PODS):
            obj = json.loads(event.raw or b"{}")
            if obj.get("status", {}).get("phase") == "Running":
                await running.put(obj["metadata"]["name"])

    watching = asyncio.create_task(look())
    await asyncio.sleep(0.5)
    taken = []
    for index in range(count):
        name = f"one-{index}"
        began = time.monotonic()
        await kube.create(PODS, pod(name, 1000, 10, ["sleep", "1000"]))
        while await asyncio.wait_for(running.get(), 20) != name:
            pass
        taken.append((time.monotonic() - began) * 1000)
        await kube.delete(PODS, name, "default", grace=0)
    watching.cancel()
    return {"pod_created_to_running_ms": median(taken, 1)}


async def burst(kube: KubeClient, nodes: int, pods: int) -> dict[str, Any]:
    """All pods at once on hollow nodes of eight 16 GiB cards; the audit looks at the objects only."""
    await kube.patch(NODES, "node-1", {"spec": {"unschedulable": True}})  # its pods would be processes, not figures
    cards = facts(machine_of("8xTesla-V100-SXM2-16GB").cards)
    for index in range(nodes):
        await kube.create(NODES, hollow_node(f"hollow-{index:03d}", [_of_node(card, index) for card in cards]))
    bound: set[str] = set()
    done = asyncio.Event()

    async def look() -> None:
        async for event in kube.watch(PODS):
            obj = json.loads(event.raw or b"{}")
            if obj.get("spec", {}).get("nodeName", "").startswith("hollow-"):
                bound.add(obj["metadata"]["name"])
                if len(bound) == pods:
                    done.set()

    watching = asyncio.create_task(look())
    await asyncio.sleep(1.0)
    writes_before = await api_writes(kube)
    began = time.monotonic()
    await asyncio.gather(*(kube.create(PODS, pod(f"burst-{index:04d}", 3000, 25)) for index in range(pods)))
    created = time.monotonic() - began
    await asyncio.wait_for(done.wait(), 120)
    seconds = time.monotonic() - began
    watching.cancel()
    await asyncio.sleep(2.0)
    writes = await api_writes(kube) - writes_before
    violations = audit((await kube.list(NODES))["items"], (await kube.list(PODS))["items"])
    assert not violations, violations[:3]
    return {"burst": {"nodes": nodes, "pods": pods, "all_created_s": round(created, 2), "all_bound_s": round(seconds, 2),
                      "pods_per_s": round(pods / seconds), "api_writes_per_pod": round(writes / pods, 2),
                      "audit": "clean"}}  # fmt: skip


def _of_node(card: Any, node: int) -> Any:
    return replace(card, uuid=f"{card.uuid[:-4]}{node:04x}")


async def api_writes(kube: KubeClient) -> int:
    """Writes so far: resource versions rise by one with each of them."""
    return int((await kube.list(CONFIGMAPS))["metadata"]["resourceVersion"])


async def with_client(directory: Path, *measures: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    async with KubeClient.from_kubeconfig(DataDir(directory).kubeconfig, connections=64) as kube:
        for measure in measures:
            result |= await measure(kube)
    return result


def main() -> None:
    parser = arguments(__doc__, quick="a fifth of the pods, one run of each")
    options = parser.parse_args()
    runs, single, nodes, pods = (1, 5, 20, 200) if options.quick else (5, 30, 100, 1000)
    directory = Path(tempfile.mkdtemp(prefix="pumice-bench-"))
    place = directory / "work"
    try:
        result = starting(directory, runs) | separate_daemons(directory / "separate")
        up(place)
        try:
            result |= asyncio.run(with_client(place, lambda k: one_pod(k, single), lambda k: burst(k, nodes, pods)))
        finally:
            down(place)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    save("backbone", result, keep=options.save)


if __name__ == "__main__":
    main()
