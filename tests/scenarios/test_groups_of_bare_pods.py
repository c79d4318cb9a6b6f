"""The PodGroup that a controller makes for a pod that names none: the pod does not depend on it."""

from __future__ import annotations

import pytest
from kit.engine_world import World
from kit.fake_cluster import Json
from kit.objects import group, node, pod
from kit.room_worlds import BUNDLES


def named(pod: Json) -> tuple[Json, Json]:
    """The pod as the controller leaves it, and its group."""
    name = f"podgroup-{pod['metadata']['uid']}"
    pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name
    return group(name, minimum=1), pod


@pytest.mark.parametrize("seen_first", ["the group", "the pod"])
def test_a_pod_whose_made_group_is_deleted_starts_when_there_is_room(seen_first: str) -> None:
    world = World(BUNDLES)
    world.add(node("n0", cpu="4"), pod("old", cpu="3"))
    world.settle(1)
    made, waiting = named(pod("waiting", cpu="2"))
    world.add(*((made, waiting) if seen_first == "the group" else (waiting, made)))
    world.settle(1)
    assert world.condition("waiting")["reason"] == "Unschedulable"
    world.remove("PodGroup", f"default/{made['metadata']['name']}")
    world.settle(1)
    world.delete_pod("old")
    world.settle(3)
    assert [effect.name for effect in world.bindings] == ["old", "waiting"]


def test_a_pod_that_asks_for_a_group_of_its_own_making_waits_while_there_is_none() -> None:
    world = World(BUNDLES)
    world.add(node("n0", cpu="4"), group("g", minimum=1), pod("member", group="g", cpu="5"))
    world.settle(1)
    world.remove("PodGroup", "default/g")
    world.add(node("n1", cpu="8"))
    world.settle(3)
    assert not world.bindings
