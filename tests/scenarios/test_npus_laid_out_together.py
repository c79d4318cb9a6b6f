"""Pods that wait one behind the other for NPUs and parts of them are laid out together, and never worse than one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kit.engine_world import World
from kit.npu_world import chip, npu_limits, npu_node_object
from kit.objects import group, pod
from kit.room_worlds import MIG, mig_node
from kit.scheduler_confs import conf, sharing

CONF = conf("priority", "gang", "predicates", sharing("AscendHAMiVNPU", "VGPU", SchedulePolicy="%s", PlanPendingSet="%s"))
P310 = chip("310P3")
VIR01, VIR02, VIR04, WHOLE = 3072, 6144, 12288, None


def world_of(plan: str, chips: int = 2, policy: str = "binpack") -> World:
    world = World(CONF % (policy, plan))
    world.add(npu_node_object("n", P310, chips))
    return world


def served(world: World, asks: Sequence[int | None], **more: str) -> list[int | None]:
    world.add(*(pod(f"p{at}", limits=npu_limits(P310, 1, mb), **more) for at, mb in enumerate(asks)))
    world.settle()
    return [mb for at, mb in enumerate(asks) if world.node_of(f"p{at}")]


@pytest.mark.parametrize("asks", [(VIR02, VIR02, VIR01, VIR01, VIR04, VIR04), (VIR01, VIR01, VIR01, VIR01, VIR04, VIR04)])
@pytest.mark.parametrize("plan", ["none", "kept"])
def test_small_pods_that_come_first_leave_each_chip_a_place_for_a_large_one(asks: tuple[int, ...], plan: str) -> None:
    assert (served(world_of(plan), asks) == list(asks)) is (plan == "kept")


@pytest.mark.parametrize("plan", ["none", "kept"])
def test_pods_that_are_spread_leave_a_chip_to_one_that_wants_it_whole(plan: str) -> None:
    asks = (VIR01, VIR01, WHOLE)
    assert (served(world_of(plan, policy="spread"), asks) == list(asks)) is (plan == "kept")


def test_nobody_loses_the_place_that_it_would_have_alone() -> None:
    assert served(world_of("kept", 1), (VIR01, WHOLE)) == [VIR01]


def test_of_pods_that_stand_equal_the_most_memory_is_served_where_that_is_asked_for_and_a_whole_chip_counts() -> None:
    assert served(world_of("fullest", 1), (VIR01, WHOLE)) == [WHOLE]


@pytest.mark.parametrize("plan", ["none", "kept"])
def test_a_gang_stands_whose_pods_name_chips_where_no_order_by_size_would_do(plan: str) -> None:
    """The largest take the first chip where nobody tells them what it is wanted for."""
    world = world_of(plan)
    named = {"hami.io/use-Ascend310P-uuid": "n-1"}
    world.add(group("g", minimum=4))
    for at, (mb, notes) in enumerate(((VIR04, {}), (VIR04, named), (VIR02, named), (VIR02, {}))):
        world.add(pod(f"p{at}", group="g", limits=npu_limits(P310, 1, mb), annotations=notes))
    world.settle()
    assert (len(world.bindings) == 4) is (plan == "kept")


def test_pods_for_chips_and_pods_for_mig_slices_behind_each_other_are_laid_out_each_on_their_own() -> None:
    asks = (VIR02, VIR02, VIR01, VIR01, VIR04, VIR04)
    world = world_of("kept")
    world.add(mig_node("m"), *(pod(f"m{at}", mib=mib, annotations=MIG) for at, mib in enumerate((3000, 20000))))
    assert served(world, asks) == list(asks)
    assert all(world.node_of(name) == "m" for name in ("m0", "m1"))


@pytest.mark.parametrize("plan", ["none", "kept"])
def test_a_slice_that_is_not_made_yet_finds_its_vgroup_whatever_is_made_before_it(plan: str) -> None:
    world = world_of(plan, 1)
    assert served(world, (VIR02, VIR01, VIR01, VIR01, VIR01)) == [VIR02, VIR01, VIR01, VIR01]
    world.set_phase("p1", "Running")
    world.settle()
    assert not world.node_of("p4")
    world.set_phase("p0", "Running")
    world.settle()
    assert world.node_of("p4")


def test_a_node_that_registers_anew_keeps_in_mind_which_slices_are_made() -> None:
    world = world_of("none", 1)
    served(world, (VIR02, VIR01, VIR01, VIR01))
    world.set_phase("p0", "Running")
    world.add(npu_node_object("n", P310, 1, unhealthy=(0,)))
    world.add(npu_node_object("n", P310, 1), pod("late", limits=npu_limits(P310, 1, VIR01)))
    world.settle()
    assert world.node_of("late")
