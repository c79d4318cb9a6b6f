"""A device type that the product has never heard of is a `DeviceType`, an allocator and a file of words, and no more.

The node's part: the real plugin server on a real socket, beside the device types that the product has.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from kit.fake_cluster import FakeCluster
from kit.node_objects import NODE, gives, pod_object
from kit.node_world import FakeKubelet, node_cluster
from kit.virtual_time import VirtualClock, run_virtually
from tests.scenarios.toy_device_type.node import SLICE, ToyCards, toy
from tests.scenarios.toy_device_type.words import ASSIGNED, CARDS, LOCK, NAME, RESOURCE, SERVED, render

from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.plugin import run_plugins
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.wire import names

GPU = "GPU-0"


def toy_pod(name: str, assigned: dict[str, int]) -> dict[str, Any]:
    asking = {"name": "c", "resources": {"limits": {RESOURCE: str(sum(assigned.values()))}}}
    return pod_object(name, None, asking, annotations={ASSIGNED: render(assigned)})


@dataclass
class World:
    """One node with two toy cards; what it serves is in ``settings`` and ``device_types``."""

    cluster: FakeCluster
    kubelet: FakeKubelet
    cards: ToyCards
    root: Path

    @asynccontextmanager
    async def serving(self, *others: ServedDevices) -> AsyncIterator[None]:
        """The plugin server, with the toy device type and others in one process."""
        stop, ready = asyncio.Event(), asyncio.Event()
        settings = PluginSettings(NODE, device_plugin_dir=self.root, booking_dirs=())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_plugins(settings, toy(self.cards), *others, cluster=self.cluster, clock=VirtualClock(),
                                          rng=random.Random(1), stop=stop, ready=ready))  # fmt: skip
            async with asyncio.timeout(60):
                await ready.wait()
            yield
            stop.set()

    def vgpus(self) -> ServedDevices:
        settings = vgpu_plugin.Settings(NODE, hook_path=self.root / "hook", lock_dir=self.root / "lock")
        return vgpu_plugin.vgpu(settings, cluster=self.cluster, clock=VirtualClock(), rng=random.Random(1),
                                cards=ToyCards({GPU: 16 << 30}))  # fmt: skip


def in_a_world(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    async def play() -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as folder:
            root = Path(folder)
            world = World(node_cluster(), FakeKubelet(root), ToyCards({"toy-0": 4 * SLICE, "toy-1": 8 * SLICE}), root)
            await world.kubelet.start()
            try:
                await test(world)
            finally:
                await world.kubelet.stop()

    def run() -> None:
        run_virtually(play())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_a_world
async def test_the_node_advertises_a_device_type_and_hands_it_out_as_its_allocator_says(world):
    async with world.serving():
        assert world.kubelet.registered == [RESOURCE]
        assert len(await world.kubelet.until(RESOURCE, lambda units: all(units.values()))) == 12
        assert world.cluster.notes("nodes", NODE)[CARDS] == "toy-0=4,toy-1=8"
        world.cluster.change("nodes", NODE, {"metadata": {"annotations": {LOCK: "2026-08-20T10:00:00Z"}}})
        world.cluster.put(toy_pod("p", {"toy-1": 3}))
        answer = await world.kubelet.allocate(RESOURCE, 3, ["toy-0-0", "toy-0-1", "toy-0-2"])
        assert dict(answer.envs) == {"TOY_CARDS": "toy-1"}
        assert world.cluster.notes("pods", "p")[SERVED] == "true"
        await world.cluster.until(lambda: LOCK not in world.cluster.notes("nodes", NODE))


@in_a_world
async def test_a_call_that_a_device_type_cannot_answer_is_refused_with_its_reason(world):
    async with world.serving():
        with pytest.raises(grpc.aio.AioRpcError, match=f"no pod of this node waits for 2 of {RESOURCE}"):
            await world.kubelet.allocate(RESOURCE, 2, ["toy-0-0", "toy-0-1"])
        world.cluster.put(toy_pod("p", {"toy-7": 1}))
        with pytest.raises(grpc.aio.AioRpcError, match="pod ns1/p: this node has no card toy-7"):
            await world.kubelet.allocate(RESOURCE, 1, ["toy-0-0"])
        reported = [(event["source"]["component"], event["reason"], event["message"]) for event in world.cluster.events]
        assert reported == [(f"{NAME}-plugin", "AllocationFailed", "this node has no card toy-7")]


@in_a_world
async def test_a_card_of_any_type_that_becomes_unhealthy_is_reported_to_the_kubelet_and_on_the_node(world):
    async with world.serving():
        world.cards.broken.add("toy-0")
        await world.kubelet.until(RESOURCE, lambda units: sum(units.values()) == 8)
        await world.cluster.until(lambda: world.cluster.notes("nodes", NODE)[CARDS] == "toy-1=8")


@in_a_world
async def test_one_process_serves_two_device_types_on_one_machine(world):
    async with world.serving(world.vgpus()):
        assert sorted(world.kubelet.registered) == [RESOURCE, names.VGPU_NUMBER]
        await world.kubelet.until(names.VGPU_NUMBER, lambda units: len(units) == 10)
        world.cluster.put(toy_pod("toys", {"toy-0": 1}))
        world.cluster.put(pod_object("gpus", gives(GPU)))
        answers = [await world.kubelet.allocate(names.VGPU_NUMBER, 1), await world.kubelet.allocate(RESOURCE, 1, ["toy-1-0"])]
        assert [answers[0].envs["NVIDIA_VISIBLE_DEVICES"], answers[1].envs["TOY_CARDS"]] == [GPU, "toy-0"]
