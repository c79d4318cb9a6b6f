"""The whole NPU plugin of a node, in virtual time: what it registers, serves, sweeps up and says of unhealthy cards (HAMi
ascend-device-plugin)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from kit.fake_cluster import FakeCluster
from kit.node_objects import NODE
from kit.node_world import FakeKubelet, node_cluster, plugin_served
from kit.npu_nodes import Npus, U
from kit.npu_world import chip
from kit.virtual_time import VirtualClock, in_silence, run_virtually

from pumice.devices.ascend_hami.node.answer import NpuSharing
from pumice.devices.ascend_hami.plugin import daemon as ascend_plugin
from pumice.devices.ascend_hami.plugin import daemon as npu_configuration
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import Template
from pumice.wire.ascend_hami import NpuDevice, RuntimeNpu, parse_npu_register, render_npu_binding
from pumice.wire.kinds import NODES, PODS

RESOURCE, WORD = "huawei.com/Ascend310P", "Ascend310P"
@dataclass
class World:
    cluster: FakeCluster
    kubelet: FakeKubelet
    npus: Npus
    clock: VirtualClock

    def pod(self, name: str, *devices: NpuDevice, template: str = "", time: int = 1) -> None:
        """A bound pod as the scheduler leaves it; its containers ask for a card each."""
        runtime = [RuntimeNpu(d.uuid, template) for d in devices]
        notes = render_npu_binding(WORD, NODE, [(d,) for d in devices], runtime, time * 10**9)
        limits = [{RESOURCE: "1"} | ({f"{RESOURCE}-memory": d.memory} if template else {}) for d in devices]
        containers = [{"name": f"c{at}", "resources": {"limits": wanted}} for at, wanted in enumerate(limits)]
        self.cluster.put({
            "kind": "Pod", "metadata": {"name": name, "namespace": "ns1", "uid": f"uid-{name}", "annotations": notes},
            "spec": {"nodeName": NODE, "containers": containers},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        })  # fmt: skip

    async def notes(self, name: str) -> dict[str, str]:
        found: dict[str, str] = (await self.cluster.get(PODS, name, "ns1"))["metadata"]["annotations"]
        return found

    async def node(self) -> dict[str, str]:
        found: dict[str, str] = (await self.cluster.get(NODES, NODE))["metadata"]["annotations"]
        return found

    def finish(self, name: str) -> None:
        self.cluster.put({"kind": "Pod", "metadata": {"name": name, "namespace": "ns1", "uid": f"uid-{name}"},
                          "spec": {"nodeName": NODE, "containers": []}, "status": {"phase": "Succeeded"}})  # fmt: skip


def in_a_world(test: Any, again: Any = None, **changes: Any) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as folder:
            root = Path(folder)
            (root / "p").mkdir()
            world = World(node_cluster(), FakeKubelet(root / "p"), Npus(), VirtualClock())
            settings = ascend_plugin.Settings(NODE, device_plugin_dir=root / "p", hook_path=root, booking_dirs=())
            settings = replace(settings, **changes)
            await world.kubelet.start()
            try:
                async with served(world, settings, again):
                    await test(world)
            finally:
                await world.kubelet.stop()

    run_virtually(play())


def served(world: World, settings: ascend_plugin.Settings, again: Any = None) -> AbstractAsyncContextManager[None]:
    latest = None if again is None else ascend_plugin.Latest(again, world.clock)
    device_type = ascend_plugin.ascend(settings, NpuSharing(chip("310P3")), world.npus, world.npus, latest=latest)
    return plugin_served(settings, device_type, world.cluster, world.clock)


def test_a_slice_is_handed_out_and_the_pod_is_marked() -> None:
    async def play(world: World) -> None:
        assert len(await world.kubelet.until(RESOURCE, lambda listed: len(listed) == 14)) == 14
        world.pod("p", NpuDevice(U[1], WORD, 6144, 0), template="vir02")
        answer = await world.kubelet.allocate(RESOURCE, 1, ["any"])
        assert dict(answer.envs) == {"ASCEND_VISIBLE_DEVICES": "1", "ASCEND_VNPU_SPECS": "vir02"}
        notes = await world.notes("p")
        assert (notes["hami.io/bind-phase"], notes["hami.io/Ascend310P-devices-to-allocate"]) == ("success", ";")

    in_a_world(play)


def test_two_pods_without_a_lock_get_their_own_cards_and_neither_fails_for_the_other() -> None:
    async def play(world: World) -> None:
        for at, name in enumerate(("first", "second")):
            world.pod(name, NpuDevice(U[at], WORD, 6144, 0), template="vir02", time=1 + at)
        got = [dict((await world.kubelet.allocate(RESOURCE, 1, ["x"])).envs)["ASCEND_VISIBLE_DEVICES"] for _ in range(2)]
        assert got == ["0", "1"]
        assert [(await world.notes(name))["hami.io/bind-phase"] for name in ("first", "second")] == ["success"] * 2
        with pytest.raises(grpc.aio.AioRpcError, match="no binding pod found on node node-a that waits for 1"):
            await world.kubelet.allocate(RESOURCE, 1, ["x"])
        assert [(await world.notes(name))["hami.io/bind-phase"] for name in ("first", "second")] == ["success"] * 2

    in_a_world(play)


def test_the_slice_that_a_pod_that_went_was_given_is_the_next_ones_still() -> None:
    async def play(world: World) -> None:
        held = []
        for at, name in enumerate(("first", "second")):
            world.pod(name, NpuDevice(U[at], WORD, 6144, 0), template="vir02", time=1 + at)
        for number, (uid, card) in enumerate((("uid-gone", "0"), ("uid-first", "0"), ("uid-second", "1"))):
            answer = await world.kubelet.allocate(RESOURCE, 1, [f"id-{number}"])
            assert dict(answer.envs)["ASCEND_VISIBLE_DEVICES"] == card
            held.append((uid, "c0", f"id-{number}"))
            world.kubelet.write_record(RESOURCE, *held)

    in_a_world(play)


def test_a_sick_card_recovers_in_the_list_and_on_the_node() -> None:
    async def play(world: World) -> None:
        world.npus.ill[U[0]] = "its health is Alarm, error codes 0x80E01801"
        await world.kubelet.until(RESOURCE, lambda listed: sum(listed.values()) == 7)
        await until_healthy(world, [U[1]])
        world.npus.ill.clear()
        await world.kubelet.until(RESOURCE, lambda listed: sum(listed.values()) == 14, timeout=400)
        await until_healthy(world, list(U))

    in_a_world(play)


async def until_healthy(world: World, uuids: list[str]) -> None:
    async with asyncio.timeout(120):
        while True:
            cards = parse_npu_register((await world.node())[f"hami.io/node-register-{WORD}"]).cards
            if [card.id for card in cards if card.healthy] == uuids:
                return
            await world.clock.sleep(1.0)


def test_a_card_that_vanishes_under_a_pod_is_sick_and_takes_no_other() -> None:
    async def play(world: World) -> None:
        world.npus.gone.add(U[0])
        await world.kubelet.until(RESOURCE, lambda listed: sum(listed.values()) == 7, timeout=200)
        world.pod("late", NpuDevice(U[0], WORD, 6144, 0), template="vir02")
        with pytest.raises(grpc.aio.AioRpcError, match="takes no pods: the driver does not list the card any more"):
            await world.kubelet.allocate(RESOURCE, 1, ["x"])

    in_a_world(play)


@pytest.mark.parametrize(
    ("changes", "left"),
    [({}, ["theirs"]), ({"sweep": "off"}, ["theirs", "ours"]), ({"sweep": "all"}, []), ({"dry_run": True}, ["theirs", "ours"])],
    ids=["owned", "off", "all", "dry run"],
)  # fmt: skip
def test_a_slice_that_a_runtime_left_is_swept_up_and_one_made_by_hand_is_not(changes: dict[str, Any], left: list[str]) -> None:
    async def play(world: World) -> None:
        theirs = world.npus.make(U[0], "vir02")
        world.pod("p", NpuDevice(U[0], WORD, 6144, 0), template="vir02")
        await world.kubelet.allocate(RESOURCE, 1, ["x"])
        ours = world.npus.make(U[0], "vir02")  # the runtime, which is killed then
        await in_silence(150.0)
        assert ours in world.npus.made[U[0]], "its pod is there"
        world.finish("p")
        await in_silence(70.0)
        assert ours in world.npus.made[U[0]], "a first look is not enough"
        await in_silence(120.0)
        word = {theirs: "theirs", ours: "ours"}
        assert [word[ident] for ident in sorted(world.npus.made[U[0]])] == left

    in_a_world(play, **changes)


def test_a_chip_with_a_slice_that_nobody_booked_takes_no_pods_until_it_is_gone_and_keeps_those_it_has() -> None:
    async def play(world: World) -> None:
        world.pod("p", NpuDevice(U[0], WORD, 6144, 0), template="vir02")
        await world.kubelet.allocate(RESOURCE, 1, ["x"])
        ours = world.npus.make(U[0], "vir02")
        await in_silence(400.0)
        assert sum((await world.kubelet.until(RESOURCE, lambda listed: True)).values()) == 14, "its own pod's slice is none"
        theirs = world.npus.make(U[0], "vir04")
        await world.kubelet.until(RESOURCE, lambda listed: sum(listed.values()) == 7, timeout=600)
        await until_healthy(world, [U[1]])
        world.pod("late", NpuDevice(U[0], WORD, 3072, 0), template="vir01", time=2)
        with pytest.raises(grpc.aio.AioRpcError, match=r"takes no pods: slices of it were made by somebody else \(vir04\)"):
            await world.kubelet.allocate(RESOURCE, 1, ["x"])
        assert ours in world.npus.made[U[0]]
        world.npus.destroy(U[0], theirs)
        await world.kubelet.until(RESOURCE, lambda listed: sum(listed.values()) == 14, timeout=600)

    in_a_world(play)


def test_the_handshake_is_answered_within_seconds() -> None:
    async def play(world: World) -> None:
        key = f"hami.io/node-handshake-{WORD}"
        await world.cluster.patch(NODES, NODE, {"metadata": {"annotations": {key: "Requesting_2026-01-01 00:00:00"}}})
        async with asyncio.timeout(30):
            while not (await world.node())[key].startswith("Reported_"):
                await world.clock.sleep(1.0)

    in_a_world(play)


def test_a_configuration_that_changes_under_running_pods_is_learned_and_takes_nothing_from_them() -> None:
    """The scheduler goes by it at once: a pod placed by a template that the plugin has not heard of is served all the same."""
    before = chip("310P3")
    now = [NpuSharing(before)]

    async def again() -> NpuSharing | None:
        return now[0]

    async def play(world: World) -> None:
        world.pod("running", NpuDevice(U[0], WORD, 6144, 0), template="vir02")
        await world.kubelet.allocate(RESOURCE, 1, ["x"])
        world.npus.make(U[0], "vir02")
        now[0] = NpuSharing(replace(before, templates=(Template("vir04_3c", 12000, 4, 3),)), shares=2)
        world.pod("new", NpuDevice(U[1], WORD, 12000, 0), template="vir04_3c", time=2)
        answer = await world.kubelet.allocate(RESOURCE, 1, ["x"])
        assert dict(answer.envs)["ASCEND_VNPU_SPECS"] == "vir04_3c"
        await world.kubelet.until(RESOURCE, lambda listed: len(listed) == 4, timeout=120)
        assert (await world.notes("running"))["hami.io/bind-phase"] == "success"
        await in_silence(300.0)
        assert [s.template for s in world.npus.made[U[0]].values()] == ["vir02"]

    in_a_world(play, again=again)


def test_a_chip_that_no_configuration_knows_is_not_served() -> None:
    chips = (chip("310P3"),)
    assert npu_configuration.known(["310P3", "910X"], chips) == [chips[0]]
    with pytest.raises(BadInput, match="can not find vnpu config for chip 910X"):
        npu_configuration.known(["910X"], chips)
    with pytest.raises(BadInput, match="the driver lists no NPU"):
        npu_configuration.known([], chips)


def test_both_forms_of_the_configuration_are_read_and_the_node_has_its_own_word(tmp_path: Path) -> None:
    entry = {"chipName": "310P3", "commonWord": WORD, "resourceName": RESOURCE, "resourceMemoryName": f"{RESOURCE}-memory",
             "memoryAllocatable": 21527, "memoryCapacity": 24576, "aiCore": 8, "templates": []}  # fmt: skip
    node = tmp_path / "node-config.yaml"
    node.write_text(json.dumps({"nodes": [{"name": NODE, "vDeviceCount": 3, "filterDevices": {"index": [1]}}]}))

    async def load(text: Any) -> Any:
        file = tmp_path / "device-config.yaml"
        file.write_text(json.dumps({"vnpus": text}))
        return await npu_configuration.load_vnpus(file, node_cluster(), VirtualClock())

    for text in ([entry], {"hamiVnpuCore": True, "configs": [entry]}):
        config = run_virtually(load(text))
        sharing = npu_configuration.sharing_of(config.chips[0], config, npu_configuration.read_node_entry(node, NODE))
        assert (sharing.count, sharing.soft, sharing.without_indices) == (3, False, frozenset({1}))
