"""Objects that make no sense: the smallest thing is set aside with its reason, everything else goes on."""

from __future__ import annotations

import copy
from itertools import permutations

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, priority_class, queue
from kit.scheduler_confs import conf

# -- amounts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", ["-1", "1e25", "9999999999999999999", "99999999999999999999E"])
@pytest.mark.parametrize("resource", ["cpu", "memory", "example.com/thing"])
def test_negative_and_huge_requests_wait_with_a_reason(amount: str, resource: str) -> None:
    world = World()
    world.add(node("n1", extra={"example.com/thing": "4"}), pod("odd", limits={resource: amount}), pod("fine", cpu="1"))
    world.settle()
    assert (world.node_of("odd"), world.node_of("fine")) == ("", "n1")
    text = world.condition("odd")["message"]
    assert "negative" in text or f"Insufficient {resource}" in text


@pytest.mark.parametrize("resources", [{"cpu": "99999999999999999999E"}, {"cpu": "-5"}, {"cpu": "many"}, {"memory": "1e300"}])
def test_a_minimum_of_resources_that_makes_no_sense_holds_up_its_own_job_at_most(resources: dict[str, str]) -> None:
    world = World()
    world.add(node("n1", cpu="4"), group("odd", minimum=1, resources=resources), pod("o", cpu="1", group="odd"))
    world.add(group("fine", minimum=1, resources={"cpu": "1"}), pod("f", cpu="1", group="fine"), pod("bare", cpu="1"))
    world.settle()
    assert (world.node_of("f"), world.node_of("bare")) == ("n1", "n1")


@pytest.mark.parametrize("allocatable", [{"cpu": "-4"}, {"cpu": "99999999999999999999E"}, {"cpu": "lots"}, {"pods": "-1"}])
def test_a_node_whose_amounts_make_no_sense_harms_no_other(allocatable: dict[str, str]) -> None:
    odd = node("odd")
    odd["status"]["allocatable"].update(allocatable)
    world = World()
    world.add(odd, node("n2", cpu="2"), pod("a", cpu="2", nodeSelector={"kubernetes.io/hostname": "n2"}), pod("b", cpu="1"))
    world.check = lambda: None  # type: ignore[method-assign]  # the auditor believes no such node
    world.settle()
    assert world.node_of("a") == "n2"
    assert world.node_of("b") == ("odd" if allocatable.get("cpu", "").endswith("E") else "")


@pytest.mark.parametrize("resource", ["cpu", "memory", "example.com/thing"])
def test_absurd_amounts_of_many_running_pods_never_add_up_to_room_and_vanish_with_them(resource: str) -> None:
    """Whoever may create pods may pin them to a node. Added in 64 bits, 32 such requests are less than nothing."""
    world = World(conf("overcommit", "predicates", "nodeorder", "binpack", "proportion"))
    world.check = lambda: None  # type: ignore[method-assign]
    world.add(node("n1", extra={"example.com/thing": "4"}, pods=1000), pod("mine", limits={resource: "2"}, nodeName="n1"))
    table = world.engine.state.ledger.table
    before = table.used.copy()
    absurd = [pod(f"absurd-{i}", limits={resource: "9223372036854775807"}, scheduler="x", nodeName="n1") for i in range(70)]
    for obj in absurd:
        world.add(obj)
        assert (table.used >= before).all()
    for obj in absurd[::2]:
        world.terminate(obj["metadata"]["name"])
    world.add(group("g", minimum=1, resources={resource: "1"}), pod("a", limits={resource: "1"}, group="g"))
    world.settle()
    assert world.node_of("a") == ""
    for obj in absurd:
        world.delete_pod(obj["metadata"]["name"])
    assert (table.used == before).all()
    assert not table.releasing.any()
    world.settle()
    assert world.node_of("a") == "n1"


@pytest.mark.parametrize("limits", [{"cpu": "-1"}, {"cpu": "0"}, {"memory": "-1Gi"}, {"cpu": "some"}])
def test_a_capability_that_makes_no_sense_is_none(limits: dict[str, str]) -> None:
    world = World()
    world.add(node("n1"), queue("q", capability=limits), pod("a", cpu="1", memory="1Gi", queue="q"))
    world.settle()
    assert world.node_of("a") == "n1"


# -- PodGroups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minimum", [3, 2**31 - 1])
def test_a_gang_of_more_than_there_are_waits_alone_and_starts_when_they_come(minimum: int) -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1"), group("g", minimum=minimum), pod("g-0", cpu="1", group="g"), pod("other", cpu="1"))
    world.settle()
    assert (world.node_of("g-0"), world.node_of("other")) == ("", "n1")
    assert world.condition("g-0")["message"] == f"Not enough valid tasks for gang-scheduling, valid: 1, min: {minimum}"
    world.add({**group("g", minimum=1)})
    world.settle()
    assert world.node_of("g-0") == "n1"


def test_a_negative_minimum_counts_as_none_and_is_named_for_as_long_as_it_stands() -> None:
    world = World()
    world.add(node("n1"), group("g", minimum=-3), pod("a", cpu="1", group="g"))
    world.settle()
    world.set_phase("a", "Running")
    world.add(priority_class("late", 3))
    world.settle()
    assert world.node_of("a") == "n1"
    assert "minMember is negative" in world.engine.state.jobs["default/g"].problem


def test_minimums_of_roles_that_nobody_has_hold_the_gang_back() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1"), group("g", minimum=2, roles={"ps": 1, "worker": 1}))
    world.add(*(pod(f"g-{i}", cpu="1", group="g", role="worker") for i in range(2)), pod("other", cpu="1"))
    world.settle()
    assert (world.bindings[0].name, len(world.bindings)) == ("other", 1)
    assert world.condition("g-0")["message"] == "Not enough valid pods of each task for gang-scheduling"


# -- priority classes ----------------------------------------------------------------------------------------------


def test_a_priority_class_that_is_gone_counts_as_zero_and_is_named() -> None:
    world = World()
    world.add(node("n1"), group("g", minimum=1, priority_class="vanished"), pod("a", cpu="1", group="g"))
    world.settle()
    assert world.node_of("a") == "n1"
    assert world.engine.state.jobs["default/g"].problem == "priority class 'vanished' does not exist; 0 is used"


def test_where_there_is_a_default_it_takes_the_place_of_a_class_that_is_gone() -> None:
    world = World()
    world.add(priority_class("usual", 50, default=True), group("g", minimum=1, priority_class="vanished"))
    job = world.engine.state.jobs["default/g"]
    assert (job.priority, job.problem) == (50, "priority class 'vanished' does not exist; 50 is used")


def test_a_priority_class_made_again_with_another_value_reorders_who_waits() -> None:
    world = World()
    world.add(priority_class("mine", 9), priority_class("theirs", 5), node("n1", cpu="1"), pod("first", cpu="1"))
    world.settle()
    for name, named in (("m", "mine"), ("t", "theirs")):
        world.add(group(name, minimum=1, priority_class=named), pod(name, cpu="1", group=name))
    world.settle()
    world.engine.state.groups.drop_priority_class("mine")
    assert world.engine.state.jobs["default/m"].priority == 0
    world.add(priority_class("mine", 3))
    assert world.engine.state.jobs["default/m"].problem == ""
    world.delete_pod("first")
    world.settle()
    assert (world.node_of("t"), world.node_of("m")) == ("n1", "")


# -- queues --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}])
def test_queues_that_are_their_own_ancestors_are_named_in_whatever_order_they_come(parents: dict[str, str]) -> None:
    for order in permutations(parents):
        world = World()
        world.add(node("n1"), queue("root"), queue("below", parent="a"))
        world.add(*(queue(name, parent=parents[name]) for name in order), pod("p", cpu="1", queue="a"))
        world.settle()
        assert world.node_of("p") == "n1"
        assert sorted(world.engine.state.problems) == [f"Queue {name}" for name in sorted(parents)]
        assert all("its own ancestor" in text for text in world.engine.state.problems.values())
        assert [name for name, obj in world.queues.items() if obj["status"].get("allocated")] == ["a"]


def test_mending_one_queue_of_a_circle_mends_them_all_and_their_parents_count_again() -> None:
    world = World()
    world.add(node("n1"), queue("root"), queue("a", parent="b"), queue("b", parent="c"), queue("c", parent="a"))
    world.add(pod("p", cpu="1", queue="a"))
    world.settle()
    world.add(queue("c", parent="root"))
    world.settle()
    assert world.engine.state.problems == {}
    assert {name: obj["status"]["allocated"]["cpu"] for name, obj in world.queues.items() if "allocated" in obj["status"]} == {
        "a": "1", "b": "1", "c": "1", "root": "1"}  # fmt: skip
    world.add(queue("a", parent="root"))
    world.settle()
    assert world.queues["b"]["status"]["allocated"] == {}
    world.remove("Queue", "c")
    world.add(queue("c", parent="c"))
    world.remove("Queue", "c")
    assert world.engine.state.problems == {}


def test_a_queue_that_is_deleted_is_guaranteed_nothing_though_pods_are_left_in_it() -> None:
    world = World(conf("proportion", "predicates"))
    world.add(node("n1", cpu="4"), queue("q", guarantee={"cpu": "4"}), pod("left", cpu="1", queue="q", gated=True))
    world.add(pod("a", cpu="4"))
    world.settle()
    assert world.node_of("a") == ""
    world.remove("Queue", "q")
    world.settle()
    assert world.node_of("a") == "n1"


# -- one uid for two pods ------------------------------------------------------------------------------------------


def namesakes(*, first_runs: bool = False, second_runs: bool = False, stranger: bool = False) -> World:
    """Two pods, a and b, of one uid, each as large as a node; ours unless they are strangers."""
    world = World()
    world.check = lambda: None  # type: ignore[method-assign]  # the auditor knows pods by their uid, too
    scheduler = "default-scheduler" if stranger else "volcano"
    first = pod("a", cpu="4", scheduler=scheduler, **({"nodeName": "n1"} if first_runs else {}))
    second = pod("b", cpu="4", **({"nodeName": "n2"} if second_runs else {}))
    second["metadata"]["uid"] = first["metadata"]["uid"]
    world.add(node("n1", cpu="4"), node("n2", cpu="4"), first, second)
    world.settle()
    return world


def test_of_two_pods_of_one_uid_the_second_is_left_alone_until_the_first_is_gone() -> None:
    world = namesakes()
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")
    assert "belongs to pod default/a" in world.engine.state.problems["Pod default/b"]
    world.add(world.pods["default/b"])  # told again
    world.delete_pod("a")
    world.settle()
    assert world.node_of("b") == "n1"
    assert world.engine.state.problems == {}


def test_deleting_the_second_pod_of_a_uid_harms_the_first_in_nothing() -> None:
    world = namesakes()
    world.delete_pod("b")
    world.add(pod("c", cpu="4"), pod("d", cpu="4"))
    world.settle()
    assert (world.node_of("a"), world.node_of("c"), world.node_of("d")) == ("n1", "n2", "")
    assert world.engine.state.problems == {}


def test_a_pod_that_bears_the_uid_of_another_schedulers_pod_does_not_stop_the_cycles() -> None:
    world = namesakes(first_runs=True, stranger=True)
    world.add(pod("c", cpu="4"))
    world.settle()
    assert (world.node_of("b"), world.node_of("c")) == ("", "n2")
    world.delete_pod("a")
    world.settle()
    assert world.node_of("b") == "n1"


@pytest.mark.parametrize("stranger", [False, True])
def test_two_running_pods_of_one_uid_are_both_charged_to_their_nodes(stranger: bool) -> None:
    world = namesakes(first_runs=True, second_runs=True, stranger=stranger)
    waiting = pod("c", cpu="4")
    world.add(waiting)
    world.settle()
    assert world.node_of("c") == ""
    world.delete_pod("b")
    world.settle()
    assert world.node_of("c") == "n2"
    world.delete_pod("a")
    world.delete_pod("c")
    assert world.engine.state.ledger.placements == {}


def test_the_second_pod_of_a_uid_stays_charged_when_the_first_is_gone() -> None:
    world = namesakes(first_runs=True, second_runs=True)
    world.delete_pod("a")
    world.add(pod("c", cpu="4"), pod("d", cpu="4"))
    world.settle()
    assert (world.node_of("c"), world.node_of("d")) == ("n1", "")
    assert len(world.engine.state.ledger.placements) == 2


# -- what the watch says -------------------------------------------------------------------------------------------


def test_a_deletion_told_twice_and_one_of_a_pod_never_seen_mean_nothing() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=8000))
    world.settle()
    gone, never = copy.deepcopy(world.pods["default/a"]), pod("never", mib=8000)
    world.delete_pod("a")
    world.forget_pod(gone)
    world.forget_pod(never)
    world.add(pod("b", mib=8000))
    world.settle()
    assert world.card_of("b") == "n1/0"


def test_a_node_that_shrinks_and_grows_again_under_its_pods_is_charged_for_them_once() -> None:
    world = World()
    world.check = lambda: None  # type: ignore[method-assign]  # the pods that run there are over by no fault of ours
    world.add(node("n1", cpu="4"), pod("a", cpu="3"))
    world.settle()
    for cpu in ("1", "0", "4"):
        world.add(node("n1", cpu=cpu), pod(f"late-{cpu}", cpu="1"))
        world.settle()
    late = [world.node_of(f"late-{cpu}") for cpu in ("1", "0", "4")]
    assert sorted(late) == ["", "", "n1"]
