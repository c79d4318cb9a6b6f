"""Pods that wait one behind the other for AI cores of chips that are cut on demand are laid out together over the nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kit.engine_world import World
from kit.npu_core_world import core_pod_object, cut_world
from kit.objects import group
from kit.scheduler_confs import conf, sharing

from pumice.wire.mindcluster import parse_assignment

CONF = conf("priority", "gang", "predicates", sharing("AscendMindClusterVNPU", ScheduleWeight=10, PlanPendingSet="%s"))
def placed(world: World, asks: Sequence[int], *, gang: bool = False, level: str = "low") -> list[int]:
    if gang:
        world.add(group("g", minimum=len(asks)))
    world.add(*(core_pod_object(f"p{at}", cores, level, priority=9 - at, group="g" if gang else None)
                for at, cores in enumerate(asks)))  # fmt: skip
    world.settle()
    return [cores for at, cores in enumerate(asks) if world.node_of(f"p{at}")]


@pytest.mark.parametrize("plan", ["none", "kept"])
def test_a_pod_of_one_core_leaves_the_place_that_those_behind_it_need(plan: str) -> None:
    """On the fuller node it would stand in the way: that chip has room for four cores, and the empty one is for eight."""
    world, asks = cut_world(CONF % plan, [["vir04_3c"]], [[], ["vir04_3c", "vir02_1c"]]), (1, 4, 8)
    assert (placed(world, asks) == list(asks)) is (plan == "kept")


@pytest.mark.parametrize("plan", ["none", "kept"])
def test_of_a_gang_pods_of_one_template_go_to_one_node(plan: str) -> None:
    """One template at a time is in the making on a node: with one of four cores on each, neither would take the smallest."""
    held, asks = ([["vir04_3c"], ["vir04_3c", "vir02_1c", "vir01"]], [["vir04_3c"], ["vir04_3c"]]), (4, 1, 4)
    world = cut_world(CONF % plan, *held)
    assert (placed(world, asks, gang=True) == list(asks)) is (plan == "kept")


def test_one_template_at_a_time_is_in_the_making_on_a_node_by_a_plan_too() -> None:
    world = cut_world(CONF % "kept", [[], [], []])
    assert placed(world, (1, 2, 4)) == [1]


def test_nobody_loses_the_place_that_it_would_have_alone() -> None:
    world = cut_world(CONF % "kept", [[]])
    assert placed(world, (1, 8)) == [1]


@pytest.mark.parametrize("level", ["low", "high"])
def test_nobody_gets_a_smaller_slice_by_a_plan_than_alone(level: str) -> None:
    """On the other node the first has one AI CPU, which is what level low asks for; level high has two where it stands alone."""
    world = cut_world(CONF % "kept", [["vir04_3c"]], [["vir04", "vir02"]])
    assert placed(world, (2, 4), level=level) == ([2] if level == "high" else [2, 4])
    decided = parse_assignment(world.pods["default/p0"]["metadata"]["annotations"]["huawei.com/npu-core"])
    assert decided is not None
    assert decided.template == ("vir02" if level == "high" else "vir02_1c")
