"""Room for a gang that one cycle has no time to find: the search goes on in the next ones, and nobody is told before its end."""

from __future__ import annotations

from itertools import count

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import node, pod, priority_class
from kit.room_worlds import BUNDLES, full, gang, gone

from pumice.scheduler.engine import Engine
from pumice.wire.scheduler_conf import parse_scheduler_conf

MEMBERS = 12


def crowd(*, spare: int = 0) -> World:
    """As many full nodes as the gang that waits has members, less those ``spare``; time passes with each look at the clock."""
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    nodes = [node(f"n{at}", cards=1, mib=8000) for at in range(MEMBERS - spare)]
    full(world, *nodes, *(pod(f"low-{at}", mib=8000, priority=1) for at in range(MEMBERS - spare)))
    world.add(*gang("g", MEMBERS, priority="high"))
    cycle, tick = world.engine.cycle, count().__next__

    def short(now: float, rng: object = None, **more: object) -> object:
        return cycle(now, rng, **{"budget": 4, "tick": tick, **more})  # type: ignore[arg-type]

    world.engine.cycle = short  # type: ignore[method-assign, assignment]
    return world


def searching(world: World) -> bool:
    """One cycle; whether the search goes on."""
    world.now += 0.1
    world.cycle()
    return bool(world.engine.state.terminating.gang_searches)


def begun(world: World) -> None:
    while not searching(world):
        assert not world.evictions
    assert not world.evictions
    assert [task for task in world.engine.state.tasks.values() if task.status.label == "Pipelined"]


def test_a_gang_is_made_room_for_over_several_cycles_and_all_who_go_are_told_at_once() -> None:
    world, cycles = crowd(), 0
    while not world.evictions:
        searching(world)
        cycles += 1
        assert cycles < 50
    assert cycles > 3
    assert gone(world) == {f"low-{at}" for at in range(MEMBERS)}
    assert len(world.evictions) == MEMBERS
    world.settle(3)
    assert all(world.node_of(f"g-w-{at}") for at in range(MEMBERS))


def test_where_there_is_no_room_for_all_of_it_nobody_was_told_and_the_books_are_as_before() -> None:
    world = crowd(spare=1)
    before = fingerprint(world.engine.state.ledger)
    begun(world)
    while searching(world):
        pass
    assert not world.evictions
    assert fingerprint(world.engine.state.ledger) == before
    assert not world.engine.state.nominations.kept


@pytest.mark.parametrize("what", ["a pod that waits", "its node", "the gang", "the configuration"])
def test_a_search_of_which_a_part_is_lost_is_given_up_and_whoever_was_to_go_stays(what: str) -> None:
    world = crowd()
    begun(world)
    state = world.engine.state
    waiting = next(task for task in state.tasks.values() if task.uid in state.nominations.kept)
    match what:
        case "a pod that waits":
            world.delete_pod(waiting.name)
        case "its node":
            world.remove("Node", waiting.node)
        case "the gang":
            for at in range(MEMBERS):
                world.delete_pod(f"g-w-{at}")
            world.remove("PodGroup", "default/g")
        case "the configuration":
            world.engine.configure(parse_scheduler_conf(BUNDLES.replace("preempt, reclaim, ", "")))
    for _ in range(40):
        searching(world)
    assert not world.evictions
    assert not state.terminating.gang_searches
    assert not state.terminating.unanswered
    assert not state.nominations.kept


def test_a_pod_that_ends_by_itself_in_the_midst_of_it_is_told_nothing() -> None:
    world = crowd()
    begun(world)
    first = next(iter(world.engine.state.terminating.unanswered)).task.name
    world.delete_pod(first)
    for _ in range(40):
        searching(world)
    world.settle(3)
    assert gone(world) == {f"low-{at}" for at in range(MEMBERS)} - {first}
    assert all(world.node_of(f"g-w-{at}") for at in range(MEMBERS))


def test_a_new_engine_knows_nothing_of_a_search_that_nobody_was_told_of() -> None:
    world = crowd()
    before = fingerprint(world.engine.state.ledger)
    begun(world)
    heir: Engine = world.restarted()
    assert fingerprint(heir.state.ledger) == before
