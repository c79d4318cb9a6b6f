"""Where the volumes that a pod still lacks would sit best (volumebinding.weight and .shape)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node
from kit.storage_objects import THIN, ZONE, Json, capacity, claim, driver, storage_class, store, using, volume

CONF = 'actions: "enqueue, allocate, backfill"\ntiers: [{plugins: [{name: predicates, arguments: %s}]}]\n'
PACKED = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]

PEAKED = [{"utilization": 20, "score": 0}, {"utilization": 25, "score": 10}, {"utilization": 30, "score": 0}]


def world_of(arguments: dict[str, Any], *objects: Json) -> World:
    world = World(CONF % json.dumps(arguments))
    world.add(*[node(f"n{i}", labels={ZONE: zone}) for i, zone in enumerate("abc")])
    store(world, driver(), storage_class("thin", THIN), storage_class("local", "kubernetes.io/no-provisioner"), *objects)
    return world


ROOMS = [capacity("a", "thin", "20Gi", zone="a"), capacity("b", "thin", "80Gi", zone="b"),
         capacity("c", "thin", "40Gi", zone="c")]  # fmt: skip


@pytest.mark.parametrize(("arguments", "where"), [
    ({}, "n0"),
    ({"volumebinding.weight": 1}, "n1"),
    ({"volumebinding.shape": PACKED}, "n0"),
    ({"volumebinding.weight": 0, "volumebinding.shape": PACKED[::-1]}, "n0"),
    ({"volumebinding.shape": PEAKED}, "n2"),
])  # fmt: skip
def test_of_nodes_on_which_a_volume_can_be_made_the_one_is_chosen_that_the_shape_prefers(
    arguments: dict[str, Any], where: str
) -> None:
    world = world_of(arguments, claim("c", kind="thin", size="10Gi"), *ROOMS)
    world.add(using("p", "c"))
    world.settle()
    assert world.node_of("p") == where


@pytest.mark.parametrize(("shape", "where"), [(None, "n2"), (PACKED, "n1")])
def test_of_free_volumes_the_fitting_one_is_the_fuller(shape: list[Any] | None, where: str) -> None:
    arguments: dict[str, Any] = {"volumebinding.weight": 1} if shape is None else {"volumebinding.shape": shape}
    world = world_of(
        arguments, claim("c", kind="local", size="5Gi"),
        *[volume(f"v{i}", kind="local", nodes=(f"n{i}",), size=f"{size}Gi") for i, size in ((0, 7), (1, 6), (2, 9))],
    )  # fmt: skip
    world.add(using("p", "c"))
    world.settle()
    assert world.node_of("p") == where


def test_what_a_driver_has_left_counts_as_it_changes() -> None:
    claims = [claim(name, kind="thin", size="10Gi") for name in "cd"]
    world = world_of({"volumebinding.weight": 1}, *claims, *ROOMS)
    world.add(using("p", "c"))
    world.settle()
    store(world, capacity("b", "thin", "12Gi", zone="b"))
    world.add(using("q", "d"))
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("n1", "n2")


@pytest.mark.parametrize("shape", [
    3, [], [3], [{"utilization": 0}], [{"utilization": 0, "score": 11}], [{"utilization": "x", "score": 1}],
    [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}], [{"utilization": 101, "score": 2}],
])  # fmt: skip
def test_a_shape_that_is_none_is_remarked_and_the_usual_one_holds(shape: Any) -> None:
    world = world_of({"volumebinding.shape": shape}, claim("c", kind="thin", size="10Gi"), *ROOMS)
    assert any("volumebinding.shape" in remark for remark in world.engine.configure(world.engine.conf))
    world.add(using("p", "c"))
    world.settle()
    assert world.node_of("p") == "n1"
