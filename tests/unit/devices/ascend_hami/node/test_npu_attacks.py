"""A pod whose owner writes its annotations anew gets no more of an NPU than it asks for, and nothing that others hold."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kit.npu_world import chip

from pumice.devices.ascend_hami.inventory import units_of
from pumice.devices.ascend_hami.node.allocator import NpuAllocator
from pumice.devices.ascend_hami.node.answer import NpuSharing
from pumice.model.hardware.npu import NpuChip
from pumice.node.pods import NodePod
from pumice.node.protocol import Conflict, Outdated, Partition, Serve
from pumice.ports.cards import CardFacts
from pumice.wire import variables
from pumice.wire.ascend_hami import (
    NpuDevice,
    RuntimeNpu,
    allocated_key,
    render_npu_binding,
    render_npu_devices,
    render_runtime,
    runtime_key,
    to_allocate_key,
)
from pumice.wire.objects import convert

NODE, P310, B2 = "node-a", chip("310P3"), chip("910B2")
Kept = tuple[str, int, str]


def allocator(kind: NpuChip = P310, **more: Any) -> NpuAllocator:
    made = NpuAllocator(NODE, NpuSharing(kind, **more))
    made.show([CardFacts(at, f"U{at + 1}", kind.name, 24 << 30, minor=at) for at in range(3)], {})
    return made


def pod(name: str, device_requests: int, *given: Kept, kind: NpuChip = P310, admitted: bool = False, cores: int = 0,
        **notes: str) -> NodePod:  # fmt: skip
    """It asks for so many MB of one card (0: all of it) and says that it was given these: UUID, MB, template."""
    devices = [NpuDevice(uuid, kind.word, memory, 0) for uuid, memory, _ in given]
    written = render_npu_binding(kind.word, NODE, [devices], [RuntimeNpu(uuid, template) for uuid, _, template in given], 10**9)
    limits = {kind.resource: max(1, len(given))} | ({kind.memory_resource: device_requests} if device_requests else {})
    limits |= {kind.core_resource: cores} if cores else {}
    status: dict[str, Any] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return convert(NodePod, {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {**written, **notes}},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {**status, "startTime": "2026-01-01T00:00:00Z", "phase": "Running"} if admitted else status,
    })  # fmt: skip


def serve(plugin: NpuAllocator, *pods: NodePod) -> dict[str, str]:
    decision = plugin.allocate(pods, ["x"])
    done = decision.then({}) if isinstance(decision, Partition) else decision
    assert isinstance(done, Serve), done
    plugin.committed(done)
    return dict(done.answer.env)


FORGED = [
    ("a larger template", pod("p", 3072, ("U1", 3072, "vir04")), "give it vir04"),
    ("the whole card by leaving the template out", pod("p", 3072, ("U1", 3072, "")), "give it the whole card"),
    ("the whole card, booked as such", pod("p", 3072, ("U1", 21527, "")), "give it the whole card"),
    ("a template that nobody knows", pod("p", 3072, ("U1", 3072, "vir99")), "give it vir99"),
    ("more than the chip has", pod("p", 99999, ("U1", 99999, "vir04")), "99999 is invalid"),
    ("less booked than is handed out", pod("p", 6144, ("U1", 1, "vir02")), "(1 MB)"),
    ("a number that is none", pod("p", 6144, ("U1", -5, "vir02")), "(0 MB)"),
    ("a number beyond all bounds", pod("p", 6144, ("U1", 10**40, "vir02")), "(0 MB)"),
    ("a slice of a card that it asks all of", pod("p", 0, ("U1", 21527, "vir01")), "give it vir01"),
    ("a card of another node", pod("p", 3072, ("U9", 3072, "vir01")), "unknown uuid: U9"),
    ("one card twice", pod("p", 0, ("U1", 21527, ""), ("U1", 21527, "")), "named more than once"),
    ("compute beside a template", pod("p", 3072, ("U1", 3072, "vir01"), cores=50), "only supported in hami-core"),
]


@pytest.mark.parametrize(("forged", "reported"), [row[1:] for row in FORGED], ids=[row[0] for row in FORGED])
def test_what_differs_from_what_the_pod_asks_for_is_not_handed_out(forged: NodePod, reported: str) -> None:
    decision = allocator().allocate([forged], ["x"] * forged.spec.containers[0].requested(P310.resource))
    assert not isinstance(decision, Serve | Partition | Conflict | None)
    assert reported in decision.reason


@pytest.mark.parametrize(
    ("memory", "cores", "wanted"),
    [(8192, 50, (4096, 50)), (4096, 100, (4096, 50)), (4096, 0, (4096, 50)), (0, 50, (4096, 50)), (4096, 50, (0, 50))],
)
def test_a_soft_share_is_what_was_asked_for_to_the_last_megabyte(memory: int, cores: int, wanted: tuple[int, int]) -> None:
    plugin = allocator(soft=True)
    forged = pod("p", wanted[0], ("U1", wanted[0] or P310.memory, ""), cores=wanted[1], **{"huawei.com/vnpu-mode": "hami-core"})
    forged.metadata.annotations[runtime_key(P310.word)] = render_runtime([RuntimeNpu("U1", memory=memory, cores=cores)])
    assert isinstance(plugin.allocate([forged], ["x"]), Outdated)


def test_a_pod_that_takes_its_mode_away_does_not_get_the_card_that_it_shares() -> None:
    forged = pod("p", 4096, ("U1", 4096, ""), cores=10)
    assert "only supported in hami-core" in allocator(soft=True).allocate([forged], ["x"]).reason


CLASHES = [
    ("two that have the whole card", [("a", 0, ("U1", 21527, ""))], ("b", 0, ("U1", 21527, "")), P310),
    ("a slice of a whole card", [("a", 0, ("U1", 21527, ""))], ("b", 3072, ("U1", 3072, "vir01")), P310),
    ("a whole card with a slice", [("a", 3072, ("U1", 3072, "vir01"))], ("b", 0, ("U1", 21527, "")), P310),
    ("memory", [("a", 12288, ("U1", 12288, "vir04"))], ("b", 12288, ("U1", 12288, "vir04")), P310),
    ("AI CPUs", [(f"a{at}", 8192, ("U1", 8192, "vir03_1c_8g")) for at in range(6)],
     ("b", 8192, ("U1", 8192, "vir03_1c_8g")), B2),
    ("vGroups", [(f"a{at}", 3072, ("U1", 3072, "vir01")) for at in range(3)], ("b", 12288, ("U1", 12288, "vir04")), P310),
]  # fmt: skip


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize(("first", "second", "kind"), [row[1:] for row in CLASHES], ids=[row[0] for row in CLASHES])
def test_what_another_pod_holds_is_not_handed_out_again(first: list[Any], second: Any, kind: NpuChip, restarted: bool) -> None:
    plugin, there = allocator(kind), []
    for row in first:
        there.append(pod(*row, kind=kind, admitted=restarted))
        if not restarted:
            serve(plugin, *there)
    late = pod(*second, kind=kind)
    decision = plugin.allocate([*there, late], ["x"])
    assert isinstance(decision, Conflict), decision
    assert "card U1 has" in decision.reason
    for other in there:
        other.status.phase = "Succeeded"
    plugin.sweep([*there, late])
    serve(plugin, *there, late)


def test_the_number_of_pods_of_a_card_is_kept_too() -> None:
    plugin = allocator(shares=1)
    first, second = (pod(name, 3072, ("U1", 3072, "vir01")) for name in "ab")
    serve(plugin, first)
    assert isinstance(plugin.allocate([first, second], ["x"]), Conflict)


@pytest.mark.parametrize(
    "text", ["U1,Ascend310P,21527,0:U2,Ascend310P,21527,0:U3,Ascend310P,21527,0:;", "U1,Ascend310P,999999999,0:;", "", ";" * 5000]
)
def test_who_claims_more_than_he_asks_for_denies_it_to_nobody(text: str) -> None:
    liar = pod("liar", 3072, ("U3", 3072, "vir01"), admitted=True, **{allocated_key(P310.word): text})
    plugin = allocator()
    assert serve(plugin, liar, pod("p", 12288, ("U1", 12288, "vir04")))[variables.ASCEND_VNPU_SPECS] == "vir04"


def test_a_pod_whose_cards_are_rewritten_after_it_was_served_is_held_to_what_it_got() -> None:
    plugin, first = allocator(), pod("a", 0, ("U1", 21527, ""))
    serve(plugin, first)
    first.metadata.annotations[allocated_key(P310.word)] = "U2,Ascend310P,21527,0:;"
    first.status.phase, first.status.start_time = "Running", "2026-01-01T00:00:00Z"
    plugin.kubelet_restarted()
    assert isinstance(plugin.allocate([first, pod("b", 0, ("U1", 21527, ""))], ["x"]), Conflict)
    assert serve(plugin, first, pod("c", 0, ("U2", 21527, "")))[variables.ASCEND_VISIBLE_DEVICES] == "1"


def test_whatever_is_forged_no_card_is_given_away_twice() -> None:
    """Random pods, of which half say something else than the scheduler did."""
    for seed in range(400):
        rng = random.Random(seed)
        plugin, there = allocator(), []
        given: dict[str, list[str]] = {}
        for number in range(12):
            device_requests = rng.choice((0, 3072, 6144, 12288))
            size = P310.cut(device_requests) if device_requests else P310.whole
            assert size is not None
            late = pod(f"p{number}", device_requests, (f"U{rng.randint(1, 3)}", size.memory, size.name))
            if rng.random() < 0.5:
                wrong = NpuDevice(f"U{rng.randint(1, 4)}", P310.word, rng.choice((0, 1, 3072, 21527, 10**9)), 0)
                text = render_npu_devices([[wrong]])
                forged = {
                    allocated_key(P310.word): text, to_allocate_key(P310.word): text,
                    runtime_key(P310.word): render_runtime([RuntimeNpu(wrong.uuid, rng.choice(("", "vir01", "vir04")))]),
                }  # fmt: skip
                late.metadata.annotations.update({key: forged[key] for key in rng.sample(sorted(forged), rng.randint(1, 3))})
            there.append(late)
            decision = plugin.allocate(there, ["x"])
            done = decision.then({}) if isinstance(decision, Partition) else decision
            if isinstance(done, Serve):
                plugin.committed(done)
                done.pod.status.phase = "Running"
                done.pod.status.start_time = "2026-01-01T00:00:00Z"
                env = done.answer.env
                given.setdefault(env[variables.ASCEND_VISIBLE_DEVICES], []).append(env.get(variables.ASCEND_VNPU_SPECS, ""))
            else:
                there.remove(late)
        for slices in given.values():
            assert "" not in slices or len(slices) == 1, (seed, given)
            for at, template in enumerate(slices):
                assert not template or units_of(P310).missing(template, slices[:at]) is None, (seed, given)
