"""Plugin capacity: what queues may have, deserve and borrow, alone and as a tree."""

from __future__ import annotations

from itertools import permutations

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.room_worlds import GPU, capacity, cluster, departments, gpus, running

CARDS, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


# -- borrowing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [False, True])
def test_what_is_idle_is_borrowed_beyond_what_a_queue_deserves(tree: bool) -> None:
    world = cluster(
        queue("a", deserved={GPU: "2"}), queue("b", deserved={GPU: "6"}), *(gpus(f"a{i}", "a") for i in range(9)),
        conf=capacity(tree=tree),
    )  # fmt: skip
    assert running(world) == {"a": 8}


@pytest.mark.parametrize("tree", [False, True])
def test_nobody_borrows_what_another_queue_is_guaranteed(tree: bool) -> None:
    world = cluster(
        queue("a", deserved={GPU: "2"}), queue("b", guarantee={GPU: "3"}), *(gpus(f"a{i}", "a") for i in range(9)),
        conf=capacity(tree=tree),
    )  # fmt: skip
    assert running(world) == {"a": 5}
    assert world.condition("a8")["message"] == f"queue a has no room left for it ({GPU}: 1 wanted, 5 of 5 in use)"
    world.add(*(gpus(f"b{i}", "b") for i in range(4)))
    world.settle()
    assert running(world) == {"a": 5, "b": 3}


@pytest.mark.parametrize("tree", [False, True])
def test_two_queues_together_do_not_take_what_a_third_is_guaranteed_either(tree: bool) -> None:
    world = cluster(
        queue("a"), queue("b"), queue("c", guarantee={GPU: "3"}), *(gpus(f"{at}{i}", at) for at in "ab" for i in range(5)),
        conf=capacity(tree=tree),
    )  # fmt: skip
    assert sum(running(world).values()) == 5
    waits = next(name for name, where in world.placements().items() if not where)
    assert "guaranteed to other queues" in world.condition(waits)["message"]
    world.add(gpus("c0", "c", 3))
    world.settle()
    assert world.node_of("c0") == "n1"
    world.delete_pod("c0")
    world.settle()
    assert sum(running(world).values()) == 5


@pytest.mark.parametrize("relief", ["node", "gone", "less"])
def test_who_waits_for_what_is_kept_for_others_goes_when_it_is_kept_no_longer(relief: str) -> None:
    world = cluster(queue("a"), queue("c", guarantee={GPU: "3"}), *(gpus(f"a{i}", "a") for i in range(6)))
    assert running(world) == {"a": 5}
    if relief == "node":
        world.add(node("n2", extra={GPU: "1"}))
    elif relief == "gone":
        world.remove("Queue", "c")
    else:
        world.add(queue("c", guarantee={GPU: "2"}))
    world.settle()
    assert running(world) == {"a": 6}


def test_no_more_is_borrowed_than_the_capability_allows() -> None:
    world = cluster(queue("a", deserved={GPU: "2"}, capability={GPU: "4"}), *(gpus(f"a{i}", "a") for i in range(9)))
    assert running(world) == {"a": 4}


def test_cards_and_their_memory_are_counted_each() -> None:
    world = World(capacity("gang", "deviceshare", tree=True).replace(
        "  - name: deviceshare\n", "  - name: deviceshare\n    arguments:\n      deviceshare.VGPUEnable: true\n"))  # fmt: skip
    world.add(queue("root"), node("n1", cards=4, mib=16000), queue("a", capability={CARDS: "3", MEMORY: "20000"}))
    world.add(*(pod(f"a{i}", cards=1, mib=8000, queue="a") for i in range(3)))
    world.settle()
    assert running(world) == {"a": 2}  # the memory is short
    world.delete_pod("a0")
    world.delete_pod("a1")
    world.delete_pod("a2")
    world.add(*(pod(f"a{i}", cards=1, mib=1000, queue="a") for i in range(3, 8)))
    world.settle()
    assert running(world) == {"a": 3}  # the cards are


def test_the_queue_that_uses_the_least_of_what_it_deserves_goes_first() -> None:
    world = cluster(
        queue("a", deserved={GPU: "2"}), queue("b", deserved={GPU: "6"}), queue("c"),
        *(gpus(f"{at}{i}", at) for at in "abc" for i in range(8)),
    )  # fmt: skip
    assert running(world) == {"a": 2, "b": 6, "c": 0}


# -- the tree --------------------------------------------------------------------------------------------------------


def test_siblings_share_what_their_parent_may_have() -> None:
    world = cluster(*departments(capability={GPU: "5"}), *(gpus(f"{at}{i}", at) for at in "ab" for i in range(4)))
    found = running(world)
    assert sum(found.values()) == 5
    assert sorted(found.values()) == [2, 3]
    world.add(gpus("b9", "b"))
    world.settle()
    assert "queue x above it" in world.condition("b9")["message"] or "capability of queue x" in world.condition("b9")["message"]


def test_queues_are_ordered_from_the_root_down() -> None:
    """Team b has nothing, but its department is over its share; team c goes first."""
    world = cluster(*departments(), *(gpus(f"a{i}", "a") for i in range(5)))
    world.add(gpus("b0", "b", 2), gpus("c0", "c", 2))
    world.settle()
    assert (world.node_of("c0"), world.node_of("b0")) == ("n1", "")


def test_the_order_follows_what_siblings_take_within_one_cycle() -> None:
    world = World(capacity("gang"))
    world.add(queue("root"), node("n1", extra={GPU: "8"}), *departments())
    world.add(*(gpus(f"{at}{i}", at) for at in "abc" for i in range(8)))
    world.settle()
    assert running(world) == {"a": 2, "b": 2, "c": 4}


def test_a_guarantee_deep_in_the_tree_is_kept_from_the_other_branches() -> None:
    world = cluster(*departments(), queue("d", parent="b", guarantee={GPU: "3"}), *(gpus(f"c{i}", "c") for i in range(8)))
    assert running(world) == {"c": 5}
    world.add(*(gpus(f"a{i}", "a") for i in range(2)), *(gpus(f"d{i}", "d") for i in range(4)))
    world.settle()
    assert running(world) == {"a": 0, "c": 5, "d": 3}


def test_pods_run_in_the_lowest_queues_only_and_the_others_are_told() -> None:
    world = cluster(*departments(), gpus("x0", "x"), group("g", minimum=1, queue="x", resources={"cpu": "1"}))
    assert world.node_of("x0") == ""
    text = "queue x has queues below it; with plugin capacity and enableHierarchy pods run in the lowest only"
    assert text in world.condition("x0")["message"]
    assert world.groups["default/g"]["status"]["phase"] == "Pending"
    assert cluster(*departments(), gpus("x0", "x"), conf=capacity(tree=False)).node_of("x0") == "n1"


def test_pods_in_a_queue_that_has_queues_below_it_leave_those_their_turns() -> None:
    each = {at: [gpus(f"{at}{i}", at) for i in range(3)] for at in "xab"}
    world = cluster(*departments(), *each["x"], *each["a"], *each["b"])
    assert running(world) == {"x": 0, "a": 3, "b": 3}


def test_a_job_is_started_only_within_what_every_queue_above_may_have() -> None:
    world = cluster(
        *departments(capability={GPU: "3"}), group("a", minimum=2, queue="a", resources={GPU: "2"}),
        group("b", minimum=2, queue="b", resources={GPU: "2"}),
    )  # fmt: skip
    phases = {name: world.groups[f"default/{name}"]["status"]["phase"] for name in "ab"}
    assert phases == {"a": "Inqueue", "b": "Pending"}
    (said,) = {event.message for event in world.events if event.name == "b"}
    assert said == f"queue resource quota insufficient: insufficient {GPU} (in queue x above it)"


def test_what_a_gang_took_and_gave_back_counts_for_nobody_above_it() -> None:
    world = cluster(*departments(), group("g", minimum=3, queue="a"), *(gpus(f"a{i}", "a", 4, group="g") for i in range(3)))
    assert running(world) == {"a": 0}
    world.add(*(gpus(f"b{i}", "b") for i in range(8)))
    world.settle()
    assert running(world) == {"a": 0, "b": 8}


def test_a_queue_that_moves_takes_what_it_holds_to_its_new_parent() -> None:
    world = cluster(*departments(capability={GPU: "4"}), *(gpus(f"a{i}", "a") for i in range(4)))
    world.add(gpus("b0", "b"))
    world.settle()
    assert world.node_of("b0") == ""
    world.add(queue("a", parent="y", deserved={GPU: "2"}))
    world.settle()
    assert world.node_of("b0") == "n1"


# -- trees that do not add up ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}])
def test_queues_in_a_circle_stand_below_the_root_and_everybody_else_goes_on(parents: dict[str, str]) -> None:
    for order in permutations(parents):
        world = cluster(*(queue(name, parent=parents[name]) for name in order), queue("z"), gpus("z0", "z"), gpus("a0", "a"))
        assert world.node_of("z0") == "n1"
        assert (world.node_of("a0") == "n1") or "has queues below it" in world.condition("a0")["message"]
        assert sorted(world.engine.state.problems) == [f"Queue {name}" for name in sorted(parents)]


def test_children_that_together_deserve_more_than_their_parent_are_held_by_it_and_that_is_said() -> None:
    world = cluster(
        queue("x", deserved={GPU: "3"}), queue("y", deserved={GPU: "5"}), queue("a", parent="x", deserved={GPU: "3"}),
        queue("b", parent="x", deserved={GPU: "3"}), queue("c", parent="y", deserved={GPU: "5"}),
        *(gpus(f"{at}{i}", at) for at in "abc" for i in range(8)),
    )  # fmt: skip
    assert running(world)["c"] == 5
    assert world.engine.state.problems == {"Queue x": (
        f"queue x: its children together deserve more than it is given: {GPU} 6, and it 3; its own holds for all of them together"
    )}  # fmt: skip
    world.add(queue("b", parent="x", deserved={GPU: "0"}))
    world.settle()
    assert world.engine.state.problems == {}


def test_children_that_are_guaranteed_more_than_their_parent_keep_it_from_others_and_that_is_said() -> None:
    world = cluster(
        queue("x", guarantee={GPU: "2"}), queue("a", parent="x", guarantee={GPU: "2"}),
        queue("b", parent="x", guarantee={GPU: "2"}), queue("c"), *(gpus(f"c{i}", "c") for i in range(8)),
    )  # fmt: skip
    assert running(world) == {"c": 4}
    assert "together are guaranteed more than it is given" in world.engine.state.problems["Queue x"]


def test_guarantees_beyond_what_there_is_let_each_queue_have_its_own() -> None:
    world = cluster(
        queue("a", guarantee={GPU: "6"}), queue("b", guarantee={GPU: "6"}), *(gpus(f"a{i}", "a") for i in range(8)),
    )  # fmt: skip
    assert running(world) == {"a": 6}


def test_a_queue_whose_parent_is_deleted_stands_below_the_root() -> None:
    world = cluster(*departments(capability={GPU: "1"}), *(gpus(f"a{i}", "a") for i in range(4)))
    assert running(world) == {"a": 1}
    world.remove("Queue", "x")
    world.settle()
    assert running(world) == {"a": 4}
