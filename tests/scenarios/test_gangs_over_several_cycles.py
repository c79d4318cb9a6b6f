"""A gang of unlike pods that one cycle has no time to place: its places are held, the search goes on in the next cycles, and
nothing of it is bound before all of it is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import group, node, pod, priority_class, queue
from kit.room_worlds import BUNDLES
from kit.scheduler_confs import conf, sharing

from pumice.scheduler.cycle.run import PREEMPTION_RETRY
from pumice.scheduler.state.scheduling_queue import JobState
from pumice.wire.scheduler_conf import parse_scheduler_conf

MEMBERS = 12
SHARES = BUNDLES.replace("  - name: nodeorder\n", "  - name: nodeorder\n  - name: capacity\n")


def unlike(name: str, size: int, minimum: int | None = None, **more: Any) -> Iterable[dict[str, Any]]:
    """A gang no two pods of which ask for the same; each takes most of a node."""
    yield group(name, minimum=size if minimum is None else minimum, **more)
    yield from (pod(f"{name}-{at}", group=name, cpu=f"{3000 + at}m") for at in range(size))


def hurried(nodes: int = MEMBERS, conf: str = BUNDLES, budget: int = 18) -> World:
    """Empty nodes; time passes with each look at the clock, and a cycle has room for two or three pods."""
    world = World(conf)
    world.add(priority_class("high", 100), *(node(f"n{at}", cpu="4") for at in range(nodes)))
    world.settle(1)
    cycle, tick = world.engine.cycle, count().__next__

    def short(now: float, rng: object = None, **more: object) -> object:
        return cycle(now, rng, **{"budget": budget, "tick": tick, **more})  # type: ignore[arg-type]

    world.engine.cycle = short  # type: ignore[method-assign, assignment]
    return world


def searching(world: World) -> bool:
    """One cycle; whether the search goes on."""
    world.now += 0.1
    world.cycle()
    return bool(world.engine.state.terminating.gang_searches)


def begun(world: World) -> None:
    """The search has places for some and not for all."""
    assert searching(world)
    assert 0 < len(world.engine.state.nominations.kept) < MEMBERS
    assert not world.bindings


def finished(world: World) -> None:
    for _ in range(60):
        searching(world)
    state = world.engine.state
    assert not state.terminating.gang_searches
    assert not state.nominations.kept


def bound(world: World, name: str = "u") -> set[str]:
    return {effect.name for effect in world.bindings if effect.name.startswith(f"{name}-")}


def test_a_gang_of_unlike_pods_is_placed_over_several_cycles_and_bound_in_one() -> None:
    world, cycles = hurried(), 0
    world.add(*unlike("u", MEMBERS))
    while not world.bindings:
        searching(world)
        cycles += 1
        assert cycles < 50
    assert cycles > 2
    assert bound(world) == {f"u-{at}" for at in range(MEMBERS)}
    assert len({effect.attempt for effect in world.bindings}) == 1
    assert not world.events or all(event.reason != "FailedScheduling" for event in world.events)


def test_each_held_place_is_taken_again_by_a_look_at_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looks = hurried(), 0
    world.add(*unlike("u", MEMBERS))
    evaluation = world.engine.placer.evaluation
    scores = evaluation.scores

    def counted(cls: Any, rows: Any) -> Any:
        nonlocal looks
        looks += rows is None
        return scores(cls, rows)

    monkeypatch.setattr(evaluation, "scores", counted)
    while not world.bindings:
        searching(world)
    assert len(world.bindings) == MEMBERS
    assert looks == MEMBERS


def test_where_there_is_no_place_for_all_of_it_the_books_are_as_before_and_others_have_the_room() -> None:
    world = hurried(nodes=MEMBERS - 1)
    before = fingerprint(world.engine.state.ledger)
    world.add(*unlike("u", MEMBERS))
    begun(world)
    finished(world)
    assert not world.bindings
    assert fingerprint(world.engine.state.ledger) == before
    assert world.condition("u-0")["reason"] in ("Schedulable", "Unschedulable")
    world.add(*unlike("v", MEMBERS - 1))
    world.settle(3)
    assert bound(world, "v") == {f"v-{at}" for at in range(MEMBERS - 1)}


@pytest.mark.parametrize("budget", [10, 12, 14, 16, 17, 18, 20, 22])
def test_whoever_found_all_room_held_has_it_when_the_gang_does_not_stand(budget: int) -> None:
    world = hurried(nodes=MEMBERS - 1, budget=budget)
    world.add(*unlike("u", MEMBERS))
    while len(world.engine.state.nominations.kept) < MEMBERS - 3:
        assert searching(world)
    world.add(*(pod(f"single-{at}", cpu="3500m") for at in range(4)))
    while searching(world):
        pass
    world.settle(1)
    assert bound(world, "single") == {f"single-{at}" for at in range(4)}
    assert not bound(world)


@pytest.mark.parametrize("budget", [10, 12, 14, 16, 17, 18, 20, 22])
def test_a_gang_that_found_no_room_is_searched_for_no_more_until_something_may_help_it(budget: int) -> None:
    world = hurried(nodes=MEMBERS - 1, budget=budget)
    world.add(*(pod(f"single-{at}", cpu="3500m") for at in range(4)))
    world.settle(1)
    before = fingerprint(world.engine.state.ledger)
    world.add(*unlike("u", MEMBERS))
    searches, cycles = 0, 0
    state, was = world.engine.state, False
    for _ in range(200):  # twenty seconds
        now = searching(world)
        searches, cycles, was = searches + (now and not was), cycles + now, now
    assert 1 <= searches <= 20 / PREEMPTION_RETRY + 2  # who may go changes without anything being released
    assert cycles < 100
    while searching(world):
        pass
    assert fingerprint(state.ledger) == before
    assert state.scheduling_queue.state_of(state.jobs["default/u"]) is JobState.UNSCHEDULABLE
    assert world.condition("u-0")["status"] == "False"
    world.add(*(node(f"more-{at}", cpu="4") for at in range(5)))
    world.settle(4)
    assert len(bound(world)) == MEMBERS


def test_whoever_lacked_the_share_that_was_held_has_it_when_the_gang_does_not_stand() -> None:
    world = hurried(nodes=MEMBERS - 1, conf=SHARES)
    world.add(queue("q", capability={"cpu": "36"}))
    world.add(*unlike("u", MEMBERS, queue="q"))
    while len(world.engine.state.nominations.kept) < MEMBERS - 2:
        assert searching(world)
    world.add(group("s", minimum=1, queue="q"), pod("s-0", group="s", cpu="3500m"))
    finished(world)
    world.settle(2)
    assert bound(world, "s") == {"s-0"}


def test_a_queue_is_charged_for_no_card_that_a_gang_held_and_did_not_get() -> None:
    world = hurried(nodes=0, conf=conf("gang", "capacity", "predicates", sharing("VGPU")), budget=10)
    world.add(*(node(f"n{at}", cards=1, cpu="4") for at in range(MEMBERS - 1)), queue("q"))
    world.add(group("u", minimum=MEMBERS, queue="q"))
    world.add(*(pod(f"u-{at}", group="u", cpu=f"{1 + at}m", cards=1) for at in range(MEMBERS)))
    begun(world)
    finished(world)
    assert not world.bindings
    assert not any(world.engine.state.queues["q"].allocated.values())
    world.add(group("v", minimum=1, queue="q"), pod("v-0", group="v", cards=1))
    world.settle(3)
    assert bound(world, "v") == {"v-0"}


def test_a_pod_that_comes_meanwhile_is_bound_before_the_search_is_over() -> None:
    world = hurried(nodes=MEMBERS + 1)
    world.add(*unlike("u", MEMBERS))
    begun(world)
    world.add(pod("late", cpu="1"))
    while searching(world):
        if world.bindings:
            break
    assert [effect.name for effect in world.bindings] == ["late"]
    finished(world)
    assert len(bound(world)) == MEMBERS


@pytest.mark.parametrize("what", ["a pod with a place", "its node", "its node is closed", "the gang", "the configuration"])
def test_a_search_of_which_a_part_is_lost_leaves_nothing_behind(what: str) -> None:
    world = hurried(nodes=MEMBERS + 1)
    before = fingerprint(world.engine.state.ledger)
    world.add(*unlike("u", MEMBERS))
    begun(world)
    state = world.engine.state
    held = next(task for task in state.tasks.values() if task.uid in state.nominations.kept)
    left, where = MEMBERS, held.node
    match what:
        case "a pod with a place":
            world.delete_pod(held.name)
            left = 0
        case "its node":
            world.remove("Node", where)
        case "its node is closed":
            closed = world.nodes[where]
            closed["spec"]["unschedulable"] = True
            world.add(closed)
        case "the gang":
            for at in range(MEMBERS):
                world.delete_pod(f"u-{at}")
            world.remove("PodGroup", "default/u")
            left = 0
        case "the configuration":
            world.engine.configure(parse_scheduler_conf(BUNDLES.replace("preempt, reclaim, ", "")))
    finished(world)
    assert len(bound(world)) == left
    assert where not in {effect.node for effect in world.bindings} or not what.startswith("its node")
    if not left:
        assert fingerprint(state.ledger) == before
    assert not [effect for effect in world.effects if type(effect).__name__ == "Nominate"]


def test_more_pods_than_the_gang_needs_follow_once_it_stands() -> None:
    world = hurried()
    world.add(*unlike("u", MEMBERS, minimum=MEMBERS - 4))
    begun(world)
    finished(world)
    assert len(bound(world)) == MEMBERS


def test_a_gang_that_waits_for_what_leaves_is_held_on_one_row_each_and_whole_when_it_has_left() -> None:
    world = hurried()
    world.add(pod("old", cpu="3"))
    world.settle(1)
    world.bindings.clear()
    world.set_phase("old", "Running")
    world.terminate("old")
    world.add(*unlike("u", MEMBERS))
    for _ in range(40):
        searching(world)
    assert not world.bindings
    world.delete_pod("old")
    finished(world)
    assert len(bound(world)) == MEMBERS


def test_two_gangs_that_cannot_both_stand_do_not_hold_each_other_up_for_ever() -> None:
    world = hurried()
    world.add(*unlike("u", MEMBERS), *unlike("v", MEMBERS))
    finished(world)
    assert sorted((len(bound(world, "u")), len(bound(world, "v")))) == [0, MEMBERS]


def test_a_new_engine_knows_nothing_of_what_was_held() -> None:
    world = hurried()
    before = fingerprint(world.engine.state.ledger)
    world.add(*unlike("u", MEMBERS))
    begun(world)
    assert fingerprint(world.restarted().state.ledger) == before
