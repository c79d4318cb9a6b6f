"""Whatever the scheduler grants on cards that this plugin advertises, this plugin hands out: both sides joined by the wire."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from kit.device_world import card as foreign_card
from kit.device_world import vgpu_node
from kit.mig_rules import RuledSlices
from kit.node_objects import units_of
from kit.scheduler_confs import conf
from kit.seeds import chosen_seed
from tests.property.cutting import MortalJournal

from pumice.devices.nvidia_gpushare.node.allocator import Legacy, ShareAllocator
from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.devices.nvidia_vgpu.node.inventory import hollow_node, share, share_list
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter, Given
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.effects.vocabulary import Bind
from pumice.model.amount import MIB
from pumice.node.pods import NodePod
from pumice.node.protocol import Partition, Serve
from pumice.ports.cards import CardFacts
from pumice.scheduler.engine import Engine
from pumice.wire import names, volcano
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

MODELS = (("Tesla V100-SXM2-16GB", 16384), ("NVIDIA A100-SXM4-40GB", 40960), ("NVIDIA A100-SXM4-80GB", 81920))
BOUND = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


def engine_with(**arguments: Any) -> Engine:
    reported = {key.replace("__", "."): value for key, value in arguments.items()}
    engine = Engine(parse_scheduler_conf(conf("predicates", {"deviceshare": reported}, "nodeorder")))
    engine.state.groups.put_queue(convert(Queue, volcano.default_queue("default", reclaimable=True)))
    return engine


def facts_of(rng: random.Random, node: str) -> tuple[CardFacts, ...]:
    """Cards of one node: some in MIG mode."""
    kind, mib = rng.choice(MODELS)
    mig = rng.choice((0.0, 0.5, 1.0)) if "A100" in kind else 0.0
    return tuple(CardFacts(i, f"GPU-{node}-{i}", kind, mib * MIB, minor=i, mig=rng.random() < mig)
                 for i in range(rng.randint(1, 4)))  # fmt: skip


def pod_object(rng: random.Random, number: int) -> dict[str, Any]:
    containers = []
    for at in range(rng.choice((1, 1, 2, 3))):
        wanted: dict[str, Any] = {names.VGPU_NUMBER: rng.choice((1, 1, 1, 2))}
        if rng.random() < 0.8:
            wanted[names.VGPU_MEMORY] = rng.choice((1000, 3000, 5120, 9000, 18000, 40000))
        elif rng.random() < 0.5:
            wanted[names.VGPU_MEMORY_PERCENTAGE] = rng.choice((1, 30, 50, 99, 100))
        if rng.random() < 0.5:
            wanted[names.VGPU_CORES] = rng.choice((0, 10, 30, 50, 100))
        containers.append({"name": f"c{at}", "resources": {"limits": wanted}})
    notes = {names.VGPU_MODE: rng.choice(("mig", "hami-core"))} if rng.random() < 0.3 else {}
    if rng.random() < 0.2:
        notes[names.NODE_POLICY] = rng.choice(("spread", "binpack"))
    return {"metadata": {"name": f"p{number}", "namespace": "ns", "uid": f"uid-p{number}", "annotations": notes},
            "spec": {"schedulerName": "volcano", "containers": containers}, "status": {"phase": "Pending"}}  # fmt: skip


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
def test_every_grant_over_an_advertised_inventory_is_accepted_by_the_nodes_answer(policy: str) -> None:
    seed = chosen_seed()
    print("seed", seed)
    rng = random.Random(f"{seed}{policy}")
    served = cut = foreign = 0
    for world in range(25):
        sharing = Sharing(split=rng.choice((2, 10)))
        arguments = {"deviceshare__VGPUEnable": "true", "pumice__MigPolicy": rng.choice(("listed", "tightest", "expected"))}
        engine = engine_with(**arguments, **({"deviceshare__SchedulePolicy": policy} if policy else {}))
        desks: dict[str, VgpuAllocator] = {}
        cutters: dict[str, Cutter] = {}
        for number in range(rng.randint(2, 4)):
            name = f"n{world}-{number}"
            cards = facts_of(rng, name)
            cutters[name] = Cutter(RuledSlices({c.uuid: c.name.removeprefix("NVIDIA ") if c.mig else "" for c in cards}),
                                   MortalJournal())  # fmt: skip
            desks[name] = VgpuAllocator(name, sharing, ResponseOptions(), random.Random(1), cards)
            engine.state.bookings.put_node(convert(Node, hollow_node(name, cards, sharing)))
        theirs = vgpu_node("theirs", *(foreign_card(f"GPU-t-{i}", 40960, 10, "NVIDIA-NVIDIA A100-SXM4-40GB", mode="mig")
                                       for i in range(2)))  # fmt: skip
        theirs.status.allocatable |= {"pods": 100}
        engine.state.bookings.put_node(theirs)
        pods = [pod_object(rng, number) for number in range(12)]
        for obj in pods:
            engine.state.pods.put(convert(Pod, obj))
        binds = [effect for effect in engine.cycle(100.0).effects if isinstance(effect, Bind)]
        for bind in binds:
            obj = next(pod for pod in pods if pod["metadata"]["uid"] == bind.uid)
            if bind.node == "theirs":
                foreign += 1
                continue
            meta = {**obj["metadata"], "annotations": {**obj["metadata"]["annotations"], **bind.annotations}}
            bound = convert(NodePod, {**obj, "metadata": meta, "spec": {**obj["spec"], "nodeName": bind.node}, "status": BOUND})
            for container in obj["spec"]["containers"]:
                count = container["resources"]["limits"][names.VGPU_NUMBER]
                decision = desks[bind.node].allocate([bound], [f"id-{i}" for i in range(count)])
                if isinstance(decision, Partition):
                    given = cutters[bind.node].cut(decision.places, bind.uid, lambda uid: uid)
                    assert isinstance(given, Given), given
                    decision = decision.then(given.slices)
                    cut += 1
                assert isinstance(decision, Serve), f"{meta}: {decision}"
                desks[bind.node].committed(decision)
                served += 1
    assert min(served, cut) > 10, (served, cut, foreign)


def test_every_legacy_grant_is_accepted_by_the_nodes_answer() -> None:
    rng = random.Random(1)
    served = 0
    for world in range(20):
        engine = engine_with(deviceshare__GPUSharingEnable="true")
        cards = tuple(replace(card, mig=False, memory=16384 * MIB) for card in facts_of(rng, f"n{world}"))
        legacy = Legacy("share", 1)
        units = {names.GPU_MEMORY: str(len(legacy.units(cards, {}))), names.GPU_NUMBER: str(len(cards)), "pods": "100"}
        status = {"capacity": units, "allocatable": units}
        engine.state.bookings.put_node(convert(Node, {"metadata": {"name": "n"}, "status": status}))
        allocator = ShareAllocator("n", legacy, cards)
        for number in range(6):
            amount = rng.choice((1000, 5000, 9000, 16384))
            obj = {"metadata": {"name": f"p{number}", "uid": f"u{number}"}, "status": {"phase": "Pending"},
                   "spec": {"schedulerName": "volcano",
                            "containers": [{"name": "c", "resources": {"limits": {names.GPU_MEMORY: amount}}}]}}  # fmt: skip
            engine.state.pods.put(convert(Pod, obj))
            for bind in (e for e in engine.cycle(100.0 + number).effects if isinstance(e, Bind)):
                bound = {**obj, "metadata": {**obj["metadata"], "annotations": bind.annotations},
                         "spec": {**obj["spec"], "nodeName": "n"}, "status": BOUND}  # fmt: skip
                decision = allocator.allocate([convert(NodePod, bound)], units_of(amount))
                assert isinstance(decision, Serve), decision
                allocator.committed(decision)
                served += 1
    assert served > 40


def test_cards_that_are_not_offered_stay_in_the_list_of_devices() -> None:
    """The kubelet keeps what runs on them; it hands none of them out."""
    cards = (CardFacts(0, "GPU-a", "Tesla V100-SXM2-16GB", 16384 * MIB, minor=0, mig=True),)
    assert {unit.healthy for unit in share_list(share(cards, Sharing()))} == {False}
