"""A scheduler whose processor is busy with others runs out of time in every cycle, and gets somewhere all the same."""

from itertools import count
from typing import Any

import pytest
from kit.claims import asks, claim
from kit.device_claims import ClaimWorld, whole
from kit.engine_world import World
from kit.objects import group, node, pod

CYCLES = 60
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "gang"}}}]}}  # fmt: skip
"""Of pods that mind each other: places for them are found in one cycle."""


def cycles_without_time(world: World) -> int:
    """Play cycles that are out of time from their first step on, and return after how many there is nothing to do."""
    ticks = count()
    for number in range(CYCLES):
        if not world.engine.has_work(world.now):
            return number
        for effect in world.engine.cycle(world.now, world.rng, budget=0.5, tick=ticks.__next__).effects:
            world.perform(effect)
    return CYCLES


def test_what_came_free_is_offered_to_every_class_of_waiting_pods_in_turn() -> None:
    world = World()
    world.add(node("n1", cpu="1"), *(pod(f"p{i}", cpu=str(i)) for i in range(2, 9)))
    world.settle()
    world.add(node("n2", cpu="1"))
    assert cycles_without_time(world) < CYCLES


def test_pods_that_request_nothing_are_placed_one_by_one() -> None:
    world = World()
    world.add(node("n1", cpu="4"), *(pod(f"p{i}") for i in range(5)))
    assert cycles_without_time(world) < CYCLES
    assert len(world.placements()) == 5


@pytest.mark.parametrize("affinity", [APART, {}], ids=["searched for at once", "searched for over cycles"])
def test_a_gang_that_keeps_what_it_has_leaves_others_a_turn(affinity: dict[str, Any]) -> None:
    world = World()
    world.add(node("n1", cpu="2"), node("n2", cpu="2"), pod("old", cpu="2"))
    world.settle()
    world.terminate("old")
    members = [pod(f"g{i}", cpu="2", group="gang", labels={"app": "gang"}, priority=9, affinity=affinity) for i in range(2)]
    world.add(group("gang", minimum=2), *members)
    world.settle()
    world.add(pod("small", cpu="1"), pod("small-too", cpu="1"), pod("large", cpu="8"))
    assert cycles_without_time(world) < CYCLES
    assert not world.placements()["small"], "what is free is kept for the gang until the rest is"


def test_a_gang_with_a_pod_that_finds_no_place_waits_though_its_other_pods_were_not_tried() -> None:
    world = World()
    world.add(node("n1", cpu="4"), node("n2", cpu="4"), *(pod(f"on-n{i}", cpu="2", nodeName=f"n{i}") for i in (1, 2)))
    world.add(group("gang", minimum=2), pod("g0", cpu="3", group="gang", priority=9), pod("g1", cpu="1", group="gang"))
    world.settle()
    world.now += 60
    assert cycles_without_time(world) < CYCLES


@pytest.mark.parametrize("cards", [2, 64])
@pytest.mark.parametrize("calm", [False, True], ids=["from the first step on", "once a pod has a place"])
def test_why_no_devices_suit_a_claim_is_said_though_there_was_no_time_to_search_for_them(calm: bool, cards: int) -> None:
    world, ticks = ClaimWorld(), count()
    world.nodes_with(1, each=cards)
    world.ask("bad", claim(asks(expression="device.driver == 'another'")))
    world.ask("good", whole())

    def tick() -> float:
        return 0.0 if calm and not world.engine.state.ledger.placements else float(next(ticks))

    for _ in range(CYCLES):
        for effect in world.engine.cycle(world.now, world.rng, budget=0.5, tick=tick).effects:
            world.perform(effect)
    assert world.node_of("good") == "n0"
    assert "cannot allocate all claims" in world.condition("bad")["message"]
    assert not world.engine.has_work(world.now)
