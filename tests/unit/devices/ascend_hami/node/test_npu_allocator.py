"""Which pod a call is for and what it is given (HAMi ascend-device-plugin)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.npu_world import chip

from pumice.devices.ascend_hami.node.allocator import NpuAllocator
from pumice.devices.ascend_hami.node.answer import Handshake, NpuSharing, registered
from pumice.effects.vocabulary import PatchNode
from pumice.node.pods import NodePod
from pumice.node.protocol import Partition, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place
from pumice.wire.ascend_hami import (
    NpuDevice,
    RuntimeNpu,
    parse_npu_register,
    parse_runtime,
    render_npu_binding,
    render_runtime,
)
from pumice.wire.objects import Node, convert

WORD, RESOURCE, NODE = "Ascend310P", "huawei.com/Ascend310P", "node-a"
CARDS = tuple(CardFacts(at, f"U{at + 1}", "310P3", 24 << 30, minor=at) for at in range(3))
SLICE, BIG, WHOLE = NpuDevice("U1", WORD, 3072, 0), NpuDevice("U2", WORD, 6144, 0), NpuDevice("U3", WORD, 21527, 0)
TEMPLATES = {3072: "vir01", 6144: "vir02"}


def allocator(**more: Any) -> NpuAllocator:
    made = NpuAllocator(NODE, NpuSharing(chip("310P3"), **more))
    made.show(CARDS)
    return made


def npu_pod(name: str, *slots: tuple[NpuDevice, ...], device_requests: tuple[int, ...] | None = None, time: int = 1,
            bound: bool = True, arrival: int = 1, **notes: str) -> NodePod:  # fmt: skip
    """A pod with a container for each slot, as the scheduler leaves it."""
    runtime = [RuntimeNpu(d.uuid, TEMPLATES.get(d.memory, "")) for slot in slots for d in slot]
    written = render_npu_binding(WORD, NODE, slots, runtime, time * 10**9) if slots else {}
    counts = device_requests or tuple(len(slot) for slot in slots)
    filled = iter(slots)
    limits = [_limits(count, next(filled, ())) if count else {} for count in counts]
    pod = convert(NodePod, {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {**written, **notes}},
        "spec": {"nodeName": NODE, "containers": [
            {"name": f"c{at}", "resources": {"limits": wanted}} for at, wanted in enumerate(limits)]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}] if bound else []},
    })  # fmt: skip
    pod.arrival = arrival
    return pod


def _limits(count: int, slot: tuple[NpuDevice, ...]) -> dict[str, int]:
    """Return the request of a container with this allocation."""
    part = [device for device in slot if device.memory < 21527]
    cores = {f"{RESOURCE}-core": part[0].cores} if part and part[0].cores else {}
    return {RESOURCE: count} | ({f"{RESOURCE}-memory": part[0].memory} if part else {}) | cores


def served(decision: object) -> Serve:
    """Return the allocation after its claim is written."""
    found = decision.then({}) if isinstance(decision, Partition) else decision
    assert isinstance(found, Serve), found
    return found


def patched(pod: NodePod, decision: Serve) -> NodePod:
    if decision.patch is not None:
        pod.metadata.annotations.update({key: text for key, text in decision.patch.annotations.items() if text is not None})
    return pod


def test_a_slice_is_named_by_card_and_template_and_claimed_before_it_is_answered():
    decision = allocator().allocate([npu_pod("p", (BIG,))], ["any"])
    assert isinstance(decision, Partition)
    assert decision.places == (Place("U2", "vir02", 0),)
    assert served(decision).answer.env == {"ASCEND_VISIBLE_DEVICES": "1", "ASCEND_VNPU_SPECS": "vir02"}


def test_whole_cards_have_no_template():
    two = (WHOLE, NpuDevice("U1", WORD, 21527, 0))
    decision = allocator().allocate([npu_pod("p", two)], ["a", "b"])
    assert isinstance(decision, Serve)
    assert decision.answer.env == {"ASCEND_VISIBLE_DEVICES": "2,0"}


def test_bind_phase_is_success_only_when_the_last_container_is_served():
    plugin, pod = allocator(), npu_pod("p", (SLICE,), (BIG,))
    first = served(plugin.allocate([pod], ["a"]))
    assert first.patch.annotations == {"hami.io/Ascend310P-devices-to-allocate": ";U2,Ascend310P,6144,0:;"}
    assert not first.finished
    plugin.committed(first)
    second = served(plugin.allocate([patched(pod, first)], ["a"]))
    assert second.container.name == "c1"
    assert second.patch.annotations == {"hami.io/Ascend310P-devices-to-allocate": ";;", "hami.io/bind-phase": "success"}
    assert second.finished


def test_a_call_for_another_number_of_devices_is_not_answered_from_this_pod():
    assert allocator().allocate([npu_pod("p", (SLICE,), (BIG,))], ["a", "b"]) is None


def test_a_slot_that_does_not_fit_its_container_is_refused():
    decision = allocator().allocate([npu_pod("p", (WHOLE,), device_requests=(2,))], ["a", "b"])
    assert isinstance(decision, Refuse)
    assert "device number not matched: annotation has 1, request has 2" in decision.reason


def test_a_pod_that_was_served_does_not_answer_for_another():
    plugin, first, second = allocator(), npu_pod("a", (SLICE,)), npu_pod("b", (BIG,), arrival=2)
    done = served(plugin.allocate([first, second], ["x"]))
    assert done.pod is first
    plugin.committed(done)
    assert served(plugin.allocate([patched(first, done), second], ["x"])).pod is second


def test_an_answer_that_the_kubelet_lost_is_given_again():
    plugin, pod = allocator(), npu_pod("p", (SLICE,))
    done = served(plugin.allocate([pod], ["x"], frozenset()))
    plugin.committed(done)
    patched(pod, done)
    assert plugin.allocate([pod], ["x"], frozenset()) is None
    plugin.kubelet_restarted()
    again = served(plugin.allocate([pod], ["x"], frozenset()))
    assert (again.answer, again.patch.annotations) == (done.answer, {"hami.io/bind-phase": "success"})
    assert plugin.allocate([pod], ["x"], frozenset({(pod.uid, "c0")})) is None


def test_volcanos_form_without_slots_for_idle_containers_is_read():
    pod = npu_pod("p", (SLICE,), device_requests=(0, 1))
    assert served(allocator().allocate([pod], ["x"])).container.name == "c1"


def test_the_pod_that_the_lock_names_comes_first():
    plugin = allocator()
    lock = {"hami.io/mutex.lock": "2026-01-01T00:00:00Z,ns,b"}
    plugin.missing(convert(Node, {"metadata": {"name": NODE, "annotations": lock}}))
    assert served(plugin.allocate([npu_pod("a", (SLICE,)), npu_pod("b", (BIG,), arrival=2)], ["x"])).pod.metadata.name == "b"


def test_a_pod_whose_slots_cannot_be_read_takes_no_call_of_another_size():
    broken = npu_pod("broken", (SLICE,), (BIG,), (SLICE,), device_requests=(1, 1))
    good = npu_pod("good", (WHOLE, NpuDevice("U1", WORD, 21527, 0)), arrival=2)
    assert served(allocator().allocate([broken, good], ["a", "b"])).pod is good
    refused = allocator().allocate([broken, good], ["a"])
    assert isinstance(refused, Refuse)
    assert "3 slots, which fit no reading of its containers" in refused.reason


@pytest.mark.parametrize(
    ("pod", "reported"),
    [
        (npu_pod("p", (NpuDevice("U9", WORD, 3072, 0),)), "unknown uuid: U9"),
        (npu_pod("p", (SLICE,), **{"huawei.com/Ascend310P": "{"}), "annotation huawei.com/Ascend310P value { invalid"),
        (npu_pod("p", (SLICE,), bound=False), "no scheduler bound it here"),
        (npu_pod("p", device_requests=(1,)), "was not placed by the scheduler"),
        (npu_pod("p", (SLICE,), **{"hami.io/vgpu-node": "other"}), "chosen on node other"),
        (npu_pod("p", (SLICE,), **{"huawei.com/vnpu-mode": "hami-core"}), "does not share its NPUs so"),
        (npu_pod("p", (SLICE,), **{"huawei.com/scheduler.softShareDev.aicoreQuota": "50"}), "is not served"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_and_marks_that_pod_alone(pod: NodePod, reported: str):
    decision = allocator().allocate([pod], ["x"])
    assert isinstance(decision, Refuse)
    assert reported in decision.reason
    patch = decision.effects[0]
    assert (patch.name, patch.annotations) == ("p", {"hami.io/bind-phase": "failed"})


def test_a_sick_card_is_not_handed_out():
    plugin = allocator()
    plugin.show(CARDS, {"U1": "its health is Alarm"})
    decision = plugin.allocate([npu_pod("p", (SLICE,))], ["x"])
    assert isinstance(decision, Refuse)
    assert "card U1 takes no pods: its health is Alarm" in decision.reason


def test_a_soft_share_is_told_its_quota_and_where_the_counters_are():
    plugin = allocator(soft=True)
    pod = npu_pod("p", (NpuDevice("U2", WORD, 4096, 90),), **{"huawei.com/vnpu-mode": "hami-core"})
    pod.metadata.annotations["huawei.com/Ascend310P"] = render_runtime([RuntimeNpu("U2", memory=4096, cores=90)])
    decision = plugin.allocate([pod], ["x"])
    assert isinstance(decision, Serve)
    assert decision.answer.env == {
        "ASCEND_VISIBLE_DEVICES": "1", "NPU_MEM_QUOTA": "4096", "NPU_PRIORITY": "90",
        "NPU_GLOBAL_SHM_PATH": "/hami-shared-region/1_global_registry", "NPU_LOCAL_SHM_PATH": "/hami-vnpu-shmem/vnpu_local_shmem",
    }  # fmt: skip
    mounts = {mount.container_path: (mount.host_path, mount.read_only) for mount in decision.answer.mounts}
    assert mounts["/etc/ld.so.preload"] == ("/usr/local/hami-vnpu-core/ld.so.preload", True)
    assert mounts["/hami-vnpu-shmem"] == (f"/usr/local/hami-vnpu-core/containers/{pod.uid}_c0", False)


def test_a_card_that_is_left_out_does_not_move_the_others_into_another_ring():
    cards = tuple(CardFacts(at, f"V{at}", "910B3", 64 << 30, minor=at) for at in range(8))
    sharing = NpuSharing(chip("910B3"), without_indices=frozenset({0}))
    found = registered(cards, {"V5": "ill"}, sharing)
    assert [(card.id, card.index, card.ring) for card in found][:4] == [("V1", 0, 0), ("V2", 1, 0), ("V3", 2, 0), ("V4", 3, 1)]
    assert [card.id for card in found if not card.healthy] == ["V5"]


def test_the_node_says_its_cards_its_mode_and_that_the_plugin_lives():
    plugin, node = allocator(), convert(Node, {"metadata": {"name": NODE}})
    [patch] = plugin.missing(node)
    assert isinstance(patch, PatchNode)
    found = parse_npu_register(patch.annotations["hami.io/node-register-Ascend310P"])
    assert [card.id for card in found.cards] == ["U1", "U2", "U3"]
    assert patch.annotations["hami-vnpu-core"] == "false"
    node.metadata.annotations.update(patch.annotations)
    assert plugin.missing(node) == []
    assert len(plugin.units(RESOURCE)) == 21


def test_the_handshake_is_written_every_half_minute_and_whenever_somebody_asks():
    shake, node = Handshake(WORD), convert(Node, {"metadata": {"name": NODE}})
    [first] = shake.due(node, 0.0, "2026-01-01T00:00:00Z")
    key, text = next(iter(first.annotations.items()))
    assert key == "hami.io/node-handshake-Ascend310P"
    assert text.startswith("Reported_20")
    assert text.count(".") == 2
    node.metadata.annotations[key] = text
    assert shake.due(node, 29.0, "2026-01-01T00:00:29Z") == []
    node.metadata.annotations[key] = "Requesting_2026-01-01 00:00:29"
    assert shake.due(node, 29.0, "2026-01-01T00:00:29Z") != []


@pytest.mark.parametrize("text", ["", "{", "3", '[{"UUID": 3}]', '[{"temp": "vir02"}]', '[{"UUID": "U", "temp": 2}]', "[[]]"])
def test_runtime_information_that_is_none_is_told(text: str):
    assert parse_runtime(text) is None


def test_runtime_information_is_read_back_with_what_hami_adds():
    cards = (RuntimeNpu("U1", "vir02"), RuntimeNpu("U2"), RuntimeNpu("U3", memory=4096, cores=90))
    assert parse_runtime(render_runtime(cards)) == cards
    both = json.dumps([{"UUID": "U1", "temp": "vir01", "memory": 3072, "core": 1}])
    assert parse_runtime(both) == (RuntimeNpu("U1", "vir01", 3072, 1),)
