"""A changed configuration has the outcome of a restart, a broken one has none (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu/config, HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu, HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu/register.go)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from kit.node_objects import NODE, A, B, gives, pod_object, two_cards
from kit.plugin_world import in_a_world
from kit.virtual_time import in_silence

from pumice.model.errors import BadInput
from pumice.wire import names

NUMBER = names.VGPU_NUMBER


def configure(world, text: str) -> None:
    meta = {"name": names.DEVICE_CONFIGMAP, "namespace": "kube-system"}
    world.cluster.put({"kind": "ConfigMap", "metadata": meta, "data": {names.DEVICE_CONFIG_KEY: text}})


def configure_node(world, **entry: object) -> None:
    world.settings.node_config.write_text(json.dumps({"nodeconfig": [{"name": NODE, **entry}]}))


def register(world) -> str:
    return world.cluster.notes("nodes", NODE).get(names.NODE_VGPU_REGISTER, "")


@in_a_world
async def test_a_changed_configuration_is_followed_and_who_holds_cards_keeps_them(world):
    configure(world, "nvidia: {deviceSplitCount: 4}")
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 8)
        world.cluster.put(pod_object("p", gives(B), uid="u1"))
        await world.kubelet.allocate(NUMBER, 1)
        world.cluster.change("pods", "p", {"status": {"phase": "Running"}})
        await world.cluster.until(lambda: "u1" in world.cluster.notes("nodes", NODE).get(names.HANDED_OUT, ""))
        configure(world, "nvidia: {deviceSplitCount: 6, gpuMemoryFactor: 2}")
        await world.kubelet.until(NUMBER, lambda d: len(d) == 12)
        await world.cluster.until(lambda: f"{A},6,16384," in register(world))
        assert world.cluster.notes("nodes", NODE)[names.HANDED_OUT] == f"u1 {gives(B)}\n"
        world.cluster.put(pod_object("q", gives(A), uid="u2"))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "6000m"


@in_a_world
async def test_a_broken_configuration_and_one_that_is_taken_away_change_nothing(world):
    configure(world, "nvidia: {deviceSplitCount: 4}")
    async with world.plugin():
        before = await world.kubelet.until(NUMBER, lambda d: len(d) == 8)
        registered = len(world.kubelet.registered)
        configure(world, "nvidia: 3")
        await in_silence(100)
        world.cluster.remove("configmaps", names.DEVICE_CONFIGMAP)
        await in_silence(100)
        world.settings.node_config.write_text("{")
        await in_silence(100)
        assert world.kubelet.lists[NUMBER] == before
        assert len(world.kubelet.registered) == registered


@in_a_world
async def test_the_nodes_entry_is_followed_too(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        configure_node(world, devicesplitcount=3, filterdevices={"index": [1]}, enablegetpreferredallocation=False)
        devices = await world.kubelet.until(NUMBER, lambda d: len(d) == 3)
        assert all(unit.startswith(A) for unit in devices)
        await world.cluster.until(lambda: B not in register(world))
        assert not world.kubelet.options[NUMBER].get_preferred_allocation_available


@pytest.mark.parametrize(("changes", "said"), [
    ({}, "needs --mps-root"), ({"mps_root": Path("/nowhere"), "mig_strategy": "mixed"}, "does not go with --mig-strategy mixed"),
])  # fmt: skip
def test_a_plugin_that_was_not_started_for_mps_says_so_and_does_not_begin(changes, said):
    async def begin(world):
        configure_node(world, operatingmode="mps")
        with pytest.raises(BadInput, match=said):
            async with world.plugin(**changes):
                pass

    in_a_world(begin)()


@in_a_world
async def test_a_mode_that_the_plugin_was_not_started_for_is_not_gone_over_to(world):
    async with world.plugin():
        before = await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        configure_node(world, operatingmode="mps", devicesplitcount=3)
        await in_silence(100)
        configure_node(world, operatingmode="mps", devicememoryscaling=2)
        await in_silence(100)
        assert world.kubelet.lists[NUMBER] == before


@in_a_world
async def test_without_the_control_program_of_mps_the_cards_take_no_pods_and_the_node_says_why(world):
    configure_node(world, operatingmode="mps")
    async with world.plugin(mps_root=world.root / "mps", mps_program="/nowhere/nvidia-cuda-mps-control"):
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20 and not any(d.values()))
        events = [event for event in world.cluster.events if event["reason"] == "CardUnhealthy"]
        assert {event["involvedObject"]["name"] for event in events} == {NODE}
        assert all("nvidia-cuda-mps-control is not on this node" in event["message"] for event in events)
        assert len(events) == 2
        assert "hami-core" in register(world)


@in_a_world
async def test_a_hangup_begins_again_at_once(world):
    hangup = asyncio.Event()
    async with world.plugin(hangup=hangup, reload_every=1e9):
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        count = len(world.kubelet.registered)
        hangup.set()
        await world.kubelet.until_registered(*[NUMBER] * (count + 1))


def on_numa_nodes():
    model = two_cards()
    return replace(model, cards=tuple(replace(card, numa=index) for index, card in enumerate(model.cards)))


@pytest.mark.parametrize("wanted", [True, False])
def test_the_kubelet_is_told_of_numa_nodes_where_the_node_says_so(wanted):
    async def play(world):
        configure_node(world, enablenumatopology=wanted)
        async with world.plugin():
            await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
            assert set(world.kubelet.numa[NUMBER].values()) == ({(0,), (1,)} if wanted else {()})

    in_a_world(play, on_numa_nodes())()


@pytest.mark.parametrize(("factor", "listed"), [(1, False), (8, True)])
def test_memory_is_listed_as_devices_where_the_kubelet_takes_so_long_a_list(factor, listed):
    async def play(world):
        configure(world, f"nvidia: {{gpuMemoryFactor: {factor}}}")
        async with world.plugin(advertise="auto"):
            await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
            resources = {names.VGPU_MEMORY, names.VGPU_CORES}
            assert resources <= set(world.kubelet.registered) if listed else not resources & set(world.kubelet.registered)
            capacity = world.cluster.found("nodes", NODE)["status"].get("capacity", {})
            assert (names.VGPU_MEMORY in capacity) is not listed

    in_a_world(play)()


@pytest.mark.parametrize("cleanup", [True, False])
def test_a_plugin_that_ends_takes_back_what_it_said_only_when_it_was_told_to(cleanup):
    """A task that is cancelled meanwhile takes nothing back on Python 3.13, whose TaskGroup passes a cancellation on."""
    async def play(world):
        async with world.plugin(cleanup=cleanup):
            await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
            world.cluster.put(pod_object("p", gives(B), uid="u1"))
            await world.kubelet.allocate(NUMBER, 1)
            await world.cluster.until(lambda: "u1" in world.cluster.notes("nodes", NODE).get(names.HANDED_OUT, ""))
        notes, status = world.cluster.notes("nodes", NODE), world.cluster.found("nodes", NODE)["status"]
        assert (names.NODE_VGPU_REGISTER in notes) is not cleanup
        assert (names.VGPU_MEMORY in status.get("capacity", {})) is not cleanup
        assert names.HANDED_OUT in notes, "who holds a card stays written there"

    in_a_world(play)()
