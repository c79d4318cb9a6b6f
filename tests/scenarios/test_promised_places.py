"""A place that is promised is held until those who hold it are gone, and by nobody else; a refusal gives it back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from kit.device_world import fingerprint
from kit.engine_world import ALL_PLUGINS, World
from kit.objects import group, node, pod, priority_class, queue
from kit.room_worlds import BUNDLES, full, gang, gone, one_card

Json = dict[str, Any]


def test_what_was_promised_goes_to_nobody_else_while_one_victim_after_the_other_leaves() -> None:
    world = full(World(BUNDLES), node("n1", cards=2, mib=8000), pod("a", mib=8000, priority=1), pod("b", mib=8000, priority=1))
    world.grace = True
    world.add(pod("high", cards=2, mib=8000, priority=10))
    world.settle(2)
    assert gone(world) == {"a", "b"}
    world.delete_pod("a")
    world.add(pod("quick", mib=8000, priority=5))
    world.settle(2)
    assert world.node_of("quick") == "", "its card is kept for who made it free"
    world.delete_pod("b")
    world.settle(1)
    assert world.card_of("high") in ("n1/0+1", "n1/1+0")
    assert world.node_of("quick") == ""


def test_a_gang_is_bound_only_when_the_last_victim_is_gone() -> None:
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=3, mib=8000), pod("a", mib=8000, priority=1), pod("b", mib=8000, priority=1))
    world.grace = True
    world.add(*gang("g", 3, priority="high"))
    world.settle(2)
    assert gone(world) == {"a", "b"}
    world.delete_pod("a")
    world.settle(2)
    assert not any(bind.name.startswith("g-") for bind in world.bindings)
    world.delete_pod("b")
    world.settle(2)
    assert {world.node_of(f"g-w-{i}") for i in range(3)} == {"n1"}


def test_a_gang_that_loses_the_member_who_awaited_somebody_keeps_no_idle_place_for_the_other() -> None:
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=1, mib=8000), pod("a", mib=8000, priority=1))
    world.add(node("n2", cards=1, mib=8000))
    world.grace = True
    world.add(*gang("g", 2, priority="high"))
    world.settle(2)
    assert gone(world) == {"a"}
    kept = world.engine.state.nominations.kept.values()
    (awaiting,) = [found.task.name for found in kept if found.awaits]
    assert len(kept) == 2
    world.delete_pod(awaiting)
    world.add(pod("quick", mib=8000, priority=5))
    world.settle(2)
    assert world.node_of("quick") == "n2"


def test_a_refused_eviction_leaves_everything_as_it_was_and_the_pod_is_told_why_it_waits() -> None:
    world = one_card()
    before = fingerprint(world.engine.state.ledger)
    world.stays = lambda evict: True
    world.add(pod("high", mib=8000, priority=10))
    world.cycle()
    assert gone(world) == {"low"}
    assert fingerprint(world.engine.state.ledger) == before
    assert not world.engine.state.nominations.kept
    world.stays = lambda evict: False
    world.settle(8)
    assert world.node_of("high") == "n1", "it is tried again"


@pytest.mark.parametrize("refused", [False, True])
def test_nobody_is_bound_within_a_share_that_is_free_only_by_an_eviction_which_is_not_answered(refused: bool) -> None:
    world = World(BUNDLES)
    world.add(queue("small", capability={"cpu": "2"}))
    low = [pod(name, cpu="1", cards=0, queue="small", priority=1) for name in ("a", "b")]
    full(world, node("n1", cards=1, mib=8000, cpu="8"), *low)
    world.unanswered, world.stays, world.grace = [], lambda evict: refused, True
    world.add(pod("high", cpu="1", cards=0, queue="small", priority=10))
    world.settle(2)
    world.add(pod("other", cpu="1", cards=0, queue="small", priority=1))
    world.settle(2)
    assert len(gone(world)) == 1
    assert not world.node_of("high"), "its node has room, its queue only if the eviction is carried out"
    assert not world.node_of("other")
    world.answer()
    world.settle(2)
    assert bool(world.node_of("high")) is not refused


@pytest.mark.parametrize("refused", [False, True])
def test_nobody_is_spread_out_against_a_pod_that_was_told_to_go_before_that_is_answered(refused: bool) -> None:
    world = World(BUNDLES)
    evenly = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"app": "web"}}}]  # fmt: skip
    world.add(node("n0", cards=0, cpu="8", labels={"zone": "x"}))
    full(world, node("n1", cards=3, mib=8000, labels={"zone": "y"}), pod("low", mib=8000, labels={"app": "web"}, priority=1))
    world.unanswered, world.stays, world.grace = [], lambda evict: refused, True
    world.add(pod("high", mib=8000, labels={"app": "web"}, priority=10, topologySpreadConstraints=evenly))
    world.settle(2)
    assert gone(world) == {"low"}
    assert not world.node_of("high"), "a card is free, and its zone holds one too many unless the eviction is carried out"
    world.answer()
    world.settle(2)
    assert bool(world.node_of("high")) is not refused


def test_a_pod_whose_eviction_was_refused_is_left_alone_for_a_while_and_longer_each_time() -> None:
    world = one_card()
    world.stays = lambda evict: True
    world.add(pod("high", mib=8000, priority=10))
    requested, begin = [], world.now
    while world.now < begin + 120:
        before = len(world.evictions)
        world.settle(1)
        requested += [world.now - begin] * (len(world.evictions) - before)
    pauses = [later - earlier for earlier, later in pairwise(requested)]
    assert 3 <= len(pauses) < 10
    assert min(pauses) >= 4
    assert pauses[-1] > 3 * pauses[0]


def test_a_restarted_scheduler_keeps_the_promise_by_what_the_objects_say() -> None:
    world = one_card()
    world.grace = True
    world.add(pod("high", mib=8000, priority=10))
    world.settle(2)
    world.engine = world.restarted()
    world.settle(2)
    assert set(world.engine.state.nominations.kept) == {world.pods["default/high"]["metadata"]["uid"]}
    world.add(pod("quick", mib=8000, priority=5))
    world.delete_pod("low")
    world.settle(2)
    assert world.node_of("high") == "n1"
    assert len(world.evictions) == 1


def test_a_promise_ends_with_its_node_and_the_pod_finds_another_place() -> None:
    world = one_card()
    world.grace = True
    world.add(pod("high", mib=8000, priority=10))
    world.settle(2)
    world.remove("Node", "n1")
    world.settle(2)
    assert not world.engine.state.nominations.kept
    assert world.pods["default/high"]["status"]["nominatedNodeName"] == ""
    world.add(node("n2", cards=1, mib=8000))
    world.settle(2)
    assert world.node_of("high") == "n2"


def test_who_was_promised_a_place_takes_a_free_one_that_comes_sooner() -> None:
    world = one_card()
    world.grace = True
    world.add(pod("high", mib=8000, priority=10))
    world.settle(2)
    assert gone(world) == {"low"}
    world.add(node("n2", cards=1, mib=8000))
    world.settle(2)
    assert world.node_of("high") == "n2", "low may take its time"
    assert not world.engine.state.nominations.kept


def test_a_gang_waits_for_the_places_that_it_was_promised_when_fewer_come_sooner() -> None:
    world = full(World(BUNDLES), node("n1", cards=2, mib=8000), pod("a", mib=8000, priority=1), pod("b", mib=8000, priority=1))
    world.grace = True
    world.add(priority_class("high", 10), *gang("g", 2, priority="high"))
    world.settle(2)
    assert gone(world) == {"a", "b"}
    world.add(node("n2", cards=1, mib=8000))
    world.settle(2)
    assert len(world.engine.state.nominations.kept) == 2
    world.delete_pod("a")
    world.delete_pod("b")
    world.settle(2)
    assert all(world.node_of(f"g-w-{i}") for i in range(2))
    assert not world.engine.state.nominations.kept


def test_a_claimant_that_goes_leaves_no_promise_behind() -> None:
    world = one_card()
    world.grace = True
    world.add(pod("high", mib=8000, priority=10))
    world.settle(2)
    world.delete_pod("high")
    world.settle(1)
    world.delete_pod("low")
    world.add(pod("next", mib=8000, priority=0))
    world.settle(2)
    assert world.node_of("next") == "n1"
    assert not world.engine.state.ledger.pipelined


@pytest.mark.parametrize("shares", ["proportion", "capacity"])
def test_a_gang_that_stands_keeps_its_whole_promise_between_cycles(shares: str) -> None:
    """It stands on what a terminating pod holds. What it took for the while counted as taken: what it lacked was left of its
    promise, and a second gang was let in beyond what the cluster has."""
    world = World(ALL_PLUGINS.replace("name: proportion", f"name: {shares}"))
    world.grace = True
    world.add(node("n1", cpu="16"), queue("a"), pod("occupant", cpu="4", queue="a"))
    world.settle()
    world.terminate("occupant")
    first = group("first", minimum=14, queue="a", resources={"cpu": "14"})
    world.add(first, *(pod(f"first-{i}", cpu="1", group="first") for i in range(14)))
    world.settle()
    assert world.groups["default/first"]["status"]["phase"] == "Inqueue"
    job = world.engine.state.jobs["default/first"]
    assert world.engine.state.scheduling_queue.reserved.keys() == {job}
    assert job.queue.inqueue == {"cpu": 14000}
    world.add(group("second", minimum=12, queue="a", resources={"cpu": "12"}))
    world.add(*(pod(f"second-{i}", cpu="1", group="second") for i in range(12)))
    world.settle()
    assert world.groups["default/second"]["status"]["phase"] == "Pending"
