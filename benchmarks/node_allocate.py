"""The NVIDIA device plugin's answer to the kubelet: GetPreferredAllocation and Allocate over the real gRPC socket.

    python -m benchmarks.node_allocate [--quick] [--save]

The cards are an emulated machine's by NVML, the API server is in memory, so the figures are the plugin's own: what a container
start waits for beside the API server. Up to 60 served pods stay on the node, as on a full one. Goals: registered within 1 s,
Allocate within 15 ms at p99.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import random
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from kit.fake_cluster import FakeCluster
from kit.machines import cards_of
from kit.node_objects import NODE, container, gives, pod_object
from kit.node_world import FakeKubelet, node_cluster
from kit.results import save

from benchmarks.report import median
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.kubelet.proto import deviceplugin_pb2_grpc as rpc
from pumice.adapters.nvml import NvmlCards
from pumice.apps.node import vgpu_plugin
from pumice.ports.clock import SystemClock
from pumice.wire import names

MACHINE = "8xTesla-V100-SXM2-32GB"
SPLIT = 10  # shares of a card, upstream's default
KEPT = 60
CORES = 10


class Node:
    """One node with its plugin; pods come and go, and every answer is compared with what the pod was given."""

    def __init__(self, cluster: FakeCluster, stub: Any, uuids: Sequence[str], units: set[str], hook: Path) -> None:
        self.cluster, self.stub, self.uuids, self.hook = cluster, stub, uuids, hook
        self.free = units
        self.served: deque[tuple[str, list[str]]] = deque()
        self.prefer_ms: list[float] = []
        self.allocate_ms: list[float] = []

    async def admit(self, number: int) -> None:
        """One pod of one vGPU: the scheduler has placed it, the kubelet asks for its devices."""
        if len(self.served) == KEPT:
            name, ids = self.served.popleft()
            self.cluster.remove("pods", name)
            self.free |= set(ids)
        name, uuid, memory = f"pod-{number}", self.uuids[number % len(self.uuids)], 1000 + number
        pod = pod_object(name, gives(uuid, memory, CORES), container("train", 1, memory, CORES), time=1760000000 + number)
        self.cluster.put(pod)

        began = time.perf_counter()
        asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=sorted(self.free), allocation_size=1)
        preferred = await self.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[asked]))
        between = time.perf_counter()
        ids = list(preferred.container_responses[0].deviceIDs)
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer = (await self.stub.Allocate(request)).container_responses[0]
        ended = time.perf_counter()

        self.prefer_ms.append((between - began) * 1000)
        self.allocate_ms.append((ended - between) * 1000)
        self.check(name, uuid, memory, ids, answer)
        self.free -= set(ids)
        self.served.append((name, ids))
        self.cluster.change("pods", name, {"status": {"phase": "Running"}})

    def check(self, name: str, uuid: str, memory: int, ids: list[str], answer: Any) -> None:
        assert len(ids) == 1, ids
        assert ids[0] in self.free, f"{name}: {ids[0]} is somebody else's"
        assert ids[0].startswith(f"{uuid}-"), f"{name}: {ids[0]} is not of the card that the scheduler chose"
        env = dict(answer.envs)
        assert env["NVIDIA_VISIBLE_DEVICES"] == uuid, (name, env)
        assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{memory}m", (name, env)
        assert env["CUDA_DEVICE_SM_LIMIT"] == str(CORES), (name, env)
        mounts = {mount.container_path: mount.host_path for mount in answer.mounts}
        assert mounts["/tmp/vgpu"] == str(self.hook / f"vgpu/containers/uid-{name}_train"), (name, mounts)
        assert Path(mounts["/tmp/vgpu"]).is_dir(), name
        assert self.cluster.notes("pods", name)[names.BIND_PHASE] == "success", name


async def measure(root: Path, cards: NvmlCards, pods: int) -> dict[str, Any]:
    """Start the plugin, wait for its list, and admit one pod after another."""
    (root / "lib.so").write_bytes(b"\x7fELF")
    cluster, kubelet = node_cluster(), FakeKubelet(root)
    settings = vgpu_plugin.Settings(
        NODE, device_plugin_dir=root, hook_path=root / "hook", lock_dir=root / "lock", library=root / "lib.so",
        node_config=root / "none.json",
    )  # fmt: skip
    uuids = [card.uuid for card in cards.facts()]
    await kubelet.start()
    stop = asyncio.Event()
    began = time.perf_counter()
    plugin = asyncio.create_task(
        vgpu_plugin.run(settings, cluster=cluster, clock=SystemClock(), dice=random.Random(1), stop=stop, cards=cards)
    )
    try:
        units = await kubelet.until(names.VGPU_NUMBER, lambda units: len(units) == SPLIT * len(uuids))
        listed = time.perf_counter() - began
        socket = f"unix://{root / 'nvidia-vgpu-number.sock'}"
        async with grpc.aio.insecure_channel(socket, options=[("grpc.default_authority", "localhost")]) as channel:
            node = Node(cluster, rpc.DevicePluginStub(channel), uuids, set(units), root / "hook")
            for number in range(pods):
                await node.admit(number)
    finally:
        stop.set()
        await asyncio.wait_for(plugin, 10)
        await kubelet.stop()
    both = [prefer + allocate for prefer, allocate in zip(node.prefer_ms, node.allocate_ms, strict=True)]
    return {
        "machine": MACHINE, "pods": pods, "pods_on_the_node": min(pods, KEPT),
        "start_to_listed_ms": round(listed * 1000, 1),
        "prefer_ms": spread(node.prefer_ms), "allocate_ms": spread(node.allocate_ms), "together_ms": spread(both),
        "answers_checked": pods,
    }  # fmt: skip


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, range, and the nearest-rank 95th and 99th of a hundred."""
    ordered = sorted(values)
    high = {f"p{part}": round(ordered[math.ceil(len(ordered) * part / 100) - 1], 3) for part in (95, 99)}
    return median(values) | high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the pods")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/node_allocate.json")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="pumice") as folder, cards_of(MACHINE) as (_, cards):
        result = asyncio.run(measure(Path(folder), cards, 60 if options.quick else 300))
    save("node_allocate", result, keep=options.save)


if __name__ == "__main__":
    main()
