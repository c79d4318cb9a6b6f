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
from kit.npu_core_world import core_family, core_node, core_pod_object, cut_world
from kit.npu_world import chip, npu_family, npu_limits, npu_node, npu_node_object, npu_pod
from kit.objects import group, pod
from kit.scheduler_confs import conf, sharing

from pumice.devices.ascend_mindcluster.chips import piece_of
from pumice.devices.ascend_mindcluster.fit import chips_of
from pumice.devices.ascend_mindcluster.planning import Cut
from pumice.devices.protocol import Ask, Fit, Planned
from pumice.model.cards import Grant
from pumice.model.hardware.npu_slices import slice_kinds
from pumice.wire.ascend_hami import use_key
from pumice.wire.objects import Pod, convert

SEED = int(os.environ.get("PUMICE_SEED", "11"))
CONF = conf("priority", "gang", "predicates", sharing("AscendHAMiVNPU", SchedulePolicy="%s", PlanPendingSet="%s"))
KINDS = {name: chip(name) for name in ("310P3", "910A", "910B2", "910B4")}


def sizes_of(name: str) -> list[int | None]:
    """In MB; None: the whole chip."""
    return [*(template.memory for template in KINDS[name].templates), None]


def every_order_stands(ledger: TinyLedger, pods: Sequence[Pod]) -> bool:
    """Return whether they fit the node of one chip, whoever of them comes first."""
    before, seen = dict(ledger.held), set()
    for order in permutations(pods):
        kind = tuple(str(one.spec.containers[0].resources.limits) for one in order)
        if kind in seen:
            continue
        seen.add(kind)
        stands = all(isinstance(ledger.place(one, "n"), Fit) for one in order)
        ledger.held = dict(before)
        if not stands:
            return False
    return True


def size(family: Any, one: Pod) -> int:
    return family.least_memory(family.ask(one)) or family.chip.memory


@pytest.mark.parametrize("name", KINDS)
def test_on_one_chip_the_layout_is_the_best_that_stands_in_any_order(name: str) -> None:
    dice, kind, family = Random(f"{SEED}-{name}"), KINDS[name], npu_family(name)
    for _ in range(25):
        ledger = TinyLedger(family)
        ledger.add_node(npu_node("n", kind))
        for at in range(dice.choice((0, 0, 1, 2))):
            ledger.place(npu_pod(f"r{at}", npu_limits(kind, 1, dice.choice(sizes_of(name)[:-1]))), "n")
        pods = [npu_pod(f"p{at}", npu_limits(kind, 1, dice.choice(sizes_of(name)))) for at in range(dice.randint(2, 5))]
        must = {one.metadata.uid for one in pods if dice.random() < 0.3}

        def worth(served: Sequence[Pod], must: set[str] = must) -> tuple[int, int]:
            return sum(one.metadata.uid in must for one in served), sum(size(family, one) for one in served)

        best = max(worth(some) for number in range(len(pods) + 1) for some in combinations(pods, number)
                   if every_order_stands(ledger, some))  # fmt: skip
        asks = {one.metadata.uid: family.ask(one) for one in pods}
        planned = [Planned(ask, frozenset((0,)), uid in must) for uid, ask in asks.items() if isinstance(ask, Ask)]
        spots = family.planner.lay_out(planned, [ledger.view("n")])
        served = [one for one, spot in zip(pods, spots, strict=True) if spot is not None]
        assert worth(served) == best, (name, pods, ledger.held)
        assert every_order_stands(ledger, served)


def world_of(policy: str, plan: str, name: str, nodes: Sequence[int]) -> World:
    world = World(CONF % (policy, plan))
    world.add(*(npu_node_object(f"n{at}", KINDS[name], count) for at, count in enumerate(nodes)))
    return world


def served(world: World, count: int) -> set[int]:
    return {at for at in range(count) if world.node_of(f"p{at}")}


def asking(name: str, dice: Random, nodes: Sequence[int]) -> dict[str, Any]:
    """A request; some name the chips that they may have."""
    kind, amount = KINDS[name], dice.choice(sizes_of(name))
    every = [f"n{at}-{card + 1}" for at, count in enumerate(nodes) for card in range(count)]
    some = dice.sample(every, dice.randint(1, len(every))) if dice.random() < 0.4 else []
    return {"limits": npu_limits(kind, 1, amount), "annotations": {use_key(kind.word): ",".join(some)} if some else {}}


@pytest.mark.parametrize("gang", [False, True])
def test_nobody_loses_by_a_layout_and_some_gain(gang: bool) -> None:
    """Chips in use, and pods that come at once: single ones, or a gang of them."""
    gained = 0
    for number in range(100):
        dice = Random(f"{SEED}-{gang}-{number}")
        name, policy = dice.choice(sorted(KINDS)), dice.choice(("binpack", "spread", "none"))
        nodes = [dice.randint(1, 2) for _ in range(dice.randint(1, 3))]
        running = [dice.choice(sizes_of(name)[:-1]) for _ in range(dice.randint(0, 2 * sum(nodes)))]
        gone = {at for at in range(len(running)) if dice.random() < 0.3}
        asks = [asking(name, dice, nodes) for _ in range(dice.randint(2, 3 * sum(nodes)))]
        found = {}
        for plan in ("none", "kept"):
            world = world_of(policy, plan, name, nodes)
            for at, mb in enumerate(running):
                world.add(pod(f"r{at}", limits=npu_limits(KINDS[name], 1, mb)))
                world.settle()
            for at in gone:
                world.delete_pod(f"r{at}")
            if gang:
                world.add(group("g", minimum=len(asks)))
            world.add(*(pod(f"p{at}", group="g" if gang else None, **ask) for at, ask in enumerate(asks)))
            world.settle()
            found[plan] = served(world, len(asks))
        assert found["kept"] >= found["none"], (number, name, policy, nodes, running, asks)
        gained += found["kept"] > found["none"]
    print(SEED, gang, gained)
    assert gang or gained > 3


# -- chips that are cut on demand --------------------------------------------------------------------------------------------

KIND = slice_kinds()["Ascend310P"]
CUT = conf("gang", "predicates", sharing("AscendMindClusterVNPU", ScheduleWeight=10, NpuPolicy="%s", PlanPendingSet="%s"))


def held_chip(dice: Random) -> list[str]:
    """The templates of slices that fit a chip together."""
    cores, cpus, found = 8, 7, []
    for name in dice.choices(("vir01", "vir02", "vir02_1c", "vir04", "vir04_3c"), k=dice.choice((0, 1, 1, 2, 3))):
        template = KIND.templates[name]
        if template.cores <= cores and template.cpus <= cpus:
            cores, cpus = cores - template.cores, cpus - template.cpus
            found.append(name)
    return found


def most(ledger: TinyLedger, asks: Sequence[Ask]) -> int:
    """The AI cores that any choice of pods, templates and chips serves on node n."""
    if not asks:
        return 0
    family: Any = ledger.family
    found, want = most(ledger, asks[1:]), asks[0].detail
    for template in want.templates or (None,):
        for held in chips_of(ledger.view("n"), family.kind):
            fit = family.planner.fit(asks[0], ledger.view("n"), Cut(template, (held.cores, held.cpus, held.state)))
            if fit is not None:
                uid = f"u{len(ledger.held)}"
                ledger.held[uid] = (npu_pod(uid), fit.grant)
                found = max(found, want.cores + most(ledger, asks[1:]))
                del ledger.held[uid]
    return found


def cut_pod(dice: Random, at: int, group: str | None = None) -> Any:
    cores = dice.choice((1, 1, 2, 2, 4, 8))
    dvpp = dice.choice(("null", "null", "yes", "no")) if cores == 4 else "null"
    return core_pod_object(f"p{at}", cores, dice.choice(("low", "high")), dvpp, priority=20 - at, group=group)


@pytest.mark.parametrize("policy", ["listed", "expected"])
def test_on_one_node_whose_chips_are_cut_on_demand_the_layout_is_the_best_there_is(policy: str) -> None:
    dice, family = Random(f"{SEED}-{policy}"), core_family(npu_policy=policy)
    for _ in range(60):
        count = dice.randint(1, 3)
        ledger = TinyLedger(family)
        ledger.add_node(core_node("n", count))
        for at, name in ((at, name) for at in range(count) for name in held_chip(dice)):
            cards, uid = ledger.inventories["n"].cards, f"r{len(ledger.held)}"
            grant = Grant(family.name, "n", ((piece_of(cards[at], KIND.templates[name], 7, len(ledger.held) % 4),),))
            ledger.held[uid] = (npu_pod(uid), grant)
        asks = [family.ask(convert(Pod, cut_pod(dice, at))) for at in range(dice.randint(2, 5))]
        planned = [Planned(ask, frozenset((0,)), False) for ask in asks if isinstance(ask, Ask)]
        spots = family.planner.lay_out(planned, [ledger.view("n")])
        got = sum(pod.ask.detail.cores for pod, spot in zip(planned, spots, strict=True) if spot is not None)
        assert got == most(ledger, [pod.ask for pod in planned]), (planned, ledger.held)


@pytest.mark.parametrize("gang", [False, True])
def test_nobody_loses_by_a_layout_of_chips_that_are_cut_on_demand(gang: bool) -> None:
    gained = 0
    for number in range(100):
        dice = Random(f"{SEED}-cut-{gang}-{number}")
        nodes = [[held_chip(dice) for _ in range(dice.randint(1, 3))] for _ in range(dice.randint(1, 4))]
        policy = dice.choice(("listed", "expected"))
        pods = [cut_pod(dice, at, "g" if gang else None) for at in range(dice.randint(2, 6))]
        found = {}
        for plan in ("none", "kept"):
            world = cut_world(CUT % (policy, plan), *nodes)
            world.add(*([group("g", minimum=len(pods))] if gang else []), *deepcopy(pods))
            world.cycle()
            found[plan] = served(world, len(pods))
        assert found["kept"] >= found["none"], (number, nodes, pods)
        gained += found["kept"] > found["none"]
    print(SEED, gang, gained)
    assert gang or gained > 3
