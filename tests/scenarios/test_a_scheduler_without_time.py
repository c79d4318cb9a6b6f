"""A scheduler whose processor is busy with others runs out of time in every cycle, and gets somewhere all the same."""

from itertools import count

from kit.engine_world import World
from kit.objects import node, pod

CYCLES = 60


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
