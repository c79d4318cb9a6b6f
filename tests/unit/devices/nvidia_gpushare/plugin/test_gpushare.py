"""The legacy plugin: memory shares without limits (volcano-sh/devices pkg/plugin/nvidia, HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu)."""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from kit.fake_cluster import refusing
from kit.machines import cards_of
from kit.node_objects import NODE, card, pod, pod_object, units_of
from kit.node_world import FakeKubelet, node_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.adapters.kubelet.endpoint import device_list
from pumice.devices.nvidia_gpushare.node.allocator import ASSIGNED, Legacy, ShareAllocator
from pumice.devices.nvidia_gpushare.plugin import daemon as gpushare_plugin
from pumice.effects.vocabulary import PatchPod, PatchStatus
from pumice.model.errors import BadInput
from pumice.node.device_list import worst_size
from pumice.node.protocol import Refuse, Serve
from pumice.ports.cluster import ApiError
from pumice.wire import names
from pumice.wire.objects import Node, convert
from pumice_lab.machine import FaultModel

TWO = (card(0, "GPU-a", mib=16384), card(1, "GPU-b", mib=16384))
UNLIKE = (card(0, "GPU-a", mib=3), card(1, "GPU-b", mib=2))


def device_requests(name: str, amount: int, resource: str = names.GPU_MEMORY) -> dict:
    return {"name": name, "resources": {"limits": {resource: amount}}}


def notes(index: str, time: int = 1) -> dict[str, str]:
    return {names.GPU_INDEX: index, names.PREDICATE_TIME: str(time)}


def share_pod(name: str, index: str, *containers: dict, time: int = 1, **more):
    return pod(name, None, *(containers or (device_requests("c", 1024),)), annotations=notes(index, time), **more)


def test_a_pod_sees_its_card_and_its_share():
    allocator = ShareAllocator(NODE, Legacy(), TWO)
    served = allocator.allocate([share_pod("p", "1")], units_of(1024))
    assert isinstance(served, Serve)
    assert served.answer.env == {
        "NVIDIA_VISIBLE_DEVICES": "1",
        "VOLCANO_GPU_ALLOCATED": "1024",
        "VOLCANO_GPU_MEMORY_TOTAL": "16384",
    }
    assert served.patch == PatchPod("ns1", "p", "uid-p", {ASSIGNED: "true"})


def test_the_factor_turns_units_into_mib():
    served = ShareAllocator(NODE, Legacy(factor=10), TWO).allocate(
        [share_pod("p", "0", device_requests("c", 102))], units_of(102)
    )
    assert isinstance(served, Serve)
    assert served.answer.env["VOLCANO_GPU_ALLOCATED"] == "1020"


def test_whole_cards_are_named_by_index():
    allocator = ShareAllocator(NODE, Legacy("number"), TWO)
    served = allocator.allocate([share_pod("p", "0,1", device_requests("c", 2, names.GPU_NUMBER))], units_of(2))
    assert isinstance(served, Serve)
    assert served.answer.env == {"NVIDIA_VISIBLE_DEVICES": "0,1", "VOLCANO_GPU_ALLOCATED": "2"}


def test_a_pod_with_two_containers_is_marked_after_the_second():
    both = share_pod("p", "0", device_requests("a", 1000), {"name": "plain"}, device_requests("b", 24))
    allocator = ShareAllocator(NODE, Legacy(), TWO)
    assert allocator.allocate([both], units_of(24)) is None
    first = allocator.allocate([both], units_of(1000))
    assert isinstance(first, Serve)
    assert first.patch is None
    allocator.committed(first)
    second = allocator.allocate([both], units_of(24))
    assert isinstance(second, Serve)
    assert (second.container.name, second.patch is not None) == ("b", True)


def test_the_pod_that_was_placed_first_is_served_first():
    late, early = share_pod("late", "0", time=20), share_pod("early", "1", time=3)
    served = ShareAllocator(NODE, Legacy(), TWO).allocate([late, early], units_of(1024))
    assert isinstance(served, Serve)
    assert served.pod.key == "ns1/early"


@pytest.mark.parametrize(
    "other",
    [
        pod("assigned", None, device_requests("c", 1024), annotations={**notes("0"), ASSIGNED: "true"}),
        share_pod("running", "0", phase="Running"),
        share_pod("elsewhere", "0", node="node-b"),
        share_pod("going", "0", deletionTimestamp="2026-08-20T10:00:00Z"),
        pod("unplaced", None, device_requests("c", 1024)),
        share_pod("other size", "0", device_requests("c", 1000)),
    ],
    ids=lambda p: p.metadata.name,
)
def test_pods_that_do_not_wait_for_this_are_left_alone(other):
    assert ShareAllocator(NODE, Legacy(), TWO).allocate([other], units_of(1024)) is None


def test_a_pod_that_a_killed_kubelet_forgot_is_served_again():
    forgotten = pod("p", None, device_requests("c", 1024), annotations={**notes("1"), ASSIGNED: "true"})
    allocator = ShareAllocator(NODE, Legacy(), TWO)
    assert allocator.allocate([forgotten], units_of(1024)) is None, "the kubelet's record cannot be read"
    assert allocator.allocate([forgotten], units_of(1024), {("uid-p", "c")}) is None, "the kubelet has it"
    again = allocator.allocate([forgotten], units_of(1024), set())
    assert isinstance(again, Serve)
    assert (again.answer.env["NVIDIA_VISIBLE_DEVICES"], again.patch) == ("1", None)
    allocator.committed(again)
    assert allocator.allocate([forgotten], units_of(1024), set()) is None
    allocator.kubelet_restarted()
    assert isinstance(allocator.allocate([forgotten], units_of(1024), set()), Serve)


@pytest.mark.parametrize(("index", "reason"), [("x", "not a list of card indices"), ("7", "names card 7; this node has 2")])
def test_an_index_that_cannot_be_is_refused_with_the_reason(index, reason):
    refused = ShareAllocator(NODE, Legacy(), TWO).allocate([share_pod("p", index)], units_of(1024))
    assert isinstance(refused, Refuse)
    assert reason in refused.reason


def test_every_card_lists_its_own_memory_with_short_ids_and_a_sick_one_is_marked():
    units = Legacy().units(UNLIKE, {"GPU-b": "Xid 79"})
    assert [(u.id, u.healthy) for u in units] == [
        ("0-0", True), ("0-1", True), ("0-2", True), ("1-0", False), ("1-1", False),
    ]  # fmt: skip
    everything = [(u.id, False) for u in Legacy().units(TWO, {})]
    assert worst_size(Legacy().units(TWO, {})) == len(device_list([(*unit, -1) for unit in everything]))


def test_the_card_count_and_the_sick_cards_are_kept_in_the_status():
    def node(count: str = "", unhealthy: str = "") -> Node:
        resources = {names.GPU_NUMBER: count} if count else {}
        annotations = {names.NODE_GPU_UNHEALTHY_IDS: unhealthy} if unhealthy else {}
        status = {"capacity": resources, "allocatable": resources}
        return convert(Node, {"metadata": {"name": "n", "annotations": annotations}, "status": status})

    legacy, unhealthy = Legacy(), {"GPU-b": "Xid 79"}
    assert legacy.status(TWO, {}, node("2")) is None
    assert legacy.status(TWO, {}, node()) == PatchStatus({names.GPU_NUMBER: "2"})
    assert legacy.status(TWO, unhealthy, node("2")) == PatchStatus(
        {names.GPU_NUMBER: "2"}, {names.NODE_GPU_UNHEALTHY_IDS: "1"}
    )
    assert legacy.status(TWO, {}, node("2", "1")) == PatchStatus(
        {names.GPU_NUMBER: "2"}, {names.NODE_GPU_UNHEALTHY_IDS: None}
    )


def test_what_the_vgpu_plugin_left_is_taken_away_once_it_is_gone():
    def node(shares: str) -> Node:
        resources = {names.GPU_NUMBER: "2", names.VGPU_NUMBER: shares, names.VGPU_MEMORY: "32768", names.VGPU_CORES: "200"}
        annotations = {names.NODE_VGPU_REGISTER: "x:", names.NODE_VGPU_HANDSHAKE: "Reported"}
        status = {"capacity": resources, "allocatable": resources}
        return convert(Node, {"metadata": {"name": "n", "annotations": annotations}, "status": status})

    assert Legacy().status(TWO, {}, node("20")) is None, "it is alive"
    assert Legacy().status(TWO, {}, node("0")) == PatchStatus(
        {names.GPU_NUMBER: "2", names.VGPU_MEMORY: None, names.VGPU_CORES: None},
        {names.NODE_VGPU_REGISTER: None, names.NODE_VGPU_HANDSHAKE: None},
    )


def test_a_pod_whose_answer_went_to_one_that_is_gone_waits_still():
    allocator, pods = ShareAllocator(NODE, Legacy(), TWO), [share_pod("p", "0", time=1), share_pod("q", "1", time=2)]
    ids = units_of(1024)
    first = allocator.allocate(pods, ids, {})
    allocator.committed(first)
    allocator.unserved(first)
    again = allocator.allocate(pods, ids, {("uid-gone", "c"): frozenset(ids)})
    assert (first.pod.key, again.pod.key) == ("ns1/p", "ns1/p")


@asynccontextmanager
async def legacy_world(model, **changes):
    with tempfile.TemporaryDirectory(prefix="pumice") as folder, cards_of(model) as (machine, cards):
        root = Path(folder)
        cluster, kubelet = node_cluster({"gpu": "2026-08-20T10:00:00Z"}), FakeKubelet(root)
        await kubelet.start()
        stop, ready = asyncio.Event(), asyncio.Event()
        settings = replace(gpushare_plugin.Settings(NODE, device_plugin_dir=root), **changes)
        task = asyncio.create_task(
            gpushare_plugin.run(settings, cluster=cluster, clock=VirtualClock(), rng=random.Random(1), stop=stop,
                                ready=ready, cards=cards)
        )  # fmt: skip
        waiter = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED, timeout=120)
            if task.done():
                task.result()
            yield cluster, kubelet, machine
        finally:
            waiter.cancel()
            stop.set()
            await asyncio.gather(task, return_exceptions=True)
            await kubelet.stop()


def test_two_pods_share_a_card_as_the_guide_shows():
    async def play():
        async with legacy_world("2xGeForce-GTX-1080-Ti") as (cluster, kubelet, machine):
            devices = await kubelet.until(names.GPU_MEMORY, lambda d: len(d) == 22356)
            assert all(devices.values())
            assert cluster.found("nodes", NODE)["status"]["capacity"] == {names.GPU_NUMBER: "2"}
            for name in ("gpu-pod1", "gpu-pod2"):
                cluster.put(pod_object(name, None, device_requests("cuda-container", 1024), annotations=notes("0")))
                answer = await kubelet.allocate(names.GPU_MEMORY, 1024, [f"0-{i}" for i in range(1024)])
                assert dict(answer.envs) == {
                    "VOLCANO_GPU_MEMORY_TOTAL": "11178",
                    "VOLCANO_GPU_ALLOCATED": "1024",
                    "NVIDIA_VISIBLE_DEVICES": "0",
                }
                assert cluster.notes("pods", name)[ASSIGNED] == "true"
            await cluster.until(lambda: "gpu" not in cluster.notes("nodes", NODE))
            with pytest.raises(grpc.aio.AioRpcError, match="no pod of this node waits for 1024"):
                await kubelet.allocate(names.GPU_MEMORY, 1024, [f"1-{i}" for i in range(1024)])
            machine.set_fault(FaultModel("nvmlDeviceGetHandleByUUID", code=15, count=0))  # so it stays unhealthy
            machine.raise_xid(1, 79)
            await cluster.until(lambda: cluster.notes("nodes", NODE).get(names.NODE_GPU_UNHEALTHY_IDS) == "1")
            await kubelet.until(names.GPU_MEMORY, lambda d: sum(d.values()) == 11178)

    run_virtually(play())


def test_a_pod_that_cannot_be_marked_is_refused_and_told_of():
    async def play():
        async with legacy_world("2xGeForce-GTX-1080-Ti", legacy=Legacy("number")) as (cluster, kubelet, _):
            await kubelet.until(names.GPU_NUMBER, lambda d: len(d) == 2)
            cluster.put(pod_object("p", None, device_requests("c", 1, names.GPU_NUMBER), annotations=notes("0")))
            cluster.gate = refusing(ApiError(403, "Forbidden", "pods is forbidden"), times=1)
            with pytest.raises(grpc.aio.AioRpcError, match="pod ns1/p: its annotations could not be written"):
                await kubelet.allocate(names.GPU_NUMBER, 1, ["any"])
            assert [event["reason"] for event in cluster.events] == ["GPUAllocationFailed"]

    run_virtually(play())


def test_a_list_that_the_kubelet_would_drop_names_the_factor_to_set():
    async def play():
        async with legacy_world("8xA100-SXM4-80GB"):
            pass

    with pytest.raises(BadInput, match=r"takes 4194304; set --gpu-memory-factor to at least 4"):
        run_virtually(play())
