"""Room for jobs that ask for one switch is made behind one, by the pods that are there."""

from __future__ import annotations

from typing import Any

from kit.engine_world import World
from kit.objects import group, hyper_node, node, pod, priority_class, queue
from kit.room_worlds import room_conf

Json = dict[str, Any]
CONF = room_conf("enqueue, allocate, preempt, backfill", spares_gangs="false")
RECLAIM = CONF.replace("preempt, ", "reclaim, ") + "  - name: proportion\n"


def two_leaves(*priorities: int, conf: str = CONF, **more: Any) -> World:
    """n0 and n1 behind s0, n2 and n3 behind s1, both behind s2; on each node a pod of such a priority that fills it."""
    world = World(conf)
    world.add(*(priority_class(f"p{value}", value) for value in {*priorities, 9}), *(node(f"n{i}", cpu="2") for i in range(4)))
    world.add(hyper_node("s0", 1, "n0", "n1"), hyper_node("s1", 1, "n2", "n3"), hyper_node("s2", 2, children=["s0", "s1"]))
    for number, priority in enumerate(priorities):
        world.add(pod(f"low-{number}", cpu="2", priority=priority, nodeName=f"n{number}", **more))
        world.set_phase(f"low-{number}", "Running")
    world.settle(1)
    return world


def gang(size: int = 2, *, mode: str = "hard", tier: int | None = 1, queue: str = "default") -> list[Json]:
    requested = {"mode": mode, **({} if tier is None else {"highestTierAllowed": tier})}
    return [group("g", minimum=size, topology=requested, priority_class="p9", queue=queue),
            *(pod(f"g-{i}", group="g", cpu="2", priority=9) for i in range(size))]  # fmt: skip


def gone(world: World) -> set[str]:
    return {effect.name for effect in world.evictions}


def places(world: World, size: int = 2) -> set[str]:
    return {world.node_of(f"g-{i}") for i in range(size)}


def test_who_goes_is_behind_one_switch_although_others_elsewhere_are_less_important() -> None:
    world = two_leaves(1, 1, 0, 5)
    world.add(*gang())
    world.settle(3)
    assert gone(world) == {"low-0", "low-1"}
    assert places(world) == {"n0", "n1"}


def test_nobody_goes_where_no_switch_that_is_allowed_could_be_cleared() -> None:
    world = two_leaves(0, 9, 9, 0)
    world.add(*gang())
    world.settle(12)
    assert not gone(world)
    assert world.condition("g-0")["message"].startswith("no HyperNode of tier 1 or below takes 2 pods (2 looked at)")


def test_a_farther_switch_is_cleared_where_it_is_allowed_and_no_nearer_one_can_be() -> None:
    world = two_leaves(0, 9, 9, 0)
    world.add(*gang(tier=2))
    world.settle(3)
    assert places(world) == {"n0", "n3"}


def test_a_nearer_switch_is_cleared_although_a_farther_one_would_cost_less() -> None:
    world = two_leaves(0, 3, 3, 0)
    world.add(*gang(tier=2))
    world.settle(3)
    assert places(world) == {"n0", "n1"}


def test_a_wish_makes_nobody_go_who_is_more_important_than_need_be() -> None:
    world = two_leaves(0, 3, 3, 0)
    world.add(*gang(mode="soft", tier=None))
    world.settle(3)
    assert places(world) == {"n0", "n3"}


def test_a_wish_decides_between_equals() -> None:
    world = two_leaves(3, 0, 0, 0)
    world.add(*gang(mode="soft", tier=None))
    world.settle(3)
    assert places(world) == {"n2", "n3"}


def test_what_is_promised_behind_a_switch_is_waited_for_and_not_exchanged_for_places_elsewhere() -> None:
    world = two_leaves(1, 1, 2, 5)
    world.grace = True
    world.add(*gang())
    world.settle(3)
    assert gone(world) == {"low-0", "low-1"}
    world.delete_pod("low-0")
    world.delete_pod("low-2")
    world.settle(3)
    assert places(world) == {""}, "the other half is not free yet"
    world.delete_pod("low-1")
    world.settle(3)
    assert places(world) == {"n0", "n1"}
    assert gone(world) == {"low-0", "low-1"}


def test_a_job_that_has_pods_behind_a_switch_gets_room_for_the_others_there() -> None:
    world = two_leaves(0, 1, 0, 0)
    world.delete_pod("low-0")
    world.add(*gang(size=1))
    world.settle(2)
    world.set_phase("g-0", "Running")
    made = world.groups["default/g"]
    made["spec"]["minMember"] = 2
    world.add(made, pod("g-1", group="g", cpu="2", priority=9))
    world.settle(3)
    assert places(world) == {"n0", "n1"}
    assert gone(world) == {"low-1"}


def test_a_queue_gets_its_share_back_behind_one_switch() -> None:
    world = two_leaves(0, 0, 0, 0, conf=RECLAIM)
    world.add(queue("mine"), *gang(queue="mine"))
    world.settle(3)
    assert places(world) in ({"n0", "n1"}, {"n2", "n3"})
    assert len(gone(world)) == 2
