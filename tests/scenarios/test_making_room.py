"""Room is made: less important pods go for more important ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import budget, group, node, pod, priority_class, queue
from kit.room_worlds import (
    ACTIONS,
    BUNDLES,
    GPU,
    MIG,
    SHARES,
    WHOLE_GANGS,
    full,
    gang,
    gone,
    gpus,
    mig_node,
    one_card,
    room_conf,
)

from pumice.scheduler.plugins.contract import VictimTasks
from pumice.scheduler.state.jobs import Task
from pumice.wire.scheduler_conf import Arguments
from pumice.wire.times import stamp

Json = dict[str, Any]

def test_a_low_pods_card_goes_to_a_high_one_and_no_binding_comes_before_it_is_free() -> None:
    world = one_card()
    world.grace = True
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert gone(world) == {"low"}
    assert [bind.name for bind in world.bindings] == ["low"], "low holds the card still"
    assert world.pods["default/high"]["status"]["nominatedNodeName"] == "n1"
    assert world.condition("high")["message"] == (
        "Pod default/high can possibly be assigned to n1, once resource is released and minAvailable is satisfied"
    )
    world.delete_pod("low")
    world.settle(1)
    assert world.card_of("high") == "n1/0"
    assert gone(world) == {"low"}, "nobody else was asked"


@pytest.mark.parametrize("priority", [1, 0])
def test_nobody_goes_for_a_pod_that_is_not_more_important(priority: int) -> None:
    world = one_card()
    world.add(pod("same", mib=8000, priority=priority))
    world.settle(8)
    assert not world.evictions


def test_nobody_goes_for_a_pod_that_never_preempts() -> None:
    world = one_card()
    world.add(pod("polite", mib=8000, priority=10, preemptionPolicy="Never"))
    world.settle(8)
    assert not world.evictions


def test_who_says_that_it_is_not_preemptable_stays() -> None:
    world = full(
        World(BUNDLES), node("n1", cards=1, mib=8000),
        pod("low", mib=8000, priority=1, annotations={"volcano.sh/preemptable": "false"}),
    )  # fmt: skip
    world.add(pod("high", mib=8000, priority=10))
    world.settle(8)
    assert not world.evictions


def test_the_pod_that_is_least_important_goes_and_no_more_than_are_needed() -> None:
    world = full(
        World(BUNDLES), node("n1", cards=2, mib=8000),
        *(pod(name, mib=4000, priority=priority) for name, priority in (("a", 3), ("b", 2), ("c", 1), ("d", 2))),
    )  # fmt: skip
    world.add(pod("high", mib=4000, priority=10))
    world.settle(3)
    assert gone(world) == {"c"}
    assert world.node_of("high") == "n1"


def test_a_node_with_less_important_pods_is_cleared_rather_than_one_with_fewer() -> None:
    world = World(BUNDLES)
    full(world, node("n1", cards=1, mib=8000), pod("middle", mib=8000, priority=5))
    full(world, node("n2", cards=1, mib=8000), pod("x", mib=4000, priority=1), pod("y", mib=4000, priority=1))
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert gone(world) == {"x", "y"}
    assert world.node_of("high") == "n2"


def test_a_gang_is_made_room_for_in_one_go_or_nobody_leaves() -> None:
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=2, mib=8000), pod("a", mib=8000, priority=1), pod("b", mib=8000, priority=1))
    world.add(*gang("g", 3, priority="high"))
    world.settle(8)
    assert not world.evictions, "two cards are no use to a gang of three"
    full(world, node("n2", cards=1, mib=8000), pod("c", mib=8000, priority=200))
    world.settle(8)
    assert not world.evictions, "nor is a third one that a more important pod has"
    world.add(node("n3", cards=1, mib=8000))
    world.settle(8)
    assert gone(world) == {"a", "b"}
    assert {world.node_of(f"g-w-{i}") for i in range(3)} == {"n1", "n3"}


def test_under_plugin_gangs_vote_no_gang_falls_under_its_minimum() -> None:
    world = World(WHOLE_GANGS)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=3, mib=8000), *gang("b", 3, minimum=2))
    world.add(pod("h1", mib=8000, priority=10), pod("h2", mib=8000, priority=10))
    world.settle(8)
    assert len(gone(world)) == 1, "one of three may go, the second not"


def test_without_it_a_gang_that_would_fall_goes_as_a_whole() -> None:
    world = World(BUNDLES)
    full(world, node("n1", cards=2, mib=8000), *gang("b", 2))
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert gone(world) == {"b-w-0", "b-w-1"}
    world = World(BUNDLES)
    full(world, node("n1", cards=3, mib=8000), *gang("b", 2), pod("x", mib=8000, priority=1))
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert gone(world) == {"b-w-0", "b-w-1"}, "priority 0 is less than 1, and it comes first"


def test_of_a_gang_that_falls_nobody_stays_who_could_have_been_lost_before() -> None:
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=4, mib=8000), *gang("b", 4, minimum=3))
    world.add(*gang("g", 2, priority="high"))
    world.settle(8)
    assert gone(world) == {f"b-w-{i}" for i in range(4)}, "one could go, the second brings the gang down"


def test_a_pod_of_a_job_takes_the_place_of_a_less_important_one_of_the_same_job() -> None:
    world = World(BUNDLES)
    world.add(group("g", minimum=1))
    full(world, node("n1", cards=1, mib=8000), pod("g-w-0", group="g", mib=8000, priority=1))
    world.add(pod("g-w-1", group="g", mib=8000, priority=5))
    world.settle(3)
    assert gone(world) in (set(), {"g-w-0"})


def test_the_system_is_nobodys_victim() -> None:
    world = full(World(BUNDLES), node("n1", cards=1, mib=8000), pod("low", namespace="kube-system", mib=8000, priority=1))
    world.add(pod("high", mib=8000, priority=10))
    world.settle(8)
    assert not world.evictions


def test_a_gang_for_which_no_room_can_be_made_keeps_no_pod_of_its_kind_from_a_place() -> None:
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=1, mib=8000))
    world.add(*gang("g", 2, priority="high"))
    world.settle(2)
    world.add(pod("alone", cards=1, mib=8000))
    world.settle(2)
    assert world.node_of("alone") == "n1"


# -- cards that are cut -----------------------------------------------------------------------------------------------


def test_a_card_is_cut_anew_when_the_last_of_its_old_slices_is_gone_and_takes_nobody_until_then() -> None:
    world = World(BUNDLES)
    full(world, mig_node("m"), *(pod(f"s{i}", mib=4000, priority=i, annotations=MIG) for i in range(1, 8)))
    assert {world.node_of(f"s{i}") for i in range(1, 8)} == {"m"}
    world.grace = True
    world.add(pod("large", mib=18000, priority=10, annotations=MIG))
    world.settle(3)
    first = set(gone(world))
    assert first == {f"s{i}" for i in range(1, 8)}, "another geometry needs an empty card"
    world.add(pod("small", mib=4000, priority=0, annotations=MIG))
    for name in sorted(first):
        world.settle(2)
        assert world.node_of("large") == world.node_of("small") == ""
        world.delete_pod(name)
    world.settle(2)
    assert world.node_of("large") == "m"
    assert gone(world) == first


def test_two_pods_that_are_made_room_for_one_after_the_other_share_what_the_first_freed() -> None:
    world = full(World(BUNDLES), mig_node("m"), pod("low", mib=40000, priority=0, annotations=MIG))
    world.grace = True
    world.add(pod("h1", mib=4000, priority=10, annotations=MIG), pod("h2", mib=4000, priority=10, annotations=MIG))
    world.settle(3)
    assert gone(world) == {"low"}
    world.delete_pod("low")
    world.settle(2)
    assert {world.node_of("h1"), world.node_of("h2")} == {"m"}


# -- who is spared ----------------------------------------------------------------------------------------------------

BUDGETS = BUNDLES.replace("  - name: conformance\n", "  - name: conformance\n  - name: pdb\n    enablePreemptable: %s\n")
WEB = {"app": "web"}


def with_budget(allowed: int, *, votes: bool) -> World:
    world = World(BUDGETS % str(votes).lower())
    world.add(budget("web", WEB, allowed))
    return full(world, node("n1", cards=2, mib=8000), *(pod(f"w{i}", mib=8000, labels=WEB, priority=1) for i in range(2)))


def test_a_budget_that_forbids_everything_lets_nobody_go() -> None:
    world = with_budget(0, votes=True)
    world.add(pod("high", mib=8000, priority=10))
    world.settle(8)
    assert not world.evictions


def test_a_budget_lets_as_many_go_as_it_allows() -> None:
    world = with_budget(1, votes=True)
    world.add(pod("high", cards=2, mib=8000, priority=10))
    world.settle(8)
    assert not world.evictions, "both would have to go"
    world.grace = True
    world.add(pod("one", mib=8000, priority=10), pod("two", mib=8000, priority=10))
    world.settle(8)
    assert len(world.evictions) == 1, "the first that leaves counts before the controller has counted it"


def test_without_its_vote_a_budget_is_a_cost_that_comes_before_priority() -> None:
    world = with_budget(0, votes=False)
    full(world, node("n2", cards=1, mib=8000), pod("middle", mib=8000, priority=5))
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert gone(world) == {"middle"}, "it is more important, and guarded by no budget"
    world.add(pod("next", mib=8000, priority=10))
    world.settle(3)
    assert len(gone(world) & {"w0", "w1"}) == 1, "there is nobody else"


def test_a_pod_is_spared_until_its_cooldown_time_is_over() -> None:
    world = World(BUNDLES.replace("  - name: conformance\n", "  - name: conformance\n  - name: cdp\n"))
    resting = pod("low", mib=8000, priority=1, annotations={"volcano.sh/cooldown-time": "60s"})
    full(world, node("n1", cards=1, mib=8000), resting)
    resting["status"]["startTime"] = stamp(world.now)
    world.add(resting)
    world.add(pod("high", mib=8000, priority=10))
    world.settle(40)
    assert not world.evictions
    world.settle(40)
    assert gone(world) == {"low"}


def test_a_priority_class_that_is_deleted_makes_nobody_a_victim_who_was_none() -> None:
    world = World(BUNDLES)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=1, mib=8000), pod("low", mib=8000, priority=1))
    world.add(*gang("g", 1, priority="high"))
    world.remove("PriorityClass", "high")
    world.settle(8)
    assert not world.evictions, "its class is gone before it claims anything: it counts as 0"
    world.add(priority_class("high", 100))
    world.settle(8)
    assert gone(world) == {"low"}


# -- gangs for gangs, and pods that plugins name ----------------------------------------------------------------------


def test_a_gang_makes_way_for_a_more_important_gang_as_a_whole() -> None:
    world = World(WHOLE_GANGS.replace("preempt, reclaim", "gangpreempt"))
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=2, mib=8000), *gang("b", 2))
    world.add(*gang("g", 2, priority="high"))
    world.settle(3)
    assert gone(world) == {"b-w-0", "b-w-1"}
    assert {effect.reason for effect in world.evictions} == {"gangpreempt"}
    assert {world.node_of("g-w-0"), world.node_of("g-w-1")} == {"n1"}


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_role_that_has_no_more_pods_than_its_job_needs_keeps_them_for_a_single_pods_sake(action: str) -> None:
    world = World(BUNDLES.replace("preempt, reclaim", action))
    served = group("b", minimum=3, roles={"ps": 1, "worker": 2})
    workers = (pod(f"b-w-{i}", group="b", role="worker", mib=8000) for i in range(3))
    full(world, node("n1", cards=4, mib=8000), served, pod("b-ps-0", group="b", role="ps", mib=8000), *workers)
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert len(gone(world)) == 1
    assert "b-ps-0" not in gone(world)
    assert world.node_of("high") == "n1"


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_sub_groups_of_a_gang_lose_pods_in_one_of_them_while_enough_stay_whole(action: str) -> None:
    world = World(BUNDLES.replace("preempt, reclaim", action))
    world.add(priority_class("high", 100))
    policy = {"name": "part", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["part"]}
    made = group("b", minimum=2, sub_groups=[policy])
    members = [pod(f"b-w-{i}", group="b", mib=8000, labels={"part": str(i % 2)}) for i in range(4)]
    full(world, node("n1", cards=4, mib=8000), made, *members)
    world.add(*gang("g", 2, priority="high"))
    world.settle(3)
    assert gone(world) in ({"b-w-0", "b-w-2"}, {"b-w-1", "b-w-3"})


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_job_keeps_its_last_pod_where_one_of_another_is_as_cheap(action: str) -> None:
    world = World(BUNDLES.replace("preempt, reclaim", action))
    world.add(priority_class("high", 100), *gang("a", 2, minimum=1))
    full(world, *(node(f"n{at}", cards=1, mib=8000) for at in (1, 2)))
    world.add(*gang("b", 2, minimum=1))
    full(world, *(node(f"n{at}", cards=1, mib=8000) for at in (3, 4)))
    world.add(*gang("g", 2, priority="high"))
    world.settle(3)
    assert sorted(name[0] for name in gone(world)) == ["a", "b"]


def test_a_gang_stays_with_which_its_queue_would_lose_its_share_too() -> None:
    world = World((SHARES % "proportion").replace("reclaim", "gangreclaim", 1))
    loan = [group("loan", minimum=4, queue="a"), *(gpus(f"loan-w-{i}", "a", group="loan") for i in range(4))]
    full(world, node("n1", extra={GPU: "4"}), queue("a"), queue("b"), *loan)
    world.add(group("due", minimum=2, queue="b"), *(gpus(f"due-w-{i}", "b", group="due") for i in range(2)))
    world.settle(3)
    assert not world.evictions, "all of it is four, and two of them are deserved"


class Mover(VictimTasks):
    name = "mover"

    def victims(self, running: Sequence[Task]) -> Mapping[str, str]:
        return {task.uid: "it is in the wrong place" for task in running if task.name == "here"}


def test_shuffle_evicts_whom_plugins_name_and_tells_their_groups() -> None:
    world = full(World(BUNDLES.replace("preempt", "shuffle")), node("n1"), pod("here", cpu="1"), pod("there", cpu="1"))
    engine = world.engine
    engine.framework._victims = [[Mover(Arguments()).victims]]
    world.add(pod("new", cpu="1"))
    world.settle(1)
    assert [(effect.name, effect.reason) for effect in world.evictions] == [("here", "shuffle")]


def test_a_gang_for_which_no_room_can_be_made_keeps_nobody_behind_it_from_having_some() -> None:
    world = full(World(BUNDLES), node("n1", cards=2, mib=8000), *(pod(f"low-{i}", mib=8000, priority=0) for i in range(2)))
    big = (pod(f"big-w-{i}", group="big", mib=8000, priority=10) for i in range(3))
    world.add(priority_class("high", 10), group("big", minimum=3, priority_class="high"), *big)
    world.add(pod("small", mib=8000, priority=10))
    world.settle(3)
    assert len(gone(world)) == 1
    assert world.node_of("small") == "n1"


def test_no_room_is_made_for_a_share_that_its_queue_could_not_pay_once_its_cards_are_known() -> None:
    conf = room_conf(ACTIONS, spares_gangs="false", more="  - name: capacity\n")
    dear = queue("poor", capability={"volcano.sh/vgpu-memory": 5000})
    world = full(World(conf), node("n1", cards=1, mib=8000, cpu="1"), dear, pod("low", cpu="1", priority=1, queue="poor"))
    world.add(pod("whole", cards=1, cpu="1", priority=10, queue="poor"))  # a whole card, 8000 MiB, which only the card says
    world.settle(8)
    assert (gone(world), world.node_of("whole")) == (set(), "")
    world.add(pod("small", mib=4000, cpu="1", priority=10, queue="poor"))
    world.settle(8)
    assert (gone(world), world.node_of("small")) == ({"low"}, "n1")


def test_who_was_promised_room_in_its_queue_is_not_bound_when_one_that_was_to_go_for_it_stays() -> None:
    """The pod that stays is of the same gang as the one that goes, on another node: only the queue misses what it holds."""
    world = World(BUNDLES)
    world.add(queue("q", capability={"cpu": "4"}), group("b", minimum=1, queue="q"))
    here, there = ({"kubernetes.io/hostname": name} for name in ("n1", "n2"))
    big = pod("big", queue="q", cpu="3", priority=20, nodeSelector=here)
    pays, free = (pod("pays", group="b", cpu="1", priority=9, nodeSelector=here),
                  pod("free", group="b", mib=1000, nodeSelector=there))  # fmt: skip
    full(world, node("n1", cpu="8"), node("n2", cards=1, cpu="3"), pays, free, big)
    world.add(group("b", minimum=2, queue="q"))
    world.stays = lambda evict: evict.name == "pays"
    world.add(pod("rival", queue="q", cpu="1", priority=50, nodeSelector=there))
    world.settle(3)
    assert "free" in gone(world), "the gang goes as a whole"
    assert world.node_of("pays") == "n1"
    assert not world.node_of("rival") or not world.node_of("big"), "four of the queue's four are in use"
