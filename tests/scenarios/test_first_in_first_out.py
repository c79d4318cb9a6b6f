"""Queues with dequeueStrategy fifo: nobody passes a job that waits."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

Json = dict[str, Any]
CONF = conf("priority", "gang", "predicates")


def line(*objects: Json, strategy: str = "fifo", text: str = CONF) -> World:
    world = World(text)
    world.add(node("n1", cpu="4"), queue("team", dequeueStrategy=strategy), queue("other"))
    for obj in objects:
        world.add(obj)
        world.settle()
    return world


def waits(name: str, cpu: str, **more: Any) -> Json:
    return pod(name, cpu=cpu, queue="team", **more)


@pytest.mark.parametrize(("strategy", "where"), [("fifo", ""), ("traverse", "n1"), ("", "n1")])
def test_nobody_passes_a_pod_that_waits_unless_the_queue_is_traversed(strategy: str, where: str) -> None:
    world = line(waits("runs", "2"), waits("large", "3"), waits("small", "1"), strategy=strategy)
    assert (world.node_of("large"), world.node_of("small")) == ("", where)


def test_who_is_held_up_is_told_by_whom_and_goes_when_the_first_one_went() -> None:
    world = line(waits("runs", "2"), waits("large", "3"), waits("small", "1"))
    said = world.condition("small")["message"]
    assert said.endswith("comes first in queue team, which is first in, first out")
    assert said.startswith("podgroup-large")
    world.delete_pod("runs")
    world.settle()
    assert (world.node_of("large"), world.node_of("small")) == ("n1", "n1")


def test_the_others_go_when_the_first_one_is_deleted() -> None:
    world = line(waits("runs", "2"), waits("large", "3"), waits("small", "1"))
    world.delete_pod("large")
    world.settle()
    assert world.node_of("small") == "n1"


def test_a_gang_that_lacks_room_holds_up_and_a_gang_that_lacks_members_does_not() -> None:
    world = line(waits("runs", "2"), group("g", minimum=3, queue="team"), *(waits(f"g{i}", "1", group="g") for i in range(2)))
    world.add(waits("small", "1"))
    world.settle()
    assert world.node_of("small") == "n1"
    world.delete_pod("small")
    world.add(waits("g2", "1", group="g"))
    world.settle()
    world.add(waits("late", "1"))
    world.settle()
    assert world.placements() == {"runs": "n1", "g0": "", "g1": "", "g2": "", "late": ""}
    world.delete_pod("runs")
    world.settle()
    assert [world.node_of(name) for name in ("g0", "g1", "g2", "late")] == ["n1"] * 4


@pytest.mark.parametrize("idle", [{"gated": True}, {"nodeSelector": {"zone": "nowhere"}}])
def test_a_pod_that_could_not_go_whatever_is_free_holds_up_nobody(idle: Json) -> None:
    world = line(waits("first", "1", **idle), waits("small", "1"))
    assert (world.node_of("first"), world.node_of("small")) == ("", "n1")


def test_the_more_important_one_is_the_first_one() -> None:
    world = line(waits("runs", "2"), waits("large", "3"))
    world.add(waits("urgent", "2", priority=10))
    world.settle()
    assert (world.node_of("urgent"), world.node_of("large")) == ("n1", "")


def test_other_queues_are_not_held_up() -> None:
    world = line(waits("runs", "2"), waits("large", "3"), pod("else", cpu="1", queue="other"))
    assert world.node_of("else") == "n1"


def test_a_group_that_may_not_be_started_keeps_later_ones_from_being_started() -> None:
    world = World(conf("gang", "overcommit", "proportion", "predicates"))
    world.add(node("n1", cpu="4"), queue("team", dequeueStrategy="fifo"))
    for name, cpu in (("a", "50"), ("b", "1")):
        world.add(group(name, minimum=1, queue="team", resources={"cpu": cpu}))
        world.settle()
    assert [world.groups[f"default/{name}"]["status"]["phase"] for name in "ab"] == ["Pending", "Pending"]
    world.remove("PodGroup", "default/a")
    world.settle()
    assert world.groups["default/b"]["status"]["phase"] == "Inqueue"


def test_of_a_job_that_runs_the_pods_beyond_its_minimum_hold_up_who_comes_after_it() -> None:
    gang = [group("g", minimum=1, queue="team"), waits("g0", "2", group="g"), waits("g1", "3", group="g")]
    world = line(*gang, text=conf("predicates"))
    world.add(waits("small", "1"))
    world.settle()
    assert world.placements() == {"g0": "n1", "g1": "", "small": ""}


def test_what_is_lent_goes_to_the_first_one_too() -> None:
    world = World(conf("gang", "proportion", "predicates"))
    world.add(node("n1", extra={"nvidia.com/gpu": "3"}), queue("team", dequeueStrategy="fifo"), queue("other"))
    world.add(*(pod(f"t{i}", queue="team", limits={"nvidia.com/gpu": count}) for i, count in enumerate("212")))
    world.add(pod("o", queue="other", limits={"nvidia.com/gpu": "3"}))
    world.settle()
    placed = [name for name, where in world.placements().items() if where]
    assert placed in (["t0", "t1"], ["o"])
