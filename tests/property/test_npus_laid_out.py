"""Pods that wait together for parts of NPUs, laid out together: the best there is on one chip, never worse than one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from itertools import combinations, permutations
from random import Random
from typing import Any

import pytest
from kit.device_world import TinyLedger
from kit.engine_world import World
from kit.npu_core_world import core_device_type, core_node, core_pod_object, cut_world
from kit.npu_world import chip, npu_device_type, npu_limits, npu_node, npu_node_object, npu_pod
from kit.objects import group, pod
from kit.scheduler_confs import conf, sharing

from pumice.devices.ascend_mindcluster.fit import chips_of
from pumice.devices.ascend_mindcluster.inventory import container_device_of
from pumice.devices.ascend_mindcluster.scheduling import Partition
from pumice.devices.protocol import DeviceRequest, Fit, Planned
from pumice.model.cards import Allocation
from pumice.model.hardware.npu import slice_kinds
from pumice.wire.ascend_hami import use_key
from pumice.wire.objects import Pod, convert

SEED = int(os.environ.get("PUMICE_SEED", "11"))
CLUSTERS = 40
CONF = conf("priority", "gang", "predicates", sharing("AscendHAMiVNPU", SchedulePolicy="%s", PlanPendingSet="%s"))
KINDS = {name: chip(name) for name in ("310P3", "910A", "910B2", "910B4")}


def sizes_of(name: str) -> list[int | None]:
    """In MB; None: the whole chip."""
    return [*(template.memory for template in KINDS[name].templates), None]


def every_order_stands(ledger: TinyLedger, pods: Sequence[Pod]) -> bool:
    """Return whether they fit the node of one chip, whoever of them comes first."""
    before, seen = dict(ledger.allocated), set()
    for order in permutations(pods):
        kind = tuple(str(one.spec.containers[0].resources.limits) for one in order)
        if kind in seen:
            continue
        seen.add(kind)
        stands = all(isinstance(ledger.place(one, "n"), Fit) for one in order)
        ledger.allocated = dict(before)
        if not stands:
            return False
    return True


def size(device_type: Any, one: Pod) -> int:
    return device_type.least_memory(device_type.device_request(one)) or device_type.chip.memory


@pytest.mark.parametrize("name", KINDS)
def test_on_one_chip_the_layout_is_the_best_that_stands_in_any_order(name: str) -> None:
    rng, kind, device_type = Random(f"{SEED}-{name}"), KINDS[name], npu_device_type(name)
    for _ in range(25):
        ledger = TinyLedger(device_type)
        ledger.add_node(npu_node("n", kind))
        for at in range(rng.choice((0, 0, 1, 2))):
            ledger.place(npu_pod(f"r{at}", npu_limits(kind, 1, rng.choice(sizes_of(name)[:-1]))), "n")
        pods = [npu_pod(f"p{at}", npu_limits(kind, 1, rng.choice(sizes_of(name)))) for at in range(rng.randint(2, 5))]
        must = {one.metadata.uid for one in pods if rng.random() < 0.3}

        def worth(served: Sequence[Pod], must: set[str] = must) -> tuple[int, int]:
            return sum(one.metadata.uid in must for one in served), sum(size(device_type, one) for one in served)

        best = max(worth(some) for number in range(len(pods) + 1) for some in combinations(pods, number)
                   if every_order_stands(ledger, some))  # fmt: skip
        device_requests = {one.metadata.uid: device_type.device_request(one) for one in pods}
        planned = [
            Planned(device_request, frozenset((0,)), uid in must)
            for uid, device_request in device_requests.items()
            if isinstance(device_request, DeviceRequest)
        ]
        spots = device_type.planner.lay_out(planned, [ledger.view("n")])
        served = [one for one, spot in zip(pods, spots, strict=True) if spot is not None]
        assert worth(served) == best, (name, pods, ledger.allocated)
        assert every_order_stands(ledger, served)


def world_of(policy: str, plan: str, name: str, nodes: Sequence[int]) -> World:
    world = World(CONF % (policy, plan))
    world.add(*(npu_node_object(f"n{at}", KINDS[name], count) for at, count in enumerate(nodes)))
    return world


def served(world: World, count: int) -> set[int]:
    return {at for at in range(count) if world.node_of(f"p{at}")}


def asking(name: str, rng: Random, nodes: Sequence[int]) -> dict[str, Any]:
    """A request; some name the chips that they may have."""
    kind, amount = KINDS[name], rng.choice(sizes_of(name))
    every = [f"n{at}-{card + 1}" for at, count in enumerate(nodes) for card in range(count)]
    some = rng.sample(every, rng.randint(1, len(every))) if rng.random() < 0.4 else []
    return {"limits": npu_limits(kind, 1, amount), "annotations": {use_key(kind.word): ",".join(some)} if some else {}}


@pytest.mark.parametrize("gang", [False, True])
def test_nobody_loses_by_a_layout_and_some_gain(gang: bool) -> None:
    """Chips in use, and pods that come at once: single ones, or a gang of them."""
    gained = 0
    for number in range(CLUSTERS):
        rng = Random(f"{SEED}-{gang}-{number}")
        name, policy = rng.choice(sorted(KINDS)), rng.choice(("binpack", "spread", "none"))
        nodes = [rng.randint(1, 2) for _ in range(rng.randint(1, 3))]
        running = [rng.choice(sizes_of(name)[:-1]) for _ in range(rng.randint(0, 2 * sum(nodes)))]
        gone = {at for at in range(len(running)) if rng.random() < 0.3}
        device_requests = [asking(name, rng, nodes) for _ in range(rng.randint(2, 3 * sum(nodes)))]
        found = {}
        for plan in ("none", "kept"):
            world = world_of(policy, plan, name, nodes)
            for at, mb in enumerate(running):
                world.add(pod(f"r{at}", limits=npu_limits(KINDS[name], 1, mb)))
                world.settle()
            for at in gone:
                world.delete_pod(f"r{at}")
            if gang:
                world.add(group("g", minimum=len(device_requests)))
            world.add(
                *(
                    pod(f"p{at}", group="g" if gang else None, **device_request)
                    for at, device_request in enumerate(device_requests)
                )
            )
            world.settle()
            found[plan] = served(world, len(device_requests))
        assert found["kept"] >= found["none"], (number, name, policy, nodes, running, device_requests)
        gained += found["kept"] > found["none"]
    print(SEED, gang, gained)
    assert gang or gained > 0


# -- chips that are cut on demand --------------------------------------------------------------------------------------------

KIND = slice_kinds()["Ascend310P"]
CUT = conf("gang", "predicates", sharing("AscendMindClusterVNPU", ScheduleWeight=10, NpuPolicy="%s", PlanPendingSet="%s"))


def held_chip(rng: Random) -> list[str]:
    """The templates of slices that fit a chip together."""
    cores, cpus, found = 8, 7, []
    for name in rng.choices(("vir01", "vir02", "vir02_1c", "vir04", "vir04_3c"), k=rng.choice((0, 1, 1, 2, 3))):
        template = KIND.templates[name]
        if template.cores <= cores and template.cpus <= cpus:
            cores, cpus = cores - template.cores, cpus - template.cpus
            found.append(name)
    return found


def most(ledger: TinyLedger, device_requests: Sequence[DeviceRequest]) -> int:
    """The AI cores that any choice of pods, templates and chips serves on node n."""
    if not device_requests:
        return 0
    device_type: Any = ledger.device_type
    found, want = most(ledger, device_requests[1:]), device_requests[0].detail
    for template in want.templates or (None,):
        for allocated in chips_of(ledger.view("n"), device_type.kind):
            fit = device_type.planner.fit(
                device_requests[0], ledger.view("n"), Partition(template, (allocated.cores, allocated.cpus, allocated.state))
            )
            if fit is not None:
                uid = f"u{len(ledger.allocated)}"
                ledger.allocated[uid] = (npu_pod(uid), fit.allocation)
                found = max(found, want.cores + most(ledger, device_requests[1:]))
                del ledger.allocated[uid]
    return found


def cut_pod(rng: Random, at: int, group: str | None = None) -> Any:
    cores = rng.choice((1, 1, 2, 2, 4, 8))
    dvpp = rng.choice(("null", "null", "yes", "no")) if cores == 4 else "null"
    return core_pod_object(f"p{at}", cores, rng.choice(("low", "high")), dvpp, priority=20 - at, group=group)


@pytest.mark.parametrize("policy", ["listed", "expected"])
def test_on_one_node_whose_chips_are_cut_on_demand_the_layout_is_the_best_there_is(policy: str) -> None:
    rng, device_type = Random(f"{SEED}-{policy}"), core_device_type(npu_policy=policy)
    for _ in range(60):
        count = rng.randint(1, 3)
        ledger = TinyLedger(device_type)
        ledger.add_node(core_node("n", count))
        for at, name in ((at, name) for at in range(count) for name in held_chip(rng)):
            cards, uid = ledger.inventories["n"].cards, f"r{len(ledger.allocated)}"
            allocation = Allocation(
                device_type.name,
                "n",
                ((container_device_of(cards[at], KIND.templates[name], 7, len(ledger.allocated) % 4),),),
            )
            ledger.allocated[uid] = (npu_pod(uid), allocation)
        device_requests = [device_type.device_request(convert(Pod, cut_pod(rng, at))) for at in range(rng.randint(2, 5))]
        planned = [
            Planned(device_request, frozenset((0,)), False)
            for device_request in device_requests
            if isinstance(device_request, DeviceRequest)
        ]
        spots = device_type.planner.lay_out(planned, [ledger.view("n")])
        got = sum(pod.device_request.detail.cores for pod, spot in zip(planned, spots, strict=True) if spot is not None)
        assert got == most(ledger, [pod.device_request for pod in planned]), (planned, ledger.allocated)


@pytest.mark.parametrize("gang", [False, True])
def test_nobody_loses_by_a_layout_of_chips_that_are_cut_on_demand(gang: bool) -> None:
    gained = 0
    for number in range(CLUSTERS):
        rng = Random(f"{SEED}-cut-{gang}-{number}")
        nodes = [[held_chip(rng) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 4))]
        policy = rng.choice(("listed", "expected"))
        pods = [cut_pod(rng, at, "g" if gang else None) for at in range(rng.randint(2, 6))]
        found = {}
        for plan in ("none", "kept"):
            world = cut_world(CUT % (policy, plan), *nodes)
            world.add(*([group("g", minimum=len(pods))] if gang else []), *deepcopy(pods))
            world.cycle()
            found[plan] = served(world, len(pods))
        assert found["kept"] >= found["none"], (number, nodes, pods)
        gained += found["kept"] > found["none"]
    print(SEED, gang, gained)
    assert gang or gained > 0
