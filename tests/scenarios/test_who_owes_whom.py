"""Between queues: who may claim room of whom, which pods are safe and why, as the plugins vote (proportion, capacity, drf)."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.room_worlds import GPU, capacity, cluster, departments, gpus
from kit.scheduler_confs import conf

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.state.jobs import Status, Task

Json = dict[str, Any]


def requested(world: World, claimant: str) -> tuple[bool, dict[str, str]]:
    """Return whether the pod's queue may claim at all, and of the running pods of other queues why each stays (empty: it may
    go)."""
    engine = world.engine
    tasks = {task.name: task for task in engine.state.tasks.values()}
    device_requests = tasks[claimant]
    assert device_requests.job is not None
    framework = engine.framework
    cycle = Cycle(engine.state, framework, engine.placer, world.now, "")
    framework.open_queues(cycle)
    for plugin in framework.plugins:
        plugin.open(cycle)
    victims = [task for task in tasks.values() if _others(task, device_requests)]
    stay = framework.not_reclaimable(device_requests, victims)
    return framework.preemptive(device_requests.job.queue, device_requests), {
        task.name: stay.get(task.uid, "") for task in victims
    }


def _others(task: Task, device_requests: Task) -> bool:
    running = task.status in (Status.BOUND, Status.RUNNING)
    return (
        running
        and task.job is not None
        and device_requests.job is not None
        and task.job.queue is not device_requests.job.queue
    )


def going(world: World, claimant: str) -> list[str]:
    may, stay = requested(world, claimant)
    return sorted(name for name, why in stay.items() if not why) if may else []


def two(a: Json, b: Json, *more: Json, tree: bool = False) -> World:
    """Queue a has all eight, by pods of one; a pod of queue b waits."""
    world = cluster(a, b, *(gpus(f"a{i}", "a") for i in range(8)), *more, conf=capacity("conformance", tree=tree))
    world.add(gpus("b0", "b"))
    world.settle()
    return world


# -- capacity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [False, True])
def test_a_queue_claims_what_it_deserves_and_the_borrower_gives_back_no_more_than_it_borrowed(tree: bool) -> None:
    world = two(queue("a", deserved={GPU: "5"}), queue("b", deserved={GPU: "3"}), tree=tree)
    may, stay = requested(world, "b0")
    assert may
    assert [name for name, why in stay.items() if not why] == ["a0", "a1", "a2"]
    assert {why for why in stay.values() if why} == {f"queue a has no more than it deserves: {GPU} 5 of 5"}


def test_who_would_have_more_than_it_deserves_claims_nothing() -> None:
    world = two(queue("a", deserved={GPU: "5"}), queue("b", deserved={GPU: "3"}))
    world.add(gpus("b1", "b", 4))
    world.settle()
    may, stay = requested(world, "b1")
    assert not may
    assert set(stay.values()) == {f"queue b would claim more than it deserves: {GPU} 4 with 0 of 3 in use"}


def test_a_queue_that_deserves_nothing_may_only_borrow_and_gives_everything_back() -> None:
    world = two(queue("a"), queue("b", deserved={GPU: "3"}))
    assert len(going(world, "b0")) == 8
    other = two(queue("a", deserved={GPU: "1"}), queue("b"))
    assert not requested(other, "b0")[0]
    assert set(requested(other, "b0")[1].values()) == {"queue b deserves nothing, so it may only borrow"}


def test_what_a_queue_is_guaranteed_stays_though_it_deserves_nothing_else() -> None:
    world = two(queue("a", guarantee={GPU: "6"}), queue("b", deserved={GPU: "8"}))
    may, stay = requested(world, "b0")
    assert (may, sum(not why for why in stay.values())) == (True, 2)
    assert {why for why in stay.values() if why} == {f"queue a would fall under what it is guaranteed: {GPU} 6"}


def test_who_deserves_cards_does_not_give_them_up_for_the_processors_beside_them() -> None:
    world = World(capacity("conformance", tree=False))
    world.add(node("n1", cpu="8", extra={GPU: "8"}), queue("a", deserved={GPU: "8"}), queue("b", deserved={"cpu": "4"}))
    world.add(*(pod(f"a{i}", queue="a", cpu="1", limits={GPU: "1"}) for i in range(8)))
    world.settle()
    world.add(pod("b0", queue="b", cpu="1"), pod("b1", queue="b", cpu="1", limits={GPU: "1"}))
    world.settle()
    may, stay = requested(world, "b0")
    assert may
    assert set(stay.values()) == {"queue a deserves what the pod holds, and names no share of cpu"}
    assert not requested(world, "b1")[0]  # it deserves no card


def test_between_departments_it_counts_what_the_departments_deserve() -> None:
    """Team a has more than it deserves of its department, and the department has not: it owes its sibling, and nobody else."""
    world = cluster(
        *departments(), queue("z"), *(gpus(f"a{i}", "a") for i in range(4)), *(gpus(f"z{i}", "z") for i in range(4)),
        conf=capacity("conformance"),
    )  # fmt: skip
    world.add(gpus("b0", "b"), gpus("c0", "c"))
    world.settle()
    assert going(world, "b0") == ["a0", "a1"]
    may, stay = requested(world, "c0")
    assert may
    assert stay["a0"] == f"queue x has no more than it deserves: {GPU} 4 of 4"
    assert stay["z0"] == ""


def test_a_department_with_all_that_it_deserves_claims_within_itself_only() -> None:
    world = cluster(
        *departments(), queue("z"), *(gpus(f"a{i}", "a") for i in range(4)), *(gpus(f"z{i}", "z") for i in range(4)),
        conf=capacity("conformance"),
    )  # fmt: skip
    world.add(gpus("b0", "b"))
    world.settle()
    may, stay = requested(world, "b0")
    assert may
    assert stay["a0"] == ""
    assert stay["z0"] == f"queue x would claim more than it deserves: {GPU} 1 with 4 of 4 in use"


def test_the_levels_that_have_a_say_can_be_bounded_as_upstream_bounds_them() -> None:
    world = cluster(
        *departments(), queue("z"), *(gpus(f"a{i}", "a") for i in range(4)), *(gpus(f"z{i}", "z") for i in range(4)),
        conf=capacity("conformance", ancestorReclaimLevel=0),
    )  # fmt: skip
    world.add(gpus("c0", "c"))
    world.settle()
    assert requested(world, "c0")[1]["a0"] == ""


def test_what_a_queue_deserves_counts_in_whatever_tier_it_is_asked() -> None:
    """conformance, in an earlier tier, lets everybody go."""
    text = capacity("conformance", tree=False).replace("  - name: capacity", "- plugins:\n  - name: capacity")
    world = cluster(
        queue("a", deserved={GPU: "8"}), queue("b", deserved={GPU: "3"}), *(gpus(f"a{i}", "a") for i in range(8)), conf=text,
    )  # fmt: skip
    world.add(gpus("b0", "b"))
    world.settle()
    assert going(world, "b0") == []


def test_a_queue_that_is_deleted_owes_everything_and_claims_nothing() -> None:
    world = two(queue("a", deserved={GPU: "8"}), queue("b", deserved={GPU: "3"}))
    assert going(world, "b0") == []
    world.remove("Queue", "a")
    world.settle()
    assert len(going(world, "b0")) == 8
    world.remove("Queue", "b")
    world.settle()
    assert not requested(world, "b0")[0]


# -- proportion ------------------------------------------------------------------------------------------------------


def test_proportion_lets_go_what_is_beyond_the_share_by_weight() -> None:
    world = World(conf("conformance", "proportion", "predicates"))
    world.add(node("n1", extra={GPU: "8"}), queue("a"), queue("b"), *(gpus(f"a{i}", "a") for i in range(8)))
    world.settle()
    world.add(*(gpus(f"b{i}", "b") for i in range(8)), gpus("b9", "b", 5))
    world.settle()
    may, stay = requested(world, "b0")
    assert may
    assert [name for name, why in stay.items() if not why] == ["a0", "a1", "a2", "a3"]
    assert stay["a7"] == f"queue a has no more than it deserves: {GPU} 4 of 4"
    assert not requested(world, "b9")[0]


def test_of_one_card_between_two_queues_nobody_claims_it_from_the_other() -> None:
    world = World(conf("conformance", "proportion", "predicates"))
    world.add(node("n1", extra={GPU: "1"}), queue("a"), queue("b"), gpus("a0", "a"))
    world.settle()
    world.add(gpus("b0", "b"))
    world.settle()
    assert going(world, "b0") == []


# -- drf -------------------------------------------------------------------------------------------------------------


def hierarchy(*more: Json) -> World:
    text = conf("conformance", "drf", "predicates").replace(
        "  - name: drf\n", "  - name: drf\n    enableHierarchy: true\n")  # fmt: skip
    world = World(text)
    world.add(node("n1", extra={GPU: "8"}))
    for name, path in (("a", "root/eng"), ("b", "root/sci")):
        world.add(queue(name, annotations={"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": "1/1"}))
    world.add(*more)
    world.settle()
    return world


def test_in_a_tree_of_queues_the_richer_branch_gives_until_it_would_be_the_poorer_one() -> None:
    world = hierarchy(*(gpus(f"a{i}", "a") for i in range(6)), *(gpus(f"b{i}", "b") for i in range(2)))
    world.add(gpus("b9", "b"))
    world.settle()
    may, stay = requested(world, "b9")
    assert may
    assert [name for name, why in stay.items() if not why] == ["a0", "a1"]
    assert stay["a5"] == "queue a would come before queue b in the tree of queues"


def test_of_two_branches_that_are_even_neither_claims_from_the_other() -> None:
    world = hierarchy(*(gpus(f"{at}{i}", at) for at in "ab" for i in range(4)))
    world.add(gpus("a9", "a"), gpus("b9", "b"))
    world.settle()
    assert (going(world, "a9"), going(world, "b9")) == ([], [])


def test_within_a_queue_a_job_gives_to_a_poorer_one_until_they_are_even() -> None:
    world = World(conf("drf", "predicates"))
    world.add(node("n1", extra={GPU: "4"}), group("rich", minimum=1), group("poor", minimum=1))
    world.add(*(pod(f"r{i}", group="rich", limits={GPU: "1"}) for i in range(4)))
    world.settle()
    world.add(pod("p0", group="poor", limits={GPU: "1"}))
    world.settle()
    tasks = {task.name: task for task in world.engine.state.tasks.values()}
    stay = world.engine.framework.not_preemptable(tasks["p0"], [tasks[f"r{i}"] for i in range(4)])
    assert sorted(tasks[f"r{i}"].uid in stay for i in range(4)) == [False, False, False, True]
    assert next(iter(stay.values())) == (
        "job rich would have a smaller share of the cluster (0) than job poor with one more pod (0.25)"
    )
