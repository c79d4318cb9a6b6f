"""Of every kind of devices pods are bound, and the kubelet asks in another order: each starts with its own."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kit.admitting import AdmittingKubelet
from kit.fake_cluster import FakeCluster
from kit.node_objects import NODE, A, B, card, container, gives, pod_object
from kit.node_world import node_cluster, plugin_served
from kit.npu_nodes import Npus, U
from kit.npu_world import chip
from kit.plugin_world import World
from kit.plugin_world import in_a_world as in_a_vgpu_world
from kit.virtual_time import VirtualClock, run_virtually
from tests.scenarios.toy_device_type.node import ToyCards

from pumice.adapters.nvml.slices import NvmlSlices
from pumice.devices.ascend_hami.node.answer import NpuSharing
from pumice.devices.ascend_hami.plugin import daemon as ascend_plugin
from pumice.devices.ascend_mindcluster.plugin import daemon as mindcluster_plugin
from pumice.devices.nvidia_gpushare.plugin import daemon as gpushare_plugin
from pumice.model.hardware.npu import slice_kinds
from pumice.wire import names, variables
from pumice.wire.ascend_hami import NpuDevice, RuntimeNpu, render_npu_binding
from pumice_lab.machine import machine_of

NPU, CORE = "huawei.com/Ascend310P", "huawei.com/npu-core"


@dataclass
class Node:
    cluster: FakeCluster
    kubelet: AdmittingKubelet
    root: Path

    def settings(self) -> dict[str, Any]:
        return {"node_name": NODE, "device_plugin_dir": self.kubelet.directory, "booking_dirs": (), "named_shares": "on",
                "cdi_folder": self.root / "cdi"}  # fmt: skip

    def put(self, name: str, notes: dict[str, str], *containers: dict[str, Any]) -> dict[str, Any]:
        made = pod_object(name, None, *containers, uid=f"uid-{name}", annotations=notes)
        made["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        self.cluster.put(made)
        return made

    async def start(self, resource: str, *pods: dict[str, Any]) -> list[dict[str, str]]:
        """Return the devices in the containers of these pods, admitted and started in the order of the words."""
        for pod in pods:
            await self.kubelet.admit(pod, resource)
        return [dict((await self.kubelet.start_container(pod, each)).env) for pod in pods for each in pod["spec"]["containers"]]


def on_a_node(story: Callable[[Node], Awaitable[None]]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as folder:
            root = Path(folder)
            (root / "p").mkdir()
            kubelet = AdmittingKubelet(root / "p", random.Random(3), root / "cdi")
            await kubelet.start()
            try:
                await story(Node(node_cluster(), kubelet, root))
            finally:
                await kubelet.stop()

    run_virtually(play())


def asking(resource: str, count: int, name: str = "c", **more: int) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {resource: str(count), **{key: str(n) for key, n in more.items()}}}}


def test_npus_by_hami() -> None:
    async def story(node: Node) -> None:
        npus = Npus()
        settings = ascend_plugin.Settings(**node.settings(), hook_path=node.root)
        device_type = ascend_plugin.ascend(settings, NpuSharing(chip("310P3")), npus, npus)

        def npu_pod(name: str, *cards: int) -> dict[str, Any]:
            devices = [NpuDevice(U[at], "Ascend310P", 6144, 0) for at in cards]
            runtime = [RuntimeNpu(device.uuid, "vir02") for device in devices]
            notes = render_npu_binding("Ascend310P", NODE, [(device,) for device in devices], runtime, 10**9)
            containers = [asking(NPU, 1, f"c{at}", **{f"{NPU}-memory": 6144}) for at, _ in enumerate(devices)]
            return node.put(name, notes, *containers)

        async with plugin_served(settings, device_type, node.cluster, VirtualClock()):
            await node.kubelet.until(NPU, lambda units: len(units) == 14)
            first, second = npu_pod("a", 0), npu_pod("b", 1, 0)
            seen = await node.start(NPU, second, first)
            assert [env[variables.ASCEND_VISIBLE_DEVICES] for env in seen] == ["1", "0", "0"]
            assert {env[variables.ASCEND_VNPU_SPECS] for env in seen} == {"vir02"}
            for name in ("a", "b"):
                assert node.cluster.notes("pods", name)["hami.io/bind-phase"] == "success"

    on_a_node(story)


def test_npus_cut_on_demand() -> None:
    async def story(node: Node) -> None:
        npus = Npus()
        settings = mindcluster_plugin.Settings(**node.settings(), journal=node.root)
        device_type = mindcluster_plugin.mindcluster(settings, slice_kinds()["Ascend310P"], node.cluster, npus, npus)
        async with plugin_served(settings, device_type, node.cluster, VirtualClock()):
            await node.kubelet.until(CORE, lambda units: len(units) == 16)
            first = node.put("a", {CORE: "0-vir02_1c", "predicate-time": "1"}, asking(CORE, 2))
            second = node.put("b", {CORE: "1-vir02", "predicate-time": "2"}, asking(CORE, 2))
            seen = await node.start(CORE, second, first)
            assert {env[variables.ASCEND_RUNTIME_OPTIONS] for env in seen} == {"VIRTUAL"}
            made = {slice_.id: (at, slice_.template) for at in (0, 1) for slice_ in npus.list(U[at])}
            assert [made[int(env[variables.ASCEND_VISIBLE_DEVICES])] for env in seen] == [(1, "vir02"), (0, "vir02_1c")]

    on_a_node(story)


def test_legacy_shares() -> None:
    async def story(node: Node) -> None:
        settings = gpushare_plugin.Settings(**node.settings())
        device_type = gpushare_plugin.gpushare(settings, ToyCards({}))
        cards = (card(0, "GPU-a", mib=8), card(1, "GPU-b", mib=8))
        device_type = replace(device_type, cards=Facts({}, cards=cards))
        async with plugin_served(settings, device_type, node.cluster, VirtualClock()):
            await node.kubelet.until(names.GPU_MEMORY, lambda units: len(units) == 16)
            first = node.put("a", {names.GPU_INDEX: "0", names.PREDICATE_TIME: "1"}, asking(names.GPU_MEMORY, 2))
            both = [asking(names.GPU_MEMORY, 2, "c0"), asking(names.GPU_MEMORY, 3, "c1")]
            second = node.put("b", {names.GPU_INDEX: "1", names.PREDICATE_TIME: "2"}, *both)
            seen = await node.start(names.GPU_MEMORY, second, first)
            assert [env[variables.NVIDIA_VISIBLE_DEVICES] for env in seen] == ["1", "1", "0"]
            assert [env[variables.GPU_ALLOCATED] for env in seen] == ["2", "3", "2"]
            for name in ("a", "b"):
                await node.cluster.until(lambda: node.cluster.notes("pods", name).get(names.GPU_ASSIGNED) == "true", 5)  # noqa: B023

    on_a_node(story)


@dataclass
class Facts(ToyCards):
    cards: tuple[Any, ...] = ()

    def facts(self) -> tuple[Any, ...]:
        return self.cards


BASE = machine_of(["A100-SXM4-40GB", "Tesla-T4"], name=NODE)
MIXED = replace(BASE, cards=(replace(BASE.cards[0], uuid=A, mig_mode=True), replace(BASE.cards[1], uuid=B)))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_slices_that_are_cut_and_a_share_beside_them(order: tuple[int, ...]) -> None:
    async def story(world: World) -> None:
        kubelet = world.kubelet
        assert isinstance(kubelet, AdmittingKubelet)
        plugin: AbstractAsyncContextManager[None] = world.plugin(named_shares="on", cdi_folder=world.root / "cdi")
        async with plugin:
            await kubelet.until(names.VGPU_NUMBER, lambda units: bool(units))
            given = [f"{A}[group2-3],NVIDIA,3000,0:", f"{A}[group2-0],NVIDIA,3000,0:", gives(B, 3000)]
            pods = [pod_object(f"p{at}", text, container("c", 1, 3000), uid=f"u{at}") for at, text in enumerate(given)]
            world.cluster.put(*pods)
            await asyncio.sleep(1)
            seen: dict[int, str] = {}
            for at in order:
                await kubelet.admit(pods[at], names.VGPU_NUMBER)
            for at in order:
                env = (await kubelet.start_container(pods[at], pods[at]["spec"]["containers"][0])).env
                seen[at] = env[variables.NVIDIA_VISIBLE_DEVICES]
            places = {slice_.uuid: str(slice_.place) for slice_ in NvmlSlices().slices(A)}
            assert [places.get(seen[at], seen[at]) for at in range(3)] == ["1g.5gb@6", "2g.10gb@0", B]

    in_a_vgpu_world(story, MIXED, lambda folder: AdmittingKubelet(folder, random.Random(3), folder.parent / "cdi"))()
