"""drf with enableHierarchy: queues take turns by the tree that their annotations make."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node, pod, queue
from kit.room_worlds import GPU, gpus, running
from kit.scheduler_confs import conf

Json = dict[str, Any]
CONF = conf({"drf": {"enableHierarchy": True}}, "predicates")


def placed(name: str, path: str, weights: str, **more: Any) -> Json:
    return queue(name, annotations={"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}, **more)


def world_of(*objects: Json, of: int = 8, **more: Any) -> World:
    world = World(CONF)
    world.add(node("n1", cpu="16", memory="16Gi", extra={GPU: str(of)}), *objects)
    world.settle()
    return world


def demand(*names: str, count: int = 12) -> list[Json]:
    return [gpus(f"{name}{i}", name) for name in names for i in range(count)]


def test_branches_share_by_their_weights_and_teams_share_their_branch() -> None:
    world = world_of(
        placed("a", "root/eng/dev", "1/1/1"), placed("b", "root/eng/prod", "1/1/1"), placed("c", "root/sci", "1/1"),
        *demand("a", "b", "c"),
    )  # fmt: skip
    assert running(world) == {"a": 2, "b": 2, "c": 4}


def test_a_branch_of_three_times_the_weight_gets_three_times_as_much() -> None:
    world = world_of(placed("a", "root/eng", "1/1"), placed("b", "root/sci", "1/3"), *demand("a", "b"))
    assert running(world) == {"a": 2, "b": 6}


def test_the_root_may_be_left_out_as_upstreams_admission_adds_it() -> None:
    world = world_of(placed("a", "eng", "1"), placed("b", "sci", "3"), *demand("a", "b"))
    assert running(world) == {"a": 2, "b": 6}


def test_a_queue_without_a_place_stands_below_the_root() -> None:
    world = world_of(placed("a", "root/eng/dev", "1/1/1"), placed("b", "root/eng/prod", "1/1/1"), queue("c"),
                     *demand("a", "b", "c"))  # fmt: skip
    assert running(world) == {"a": 2, "b": 2, "c": 4}


def test_a_branch_pays_for_what_its_teams_hold_of_anything() -> None:
    """Team a has 11 of 16 parts of the memory and wants no more: its branch is richer than one with 5 of 8 cards."""
    world = world_of(
        placed("a", "root/eng/dev", "1/1/1"), placed("b", "root/eng/prod", "1/1/1"), placed("c", "root/sci", "1/1"),
        pod("a0", queue="a", cpu="0", memory="11Gi"),
    )  # fmt: skip
    world.add(*demand("b", "c"))
    world.settle()
    assert running(world) == {"a": 1, "b": 2, "c": 6}


def test_a_rich_team_that_wants_more_does_not_count_for_more_than_its_poor_sibling() -> None:
    """Of two teams that both want more the branch counts as rich as the poorer one, so that this one gets something."""
    world = world_of(
        placed("a", "root/eng/dev", "1/1/1"), placed("b", "root/eng/prod", "1/1/1"), placed("c", "root/sci", "1/1"),
        *(pod(f"a{i}", queue="a", cpu="0", memory="3Gi") for i in range(6)), gpus("b0", "b"),
    )  # fmt: skip
    assert running(world) == {"a": 5, "b": 1}
    world.add(*(gpus(f"{at}{i}", at) for at in "bc" for i in range(1, 12)))
    world.settle()
    assert running(world) == {"a": 5, "b": 4, "c": 4}


@pytest.mark.parametrize(("path", "weights", "said"), [
    ("root/eng/dev", "1/1", "volcano.sh/hierarchy must have the same length with volcano.sh/hierarchy-weights"),
    ("root/eng", "1/x", "x in the 1/x is invalid number"),
    ("root/eng", "1/0", "0 in the 1/0 must be larger than 0"),
    ("root/eng", "1/nan", "nan in the 1/nan must be larger than 0"),
])  # fmt: skip
def test_a_place_that_is_none_is_said_and_the_queue_stands_below_the_root(path: str, weights: str, said: str) -> None:
    world = world_of(placed("a", path, weights), placed("b", "root/sci", "1/1"), *demand("a", "b"))
    assert running(world) == {"a": 4, "b": 4}
    assert world.engine.state.problems == {"Queue a": said}
    world.add(placed("a", "root/eng", "1/1"))
    world.settle()
    assert world.engine.state.problems == {}


def test_a_queue_that_comes_while_others_run_takes_its_place_in_the_tree() -> None:
    world = world_of(placed("a", "root/eng/dev", "1/1/1"), *demand("a", count=4))
    world.add(placed("b", "root/sci", "1/1"), *demand("b", count=12))
    world.settle()
    world.add(*(gpus(f"a{i}", "a") for i in range(20, 24)))
    world.settle()
    assert running(world) == {"a": 4, "b": 4}
