"""The NVIDIA device plugin's answer to the kubelet: GetPreferredAllocation and Allocate over the real gRPC socket.

    python -m benchmarks.node_allocate [--quick] [--save]

The cards are an emulated machine's by NVML, the API server is in memory, so the figures are the plugin's own: what a container
start waits for beside the API server. The kubelet admits one pod after the other, as the real one does, and every answer is
compared with what the scheduler wrote: alone; with 200 pods pending on the node and 5,000 in the cluster; 100 pods at once, ten
times; the same while the API server refuses, hangs up and is away for a second and a half. Pods are not listed meanwhile. At last
the plugin as a process of its own, on an API server over HTTP and with nothing to do.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml
from kit.control_plane import Api, control_plane
from kit.fake_cluster import FakeCluster
from kit.machines import cards_of
from kit.manifests import token_of
from kit.node_objects import NODE, container, gives, pod_object
from kit.node_world import FakeKubelet, node_cluster
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.nvml import NvmlCards
from pumice.apps.service.http import read_process
from pumice.devices.nvidia_vgpu.node.sharing import Flags
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError
from pumice.wire import names
from pumice_lab.kubelet.proto import services
from pumice_lab.machine import library_dir

MINUTES = 3
MACHINE = "8xTesla-V100-SXM2-32GB"
SPLIT = 40
KEPT = 60
CORES = 2
CLUSTER = 5000
PENDING = 200
BURST = 100
OUTAGE = 1.5
"""Seconds; Allocate waits for two."""
IDLE_SECONDS = 30.0


@dataclass
class Times:
    """Milliseconds of each call."""

    prefer: list[float] = field(default_factory=list)
    allocate: list[float] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        both = [prefer + allocate for prefer, allocate in zip(self.prefer, self.allocate, strict=True)]
        return {"prefer_ms": spread(self.prefer), "allocate_ms": spread(self.allocate), "together_ms": spread(both)}


class Node:
    """One node with its plugin; pods come and go, and every answer is compared with what the pod was given."""

    def __init__(self, cluster: FakeCluster, stub: Any, uuids: Sequence[str], units: set[str], hook: Path) -> None:
        self.cluster, self.stub, self.uuids, self.hook = cluster, stub, uuids, hook
        self.free = units
        self.served: deque[tuple[str, list[str]]] = deque()
        self.count = self.answers = 0

    def place(self) -> tuple[str, str, int]:
        """One pod of one vGPU, as the scheduler has placed it: its name, card and memory."""
        number, self.count = self.count, self.count + 1
        name, uuid, memory = f"pod-{number}", self.uuids[number % len(self.uuids)], 200 + number % 200
        pod = pod_object(name, gives(uuid, memory, CORES), container("train", 1, memory, CORES), time=1760000000 + number)
        self.cluster.put(pod)
        return name, uuid, memory

    async def admit(self, pod: tuple[str, str, int], times: Times) -> None:
        """The kubelet asks for its devices. Raises what would be an UnexpectedAdmissionError."""
        name, uuid, memory = pod
        began = time.perf_counter()
        requested = pb.ContainerPreferredAllocationRequest(available_deviceIDs=sorted(self.free), allocation_size=1)
        preferred = await self.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[requested]))
        between = time.perf_counter()
        ids = list(preferred.container_responses[0].deviceIDs)
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer = (await self.stub.Allocate(request)).container_responses[0]
        ended = time.perf_counter()
        times.prefer.append((between - began) * 1000)
        times.allocate.append((ended - between) * 1000)
        self.check(name, uuid, memory, ids, answer)
        self.free -= set(ids)
        self.served.append((name, ids))
        self.cluster.change("pods", name, {"status": {"phase": "Running"}})

    def leave(self, kept: int) -> None:
        """All but the last so many pods go."""
        while len(self.served) > kept:
            name, ids = self.served.popleft()
            self.cluster.remove("pods", name)
            self.free |= set(ids)

    def check(self, name: str, uuid: str, memory: int, ids: list[str], answer: Any) -> None:
        assert len(ids) == 1, ids
        assert ids[0] in self.free, f"{name}: {ids[0]} is somebody else's"
        env = dict(answer.envs)
        assert env["NVIDIA_VISIBLE_DEVICES"] == uuid, (name, env)
        assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{memory}m", (name, env)
        assert env["CUDA_DEVICE_SM_LIMIT"] == str(CORES), (name, env)
        mounts = {mount.container_path: mount.host_path for mount in answer.mounts}
        link = Path(mounts["/tmp/vgpu"])  # by guess: dangling until the owner is known
        assert link.parent.name == "to", (name, mounts)
        assert link.parents[2] == self.hook / "vgpu/answers", (name, mounts)
        assert self.cluster.notes("pods", name)[names.BIND_PHASE] == "success", name
        self.answers += 1


class Lists:
    """Counts the lists of pods that reach the API server. A gate."""

    def __init__(self) -> None:
        self.seen = 0

    async def __call__(self, verb: str, path: str) -> None:
        self.seen += verb == "GET" and path.split("?")[0].endswith("/pods")


class Faults:
    """An API server that is away until a moment, and afterwards is slow or refuses one request of eight. A gate."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.until, self.refused = rng, 0.0, 0

    async def __call__(self, verb: str, path: str) -> None:
        if time.monotonic() < self.until or self.rng.random() < 1 / 8:
            self.refused += 1
            raise ApiError(503, "ServiceUnavailable", "away")
        await asyncio.sleep(self.rng.choice((0, 0, 0, 0.005, 0.03)))


async def one_by_one(node: Node, pods: int) -> Times:
    times = Times()
    for _ in range(pods):
        await node.admit(node.place(), times)
        node.leave(KEPT)
    return times


async def in_a_crowd(node: Node, pods: int) -> Times:
    """So many wait on the node while each of them is admitted in turn; another one comes for each."""
    times, waiting = Times(), deque(node.place() for _ in range(PENDING))
    for _ in range(pods):
        await node.admit(waiting.popleft(), times)
        waiting.append(node.place())
        node.leave(20)
    for pod in waiting:
        await node.admit(pod, Times())
        node.leave(20)
    return times


async def at_once(node: Node, rounds: int) -> Times:
    times = Times()
    for _ in range(rounds):
        node.leave(0)
        for pod in [node.place() for _ in range(BURST)]:
            await node.admit(pod, times)
    return times


async def under_faults(node: Node, rounds: int) -> dict[str, Any]:
    """The same; a scheduler that locks the node has locked it each time. Whoever is refused is counted."""
    faults = Faults(random.Random(1))
    node.cluster.gate = faults
    refused: list[str] = []
    locks = 0
    for _ in range(rounds):
        node.leave(0)
        node.cluster.change("nodes", NODE, {"metadata": {"annotations": {names.NODE_LOCK_VGPU: "2026-08-20T10:00:00Z"}}})
        faults.until = time.monotonic() + OUTAGE
        node.cluster.hang_up(forget=True)
        for place, pod in enumerate([node.place() for _ in range(BURST)]):
            if place % 25 == 24:
                node.cluster.hang_up()
            try:
                await node.admit(pod, Times())
            except grpc.aio.AioRpcError as error:
                refused.append(str(error.details()))
                node.cluster.remove("pods", pod[0])
        try:
            await node.cluster.until(lambda: names.NODE_LOCK_VGPU not in node.cluster.notes("nodes", NODE), timeout=10)
        except TimeoutError:
            locks += 1
    return {"pods": rounds * BURST, "refused": len(refused), "why": refused[:3], "locks_left": locks,
            "requests_refused": faults.refused}  # fmt: skip


@asynccontextmanager
async def plugin(root: Path, cards: NvmlCards, cluster: FakeCluster) -> AsyncIterator[tuple[Node, float]]:
    """The node with its plugin, and after how many seconds the kubelet had its list."""
    (root / "lib.so").write_bytes(b"\x7fELF")
    kubelet = FakeKubelet(root)
    settings = vgpu_plugin.Settings(
        NODE, device_plugin_dir=root, hook_path=root / "hook", lock_dir=root / "lock", library=root / "lib.so",
        node_config=root / "none.json", flags=Flags(split=SPLIT),
    )  # fmt: skip
    uuids = [card.uuid for card in cards.facts()]
    await kubelet.start()
    stop = asyncio.Event()
    began = time.perf_counter()
    task = asyncio.create_task(
        vgpu_plugin.run(settings, cluster=cluster, clock=SystemClock(), rng=random.Random(1), stop=stop, cards=cards)
    )
    try:
        units = await kubelet.until(names.VGPU_NUMBER, lambda units: len(units) == SPLIT * len(uuids))
        listed = time.perf_counter() - began
        socket = f"unix://{root / 'nvidia-vgpu-number.sock'}"
        async with grpc.aio.insecure_channel(socket, options=[("grpc.default_authority", "localhost")]) as channel:
            yield Node(cluster, services.client(channel, pb, "DevicePlugin"), uuids, set(units), root / "hook"), listed
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)
        await kubelet.stop()


async def measure(root: Path, cards: NvmlCards, *, part: int) -> dict[str, Any]:
    """All stories but the idle one; a ``part`` of each is played."""
    cluster = node_cluster()
    async with plugin(root, cards, cluster) as (node, listed):
        alone = await one_by_one(node, 300 // part)
        elsewhere = container("train", 1, 1000)
        cluster.put(*(pod_object(f"else-{i}", gives("GPU-x"), elsewhere, node=f"node-{i % 500}", phase="Running")
                      for i in range(CLUSTER)))  # fmt: skip
        gc.collect()
        gc.freeze()  # the API server's objects are not the plugin's to walk
        lists = cluster.gate = Lists()
        node.leave(0)
        crowd, burst = await in_a_crowd(node, 600 // part), await at_once(node, 10 // part)
        faulty = await under_faults(node, 10 // part)
    return {
        "machine": MACHINE, "start_to_listed_ms": round(listed * 1000, 1),
        "one_by_one": alone.plain(), "in_a_crowd": crowd.plain(), "at_once": burst.plain(),
        "lists_of_pods": lists.seen, "under_faults": faulty, "answers_checked": node.answers,
    }  # fmt: skip


def idle(root: Path, seconds: float) -> dict[str, Any]:
    """The memory and CPU of an idle plugin with eight cards."""
    from pumice_lab.machine import create, machine_of

    root.mkdir()
    create(machine_of(MACHINE, name=NODE), root / "machine").close()
    (root / "dp").mkdir()
    with control_plane("embedded", root / "api") as api:
        api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        (root / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(api)))
        return asyncio.run(watched(root, seconds))


def kubeconfig(api: Api) -> dict[str, Any]:
    token = token_of(api, "volcano-vgpu-device-plugin.yml", "volcano-device-plugin")
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"token": token}}],
        "clusters": [{"name": "c", "cluster": {"server": api.url, "certificate-authority": str(api.ca)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip


async def watched(root: Path, seconds: float) -> dict[str, Any]:
    kubelet = FakeKubelet(root / "dp")
    await kubelet.start()
    words = ["device-plugin", "nvidia", "--node-name", NODE, "--kubeconfig", root / "kubeconfig", "--hook-path", root / "hook",
             "--kubelet-socket", root / "dp/kubelet.sock", "--lock-dir", root / "lock"]  # fmt: skip
    environment = {**os.environ, "PUMICE_MACHINE": str(root / "machine"), "PUMICE_NVML": str(library_dir())}
    with open(root / "plugin.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "pumice", *map(str, words)], env=environment, stdout=log, stderr=log)
    try:
        await kubelet.until(names.VGPU_NUMBER, lambda units: len(units) == 80)
        await asyncio.sleep(5)  # what a start leaves to do
        place = Path(f"/proc/{process.pid}")
        before, began = read_process(place), time.monotonic()
        await asyncio.sleep(seconds)
        after = read_process(place)
        assert before is not None, (root / "plugin.log").read_text()
        assert after is not None
        share = (after.cpu_seconds - before.cpu_seconds) / (time.monotonic() - began)
        return {"seconds": seconds, "resident_mib": round(after.resident / 2**20, 1), "percent_of_a_core": round(share * 100, 2)}
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)
        await kubelet.stop()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, range, and the nearest-rank 95th and 99th of a hundred."""
    ordered = sorted(values)
    high = {f"p{part}": round(ordered[math.ceil(len(ordered) * part / 100) - 1], 3) for part in (95, 99)}
    return median(values) | high


def main() -> int:
    parser = arguments(__doc__, quick="a tenth of it")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="pumice") as folder:
        with cards_of(MACHINE) as (_, cards):
            result = asyncio.run(measure(Path(folder), cards, part=10 if options.quick else 1))
        result["idle"] = idle(Path(folder) / "i", IDLE_SECONDS / (10 if options.quick else 1))
    goals = goals_of("node_allocate", {
        "registered and listed": result["start_to_listed_ms"],
        "one by one: Allocate p99": result["one_by_one"]["allocate_ms"]["p99"],
        "200 pending on the node, 5,000 in the cluster: Allocate p99": result["in_a_crowd"]["allocate_ms"]["p99"],
        "100 at once: Allocate p99": result["at_once"]["allocate_ms"]["p99"],
        "lists of pods meanwhile": result["lists_of_pods"],
        "under faults: pods refused": result["under_faults"]["refused"],
        "under faults: locks left": result["under_faults"]["locks_left"],
        "idle: resident memory": result["idle"]["resident_mib"],
        "idle: of a core": result["idle"]["percent_of_a_core"],
    })  # fmt: skip
    return conclude("node_allocate", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
