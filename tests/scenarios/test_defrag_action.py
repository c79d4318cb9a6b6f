"""The action defrag: the scheduler itself moves pods, one at a time, so that one that waits starts."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from kit.engine_world import MovingWorld
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf, sharing

from pumice.journal.freezing import freeze, thaw
from pumice.wire import names
from pumice.wire.scheduler_conf import parse_scheduler_conf

Json = dict[str, Any]
PLUGINS = ("gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"))
WORDS = "configurations:\n- name: defrag\n  arguments: {pumice.interval: 10s, pumice.min-age: 60s, pumice.max-moves: 3}\n"
ON = WORDS + conf(*PLUGINS, actions="enqueue, allocate, backfill, defrag")
OFF = conf(*PLUGINS)


def owned(name: str, mib: int, **more: Any) -> Json:
    return pod(name, mib=mib, owner=name, **more)


def two_halves(text: str = ON, **more: Any) -> MovingWorld:
    """Two cards of 8,000 MiB with a pod on each, of which one may be moved, and a pod that wants a whole card."""
    world = MovingWorld(text)
    world.add(node("n1", cards=2))
    world.on_card("GPU-n1-0", owned("a", 3000, **more))
    world.on_card("GPU-n1-1", owned("b", 4000, annotations={names.MOVE: "false"}))
    world.add(pod("late", mib=8000))
    return world


def test_a_card_is_freed_for_the_pod_that_waits_and_the_moved_one_gets_the_place_that_was_held() -> None:
    world = two_halves()
    world.settle(60)
    assert [(gone.name, gone.gently, gone.reason) for gone in world.evictions] == [("a", True, "defrag")]
    assert world.card_of("late") == "n1/0"
    assert world.where("a") == "n1/1"
    assert world.nothing_held
    assert "a from n1 to n1" in world.told("MovesBegun")[0]
    assert not world.told("MovesStopped")


def test_without_the_action_nobody_is_moved() -> None:
    world = two_halves(OFF)
    world.settle(60)
    assert (world.evictions, world.node_of("late")) == ([], "")


@pytest.mark.parametrize("says", [{"annotations": {names.MOVE: "false"}}, {"annotations": {names.PREEMPTABLE: "false"}},
                                  {"priority": 9}, {"namespace": "kube-system"}])  # fmt: skip
def test_a_pod_that_says_no_is_never_moved(says: dict[str, Any]) -> None:
    world = MovingWorld(ON)
    world.add(node("n1", cards=2))
    world.on_card("GPU-n1-0", owned("a", 3000, **says))
    world.on_card("GPU-n1-1", owned("b", 6000))
    world.add(pod("late", mib=8000))
    world.settle(120)
    assert (world.evictions, world.node_of("late")) == ([], "")
    assert world.nothing_held


def test_a_pod_without_a_controller_is_never_moved() -> None:
    world = MovingWorld(ON)
    world.add(node("n1", cards=2))
    world.on_card("GPU-n1-0", pod("a", mib=3000))
    world.on_card("GPU-n1-1", pod("b", mib=4000))
    world.add(pod("late", mib=8000))
    world.settle(60)
    assert world.evictions == []


def test_nobody_slips_in_while_the_moved_pod_is_made_anew() -> None:
    world = two_halves()
    world.controller = False
    world.settle(20)
    assert [gone.name for gone in world.evictions] == ["a"]
    world.add(pod("thief", mib=3000), pod("other", mib=4000))  # one would fit where a goes, the other where it was
    world.settle(5)
    assert world.node_of("thief") == ""
    world.controller = True
    world.live()
    world.settle(60)
    assert (world.card_of("late"), world.where("a")) == ("n1/0", "n1/1")


def test_a_gang_starts_by_moves_that_are_made_one_at_a_time() -> None:
    world = MovingWorld(ON)
    world.add(node("n1", cards=3), node("n2", cards=1))
    world.on_card("GPU-n1-0", owned("a", 3000))
    world.on_card("GPU-n1-1", owned("b", 3000))
    world.on_card("GPU-n1-2", owned("c", 2000))
    world.on_card("GPU-n2-0", owned("d", 1000))
    world.add(group("train", minimum=2), pod("t0", mib=8000, group="train"), pod("t1", mib=8000, group="train"))
    begun = world.now
    while len(world.evictions) < 2 and world.now < begun + 120:
        world.settle(1)
        assert sum(not one["spec"].get("nodeName") for one in world.pods.values() if "ownerReferences" in one["metadata"]) <= 1
    assert world.now - begun >= 10
    world.settle(60)
    assert all(world.node_of(name) for name in ("t0", "t1"))
    assert all(world.where(name) not in ("", "gone") for name in "abcd")
    assert world.nothing_held


def test_an_eviction_that_a_budget_refuses_half_way_ends_the_plan_and_what_was_held_is_given_back() -> None:
    world = MovingWorld(ON)
    world.add(node("n1", cards=3), node("n2", cards=1))
    world.on_card("GPU-n1-0", owned("a", 3000))
    world.on_card("GPU-n1-1", owned("b", 3000))
    world.on_card("GPU-n1-2", owned("c", 2000))
    world.on_card("GPU-n2-0", owned("d", 1000))
    world.add(group("train", minimum=2), pod("t0", mib=8000, group="train"), pod("t1", mib=8000, group="train"))
    world.stays = lambda evict: len(world.evictions) == 2
    begun = world.now
    while len(world.evictions) < 2 and world.now < begun + 120:
        world.settle(1)
    world.settle(2)
    assert any("was refused; 1 of 2 moves were carried out" in said for said in world.told("MovesStopped"))
    assert world.nothing_held
    assert len(world.evictions) == 2


def test_a_plan_is_dropped_when_the_pod_that_was_to_start_is_gone_and_the_moved_one_still_gets_its_place() -> None:
    world = two_halves()
    world.controller = False
    world.settle(20)
    world.delete_pod("late")
    world.add(pod("thief", mib=4000))
    world.settle(2)
    assert world.node_of("thief") == "n1"
    world.controller = True
    world.live()
    world.settle(20)
    assert world.where("a") == "n1/1"
    assert world.nothing_held


SHARED = WORDS + conf(*PLUGINS, "proportion", actions="enqueue, allocate, backfill, defrag")


def test_a_queue_holds_no_more_than_its_share_when_another_pod_of_it_has_come_while_one_was_moved() -> None:
    world = MovingWorld(SHARED)
    world.add(node("n1", cards=2), queue("team", capability={names.VGPU_MEMORY: "3000"}))
    world.on_card("GPU-n1-0", owned("a", 3000, queue="team"))
    world.on_card("GPU-n1-1", owned("b", 4000, annotations={names.MOVE: "false"}))
    world.add(pod("late", mib=8000))
    world.controller = False
    world.settle(20)
    assert [gone.name for gone in world.evictions] == ["a"]
    world.add(pod("thief", mib=500, queue="team"))
    world.settle(5)
    assert world.node_of("thief") == "n1"
    world.controller = True
    world.live()
    world.settle(400)
    assert world.node_of("a-1") == "", "its queue would hold 3,500 of 3,000"
    assert world.nothing_held
    assert "queue team has no room left for it" in world.told("MovesStopped")[0]


def test_a_moved_pod_has_its_place_again_in_a_queue_that_is_full_with_it() -> None:
    world = MovingWorld(SHARED)
    world.add(node("n1", cards=2), queue("team", capability={names.VGPU_MEMORY: "3000"}))
    world.on_card("GPU-n1-0", owned("a", 3000, queue="team"))
    world.on_card("GPU-n1-1", owned("b", 4000, annotations={names.MOVE: "false"}))
    world.add(pod("late", mib=8000))
    world.settle(60)
    assert (world.card_of("late"), world.where("a")) == ("n1/0", "n1/1")
    assert world.nothing_held


def test_a_plan_is_dropped_when_the_next_pod_says_no_meanwhile() -> None:
    world = MovingWorld(ON)
    world.add(node("n1", cards=3), node("n2", cards=1))
    world.on_card("GPU-n1-0", owned("a", 3000))
    world.on_card("GPU-n1-1", owned("b", 3000))
    world.on_card("GPU-n1-2", owned("c", 2000))
    world.on_card("GPU-n2-0", owned("d", 1000))
    world.add(group("train", minimum=2), pod("t0", mib=8000, group="train"), pod("t1", mib=8000, group="train"))
    while not world.evictions:
        world.settle(1)
    for name in "abcd":
        if (one := world.pods.get(f"default/{name}")) is not None:
            one["metadata"]["annotations"][names.MOVE] = "false"
            world.add(one)
    world.settle(30)
    assert any("is moved no more: its annotation" in said for said in world.told("MovesStopped"))
    assert len(world.evictions) == 1
    assert world.nothing_held


def test_a_plan_is_dropped_when_the_pod_that_was_moved_is_not_made_anew() -> None:
    world = two_halves()
    world.controller = False
    world.settle(400)
    assert world.node_of("late") == "n1"
    assert any("does not run again after 300 s" in said for said in world.told("MovesStopped"))
    assert world.nothing_held


def test_a_scheduler_that_is_killed_after_any_cycle_leaves_nothing_held() -> None:
    world = two_halves()
    for _ in range(160):
        if world.engine.has_work(world.now):
            world.cycle()
            after = world.restarted()
            held = [uid for uid in after.state.ledger.placements if uid.startswith("held for")]
            assert (held, after.state.nominations.kept, after.state.moves.plan) == ([], {}, None)
        world.now += 0.25
    assert world.card_of("late") == "n1/0"


def test_a_plan_goes_on_in_an_engine_that_a_journal_has_kept() -> None:
    world = two_halves()
    world.controller = False
    world.settle(20)
    kept = thaw(freeze(world.engine))
    assert kept.state.moves.plan is not None
    world.engine, world.controller = kept, True
    world.live()
    world.settle(30)
    assert (world.card_of("late"), world.where("a")) == ("n1/0", "n1/1")
    assert world.nothing_held


def test_a_search_takes_half_of_a_cycles_time_and_goes_on_where_it_stopped() -> None:
    world = MovingWorld(ON)
    world.add(*(node(f"n{i:03}", cards=1, shares=1) for i in range(100)))
    world.add(*(owned(f"p{i}", 5000) for i in range(100)))
    world.settle(20)
    world.add(pod("late", mib=8000))
    world.settle(0.5)
    reached = []
    for _ in range(3):
        world.now += 60
        ticks = count()
        world.engine.cycle(world.now, world.rng, budget=12, tick=ticks.__next__)
        assert next(ticks) < 100
        reached += world.engine.state.moves.after.values()
    assert len(reached) == 3
    assert reached == sorted(set(reached))


def test_another_configuration_gives_back_what_is_held() -> None:
    world = two_halves()
    world.controller = False
    world.settle(20)
    assert not world.nothing_held
    world.engine.configure(parse_scheduler_conf(OFF))
    world.controller = True
    world.live()
    world.settle(5)
    assert world.nothing_held
    assert world.where("a") not in ("", "gone")


def test_a_search_in_vain_leaves_the_scheduler_at_rest_until_the_next_one_is_due() -> None:
    world = MovingWorld(ON)
    world.add(node("n1", cards=1))
    world.on_card("GPU-n1-0", owned("a", 3000))
    world.add(pod("late", mib=8000))
    world.settle(20)
    cycles = 0
    for _ in range(400):
        if world.engine.has_work(world.now):
            world.cycle()
            cycles += 1
        world.now += 0.25
    assert cycles <= 24, "two for each interval"
    assert world.evictions == []


def test_bad_arguments_are_complained_of_and_the_usual_ones_count() -> None:
    world = MovingWorld(ON.replace("interval: 10s", "interval: soon").replace("max-moves: 3", "max-moves: 99, pumice.often: 1"))
    remarks = world.engine.configure(parse_scheduler_conf(world.conf))
    assert [one.split(": ")[1] for one in remarks] == [
        "pumice.interval", "pumice.max-moves", "unknown argument pumice.often is ignored"]
    assert (world.engine.state.moves.terms.interval, world.engine.state.moves.terms.most) == (60.0, 2)
