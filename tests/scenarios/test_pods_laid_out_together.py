"""Pods that wait together for MIG slices are laid out together, and never worse than one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from kit.engine_world import ALL_PLUGINS, World
from kit.objects import group, node, pod, queue
from kit.room_worlds import MIG, mig_node

SLICES = {"group1": [5120] * 7, "group2": [10240] * 3 + [5120], "group3": [20480] * 2, "group4": [40960]}
VGPU = "deviceshare.VGPUEnable: true"


def conf(plan: str, policy: str = "tightest") -> str:
    return ALL_PLUGINS.replace(VGPU, f"{VGPU}\n      pumice.PlanPendingSet: {plan}\n      pumice.MigPolicy: {policy}")


def singles(asks: Sequence[int], **more: Any) -> list[dict[str, Any]]:
    return [pod(f"p{at}", mib=mib, annotations=MIG, **more) for at, mib in enumerate(asks)]


def bound(world: World, asks: Sequence[int], name: str = "p") -> list[int]:
    return [mib for at, mib in enumerate(asks) if world.node_of(f"{name}{at}")]


@pytest.mark.parametrize("asks", [(3000, 20000), (3000, 9000), (4000, 4000, 9000, 9000), (3000, 18000, 40000)])
@pytest.mark.parametrize("plan", ["none", "kept"])
def test_a_small_pod_that_comes_first_leaves_the_layout_that_those_behind_it_need(asks: tuple[int, ...], plan: str) -> None:
    world = World(conf(plan))
    world.add(mig_node("n"), *(() if asks[-1] < 40000 else (mig_node("m"),)), *singles(asks))
    world.settle()
    assert (bound(world, asks) == list(asks)) is (plan == "kept")


def test_nothing_is_laid_out_where_no_card_is_in_mig_mode() -> None:
    world = World()
    world.add(node("n", cards=1, mib=16000), *singles((3000, 16000)))
    del world.pods["default/p0"]["metadata"]["annotations"]["volcano.sh/vgpu-mode"]
    (ask,) = world.engine.state.tasks[world.pods["default/p0"]["metadata"]["uid"]].cls.device_requests
    planner = world.engine.state.ledger.device_tables[ask.device_type].device_type.planner
    assert planner is not None
    assert not planner.plannable(ask)
    world.add(mig_node("m"))
    assert planner.plannable(ask)


def test_nobody_loses_the_place_that_it_would_have_alone() -> None:
    world = World()
    world.add(mig_node("n"), *singles((3000, 40000)))
    world.settle()
    assert bound(world, (3000, 40000)) == [3000]


def test_of_pods_that_stand_equal_the_most_memory_is_served_where_that_is_asked_for() -> None:
    world = World(conf("fullest"))
    world.add(mig_node("n"), *singles((3000, 40000)))
    world.settle()
    assert bound(world, (3000, 40000)) == [40000]


def test_a_more_important_pod_loses_nothing_to_a_larger_one() -> None:
    world = World(conf("fullest"))
    first, second = singles((3000, 40000))
    first["spec"]["priority"] = 5
    world.add(mig_node("n"), first, second)
    world.settle()
    assert bound(world, (3000, 40000)) == [3000]


@pytest.mark.parametrize(("most", "got"), [("22000", [3000]), ("42000", [3000, 18000])])
def test_a_queue_pays_for_what_is_laid_out_and_no_more(most: str, got: list[int]) -> None:
    world = World()
    world.add(queue("q", capability={"volcano.sh/vgpu-memory": most}), mig_node("n"))
    world.add(*singles((3000, 18000, 18000), queue="q"))
    world.settle()
    assert bound(world, (3000, 18000, 18000)) == got


@pytest.mark.parametrize("plan", ["none", "kept"])
def test_a_gang_stands_where_slices_may_lie_anywhere_and_no_order_would_do(plan: str) -> None:
    asks = (10000, 14000, 14000, 10000, 5000, 10000)
    world = World(conf(plan, "listed").replace(VGPU, f"{VGPU}\n      pumice.MigOffGroup: true"))
    world.add(mig_node("n", 2, places=True), pod("r", mib=3000, annotations=MIG))
    world.settle()
    world.add(group("g", minimum=len(asks)), *(pod(f"g{at}", group="g", mib=m, annotations=MIG) for at, m in enumerate(asks)))
    world.settle()
    assert (bound(world, asks, "g") == list(asks)) is (plan == "kept")


def feasible(asks: Sequence[int], cards: Sequence[tuple[str, Sequence[int]]]) -> bool:
    """Return whether asks fit cards, each with its group (empty: none yet) and what is taken of its slots, by trying every
    layout."""
    if not asks:
        return True
    if not cards:
        return False
    active, taken = cards[0]
    for name, sizes in SLICES.items() if not active else ((active, SLICES[active]),):
        free, rest = sorted(sizes), []
        for size in taken if name == active else ():
            free.remove(size)
        for ask in sorted(asks, reverse=True):
            slot = next((size for size in free if size >= ask), None)
            if slot is None:
                rest.append(ask)
            else:
                free.remove(slot)
        if feasible(rest, cards[1:]):
            return True
    return False


def cards_of(world: World, number: int) -> list[tuple[str, list[int]]]:
    """The cards of node n, as the pods' own annotations have them."""
    found: list[tuple[str, list[int]]] = [("", []) for _ in range(number)]
    for bound_pod in world.pods.values():
        text = bound_pod["metadata"]["annotations"].get("volcano.sh/vgpu-ids-new", "")
        if "[" not in text:
            continue
        uuid, slot = text.split("[")[0], text.split("[")[1].split("]")[0]
        name, _, at = slot.rpartition("-")
        card = int(uuid.rsplit("-", 1)[1])
        found[card] = name, [*found[card][1], SLICES[name][int(at)]]
    return found


@pytest.mark.parametrize("policy", ["tightest", "listed"])
def test_of_random_gangs_that_fit_cards_in_use_all_are_placed(policy: str) -> None:
    seed = int(os.environ.get("PUMICE_SEED", "7"))
    rng = Random(seed)
    counts = dict.fromkeys(("none", "kept"), 0)
    fitting = 0
    for number in range(120):
        cards = rng.choice((1, 2, 3))
        running = [rng.choice((3000, 9000, 18000)) for _ in range(rng.randint(0, 2 * cards))]
        asks = [rng.choice((3000, 5000, 9000, 10000, 18000, 20000)) for _ in range(rng.randint(2, 4 * cards))]
        fits = None
        for plan in counts:
            world = World(conf(plan, policy), seed=number)
            world.add(mig_node("n", cards))
            for at, mib in enumerate(running):
                world.add(pod(f"r{at}", mib=mib, annotations=MIG))
                world.settle()
            fits = feasible(asks, cards_of(world, cards))
            if not fits:
                break
            world.add(group("g", minimum=len(asks)))
            world.add(*(pod(f"g{at}", group="g", mib=mib, annotations=MIG) for at, mib in enumerate(asks)))
            world.settle()
            counts[plan] += bound(world, asks, "g") == asks
        fitting += bool(fits)
    print(seed, policy, counts, fitting)
    assert fitting > 30
    assert counts["kept"] >= counts["none"]
    assert counts["kept"] == fitting
