"""The plugin cuts cards in MIG mode when a pod's container is allocated, and puts right what a kill or a boot has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from kit.machines import Programs
from kit.node_objects import NODE, A, B, container, gives, pod_object
from kit.node_world import until
from kit.plugin_world import World
from kit.plugin_world import in_a_world as in_any_world

from pumice.adapters.journal import FileJournal
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.ports.slices import Phase, Place
from pumice.wire import names, variables
from pumice.wire.nvidia_vgpu import parse_register
from pumice_lab.machine import FaultModel, machine_of

NUMBER = names.VGPU_NUMBER
BASE = machine_of(["A100-SXM4-40GB", "Tesla-T4"], name=NODE)
MIXED = replace(BASE, cards=(replace(BASE.cards[0], uuid=A, mig_mode=True), replace(BASE.cards[1], uuid=B)))


def in_a_world(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """With an A100 in MIG mode, and a T4."""
    return in_any_world(test, MIXED)


def slice_pod(name: str, place: str, **more: Any) -> dict[str, Any]:
    return pod_object(name, f"{A}[{place}],NVIDIA,3000,0:", container("train", 1, 3000), **more)


def there() -> list[str]:
    return [str(slice_.place) for slice_ in NvmlSlices().slices(A)]


def health(world: World) -> dict[str, bool]:
    register = world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER]
    return {card.uuid: card.healthy for card in parse_register(register).cards}


async def allocated(world: World, name: str, place: str) -> str:
    """The UUID that a new pod of that place is given; it runs from then on."""
    world.cluster.put(slice_pod(name, place))
    answer = await world.kubelet.allocate(NUMBER, 1)
    becomes(world, name, "Running")
    return str(answer.envs[variables.NVIDIA_VISIBLE_DEVICES])


def becomes(world: World, name: str, phase: str) -> None:
    world.cluster.change("pods", name, {"status": {"phase": phase, "startTime": "2026-08-20T10:00:00Z"}})


@in_a_world
async def test_a_pod_gets_a_slice_that_was_cut_for_it_and_the_next_one_its_own(world):
    async with world.plugin():
        assert health(world) == {A: True, B: True}
        world.cluster.put(slice_pod("p1", "group2-3"))
        first = await world.kubelet.allocate(NUMBER, 1)
        becomes(world, "p1", "Running")
        world.cluster.put(slice_pod("p2", "group2-0"))
        second = await world.kubelet.allocate(NUMBER, 1)
        assert there() == ["1g.5gb@6", "2g.10gb@0"]
        uuids = {str(s.place): s.uuid for s in NvmlSlices().slices(A)}
        assert dict(first.envs) == {variables.NVIDIA_VISIBLE_DEVICES: uuids["1g.5gb@6"]}
        assert dict(second.envs) == {variables.NVIDIA_VISIBLE_DEVICES: uuids["2g.10gb@0"]}
        assert [event["message"] for event in world.cluster.events if event["reason"] == "MIGRecut"] == [
            f"card {A} for pod ns1/p1: cut 1g.5gb@6", f"card {A} for pod ns1/p2: cut 2g.10gb@0",
        ]  # fmt: skip


@in_a_world
async def test_a_card_is_recut_beside_a_running_pod_and_what_ended_is_handed_out_again_or_goes(world):
    async with world.plugin():
        await allocated(world, "runs", "group2-0")
        kept = await allocated(world, "ends", "group2-1")
        becomes(world, "ends", "Succeeded")
        assert await allocated(world, "again", "group2-1") == kept, "nobody held it, so it was not cut again"
        becomes(world, "again", "Succeeded")
        await allocated(world, "other", "group1-3")
        assert there() == ["1g.5gb@3", "2g.10gb@0"]
        assert "removed 2g.10gb@2" in world.cluster.events[-1]["message"]


@in_a_world
async def test_a_slice_that_another_pod_holds_is_waited_for_and_the_pod_is_refused_with_its_name(world):
    async with world.plugin():
        await allocated(world, "runs", "group3-0")
        world.cluster.put(slice_pod("late", "group1-2"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"pod ns1/runs holds slice 3g.20gb@0"):
            await world.kubelet.allocate(NUMBER, 1)
        world.cluster.put(slice_pod("lucky", "group1-3"))
        call = asyncio.create_task(world.kubelet.allocate(NUMBER, 1))
        await until(lambda: not call.done())
        becomes(world, "runs", "Succeeded")
        await call
        assert there() == ["1g.5gb@3"]


@in_a_world
async def test_shares_of_other_cards_are_handed_out_as_ever_beside_slices(world):
    async with world.plugin():
        await allocated(world, "sliced", "group1-0")
        world.cluster.put(pod_object("shared", gives(B)))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs[variables.NVIDIA_VISIBLE_DEVICES] == B
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


@in_a_world
async def test_a_card_that_somebody_else_has_cut_is_not_offered_and_is_left_alone(world):
    driver = NvmlSlices()
    theirs = Place(A, "1g.5gb", 4)
    driver.make(theirs)
    uuid = driver.fill(theirs)
    async with world.plugin():
        assert health(world) == {A: False, B: True}
        reported = next(event["message"] for event in world.cluster.events if event["reason"] == "CardUnhealthy")
        assert "somebody else cut 1g.5gb@4 on it" in reported
        assert [slice_.uuid for slice_ in driver.slices(A)] == [uuid]
        driver.drain(theirs)
        driver.remove(theirs)
        await world.cluster.until(lambda: health(world)[A])


@in_a_world
async def test_without_the_right_to_cut_the_card_is_not_offered(world):
    world.machine.set_fault(FaultModel("nvmlDeviceCreateGpuInstanceWithPlacement", code=4, count=0))
    async with world.plugin():
        assert health(world) == {A: False, B: True}
        reported = next(event["message"] for event in world.cluster.events if event["reason"] == "CardUnhealthy")
        assert "NVIDIA_MIG_CONFIG_DEVICES=all" in reported
        world.machine.clear_faults()
        await world.cluster.until(lambda: health(world)[A])


@in_a_world
async def test_a_right_that_turns_out_to_be_missing_at_a_cut_closes_the_card(world):
    async with world.plugin():
        world.machine.set_fault(FaultModel("nvmlDeviceCreateGpuInstanceWithPlacement", code=4, count=0))
        world.cluster.put(slice_pod("p", "group2-0"))
        with pytest.raises(grpc.aio.AioRpcError, match="NVIDIA_MIG_CONFIG_DEVICES=all"):
            await world.kubelet.allocate(NUMBER, 1)
        await world.cluster.until(lambda: not health(world)[A])
        assert there() == []


@in_a_world
async def test_a_driver_that_refuses_fails_that_pod_with_its_words_and_leaves_no_half_slice(world):
    async with world.plugin():
        world.machine.set_fault(FaultModel("nvmlGpuInstanceCreateComputeInstance", code=23, count=0))
        world.cluster.put(slice_pod("p", "group2-0"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"slice 2g.10gb@0 of card .*: Insufficient Resources"):
            await world.kubelet.allocate(NUMBER, 1)
        assert there() == []
        assert world.cluster.notes("pods", "p")[names.BIND_PHASE] == "failed"
        world.machine.clear_faults()
        await allocated(world, "next", "group2-0")
        assert there() == ["2g.10gb@0"]


@in_a_world
async def test_after_a_boot_the_slices_are_there_again_and_a_pod_whose_uuid_changed_is_failed_with_the_reason(world):
    async with world.plugin():
        was = await allocated(world, "p", "group2-0")
    driver, place = NvmlSlices(), Place(A, "2g.10gb", 0)
    driver.drain(place)
    driver.remove(place)
    async with world.plugin():
        (now,) = driver.slices(A)
        pod = world.cluster.found("pods", "p")
        assert now.place == place
        assert pod["spec"]["activeDeadlineSeconds"] == 1, "past it the kubelet ends the pod"
        message = pod["metadata"]["annotations"][names.SLICE_GONE]
        assert f"it was given {was}" in message
        assert f"what lies there now is {now.uuid}" in message
        assert [event["message"] for event in world.cluster.events if event["reason"] == "SliceGone"] == [message]


@in_a_world
async def test_a_plugin_that_starts_again_knows_its_slices_by_the_journal(world):
    async with world.plugin():
        uuid = await allocated(world, "runs", "group2-0")
    async with world.plugin():
        assert health(world) == {A: True, B: True}
        world.cluster.put(slice_pod("late", "group1-0"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"pod ns1/runs holds slice"):
            await world.kubelet.allocate(NUMBER, 1)
    (entry,) = FileJournal(world.root / "hook" / "vgpu" / "mig.json").read()
    assert (entry.place, entry.phase, entry.uuid) == (Place(A, "2g.10gb", 0), Phase.MADE, uuid)


@in_a_world
async def test_a_pod_that_was_deleted_by_force_keeps_its_slice_until_the_kubelet_has_surely_ended_it(world):
    """The kubelet takes it out of its record late, so a pod of the same place waits for a while and no longer."""
    record = world.root / "plugins" / "kubelet_internal_checkpoint"
    async with world.plugin():
        await allocated(world, "forced", "group2-0")
        entry = f'{{"PodUID":"uid-forced","ContainerName":"train","ResourceName":"{NUMBER}","DeviceIDs":{{}}}}'
        record.write_text(f'{{"Data":{{"PodDeviceEntries":[{entry}]}}}}')
        world.cluster.remove("pods", "forced")
        began = asyncio.get_running_loop().time()
        await allocated(world, "late", "group1-1")
        assert asyncio.get_running_loop().time() - began > 9
        assert there() == ["1g.5gb@1"]


@in_a_world
async def test_a_slice_on_which_a_process_still_runs_is_not_removed_whoever_has_ended(world):
    async with world.plugin():
        uuid = await allocated(world, "ends", "group2-0")
        becomes(world, "ends", "Succeeded")
        programs = Programs(world.machine)
        programs.environment["CUDA_VISIBLE_DEVICES"] = uuid
        program = await asyncio.to_thread(programs.hold, 1000)
        try:
            world.cluster.put(slice_pod("late", "group1-0"))
            with pytest.raises(grpc.aio.AioRpcError, match=r"a process still runs on slice 2g.10gb@0"):
                await world.kubelet.allocate(NUMBER, 1)
            world.cluster.put(slice_pod("same-place", "group2-0"))
            with pytest.raises(grpc.aio.AioRpcError, match=r"a process still runs on slice 2g.10gb@0"):
                await world.kubelet.allocate(NUMBER, 1)
        finally:
            program.kill()
            program.communicate()
        assert there() == ["2g.10gb@0"]


@in_a_world
async def test_slices_that_somebody_has_cut_are_resources_of_their_own_under_mixed(world):
    """They are served as NVIDIA's plugin does, whatever pod asks."""
    driver = NvmlSlices()
    for place in (Place(A, "2g.10gb", 0), Place(A, "1g.5gb+me", 4), Place(A, "2g.10gb", 2)):
        driver.make(place)
        driver.fill(place)
    uuids = {str(slice_.place): slice_.uuid for slice_ in driver.slices(A)}
    async with world.plugin(mig_strategy="mixed"):
        assert health(world) == {B: True}, "whole cards as ever, and none that is cut"
        ids = await world.kubelet.until("volcano.sh/mig-2g.10gb", lambda units: len(units) == 2)
        assert ids == {uuids["2g.10gb@0"]: True, uuids["2g.10gb@2"]: True}
        await world.kubelet.until("volcano.sh/mig-1g.5gb.me", lambda units: list(units) == [uuids["1g.5gb+me@4"]])
        answer = await world.kubelet.allocate("volcano.sh/mig-2g.10gb", 2, list(ids)[::-1])
        assert dict(answer.envs) == {variables.NVIDIA_VISIBLE_DEVICES: f"{uuids['2g.10gb@0']},{uuids['2g.10gb@2']}"}
        with pytest.raises(grpc.aio.AioRpcError, match=r"MIG-none is no slice of volcano\.sh/mig-2g\.10gb on this node"):
            await world.kubelet.allocate("volcano.sh/mig-2g.10gb", 1, ["MIG-none"])
        world.cluster.put(pod_object("shared", gives(B)))
        assert (await world.kubelet.allocate(NUMBER, 1)).envs[variables.NVIDIA_VISIBLE_DEVICES] == B
        world.machine.raise_xid(0, 79)
        await world.kubelet.until("volcano.sh/mig-2g.10gb", lambda units: not any(units.values()))
    assert len(driver.slices(A)) == 3


@in_a_world
async def test_geometries_that_were_edited_meanwhile_are_read_before_a_pod_is_refused(world):
    async with world.plugin():
        kept = await allocated(world, "runs", "group2-0")
        edited = """
            nvidia:
              knownMigGeometries:
              - models: [A100-SXM4-40GB]
                allowedGeometries:
                - {group: own, geometries: [{name: 2g.10gb, memory: 10240, count: 1}, {name: 3g.20gb, memory: 20480, count: 1}]}
        """
        world.cluster.change("configmaps", names.DEVICE_CONFIGMAP, {"data": {names.DEVICE_CONFIG_KEY: edited}})
        await allocated(world, "new", "own-1")
        assert there() == ["2g.10gb@0", "3g.20gb@4"]
        assert kept in {slice_.uuid for slice_ in NvmlSlices().slices(A)}, "what ran before the edit runs on"
        world.cluster.put(slice_pod("old", "group2-2"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"has no slot group2-2; was the ConfigMap changed"):
            await world.kubelet.allocate(NUMBER, 1)
        world.cluster.change("configmaps", names.DEVICE_CONFIGMAP, {"data": {names.DEVICE_CONFIG_KEY: "nvidia: 3"}})
        world.cluster.put(slice_pod("odd", "group2-2"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"has no slot group2-2"):
            await world.kubelet.allocate(NUMBER, 1)
