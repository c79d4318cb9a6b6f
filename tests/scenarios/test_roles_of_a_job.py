"""Roles of a job that talk much come onto one node, roles that disturb each other do not (plugin task-topology)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.scheduler_confs import conf

PLUGINS = conf("gang", "predicates", "task-topology")
PREFIX = "volcano.sh/task-topology-"


def job(roles: dict[str, int], *, minimum: int = 1, cpu: str = "1", **wishes: str) -> list[dict[str, Any]]:
    made = group("g", minimum=minimum)
    made["metadata"]["annotations"] = {PREFIX + key.replace("_", "-"): text for key, text in wishes.items()}
    return [made, *(pod(f"{role}{i}", group="g", role=role, cpu=cpu) for role, count in roles.items() for i in range(count))]


def by_node(world: World) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in world.placements():
        if where := world.node_of(name):
            found.setdefault(where, set()).add(name)
    return found


def test_servers_are_spread_and_workers_follow_them_in_even_shares() -> None:
    """The example of upstream's design."""
    world = World(PLUGINS)
    world.add(node("node1", cpu="2"), node("node2", cpu="1"), node("node3", cpu="4"))
    world.add(*job({"ps": 2, "worker": 4}, minimum=6, affinity="ps,worker", anti_affinity="ps"))
    world.settle()
    assert by_node(world) == {
        "node3": {"ps0", "worker0", "worker2"}, "node1": {"ps1", "worker1"}, "node2": {"worker3"}}  # fmt: skip


def test_pods_of_one_role_come_together_where_that_is_wished_and_apart_where_the_contrary_is() -> None:
    for wish, nodes in (("affinity", 1), ("anti_affinity", 4)):
        world = World(conf("gang", "predicates", "task-topology", "nodeorder"))
        world.add(*[node(f"n{i}", cpu="8") for i in range(4)], *job({"w": 4}, **{wish: "w"}))
        world.settle()
        assert len(by_node(world)) == nodes, wish


def test_a_wish_keeps_nobody_waiting() -> None:
    world = World(PLUGINS)
    world.add(node("n1", cpu="8"), *job({"w": 4}, minimum=4, anti_affinity="w"))
    world.settle()
    assert by_node(world) == {"n1": {"w0", "w1", "w2", "w3"}}


def test_pods_that_come_later_join_those_that_run() -> None:
    world = World(conf("gang", "predicates", "task-topology", "nodeorder"))
    world.add(*[node(f"n{i}", cpu="8") for i in range(4)], *job({"ps": 1, "worker": 1}, affinity="ps,worker"))
    world.settle()
    (where,) = by_node(world)
    world.add(pod("worker1", group="g", role="worker", cpu="1"))
    world.settle()
    assert by_node(world) == {where: {"ps0", "worker0", "worker1"}}


def test_pods_without_a_wish_and_other_jobs_are_placed_as_ever() -> None:
    world = World(PLUGINS)
    world.add(node("n1", cpu="4"), *job({"ps": 1, "other": 1}, anti_affinity="ps"), pod("bare", cpu="1"))
    world.settle()
    assert by_node(world) == {"n1": {"ps0", "other0", "bare"}}


def test_roles_are_placed_in_the_order_that_is_given() -> None:
    world = World(PLUGINS)
    world.add(node("n1", cpu="2"), *job({"a": 2, "b": 2}, affinity="a,b", task_order="b,a"))
    world.settle()
    assert by_node(world) == {"n1": {"b0", "b1"}}


@pytest.mark.parametrize("text", ["", ";", ",", " , ; ,, ", "ghost", "ps,ps,ps", "ps,ghost;worker"])
def test_annotations_of_any_form_harm_nobody(text: str) -> None:
    world = World(PLUGINS)
    world.add(node("n1", cpu="8"), *job({"ps": 2, "worker": 2}, minimum=4, affinity=text, anti_affinity=text, task_order=text))
    world.settle()
    assert len(by_node(world)["n1"]) == 4


@given(st.randoms(use_true_random=False))
def test_whoever_fits_is_placed_whatever_is_wished(rng: random.Random) -> None:
    world = World(PLUGINS)
    room = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
    world.add(*[node(f"n{i}", cpu=str(cpu)) for i, cpu in enumerate(room)])
    names = ["a", "b", "c"]

    def wish() -> str:
        return ";".join(",".join(rng.sample(names, rng.randint(1, 3))) for _ in range(rng.randint(0, 2)))

    roles = {name: rng.randint(0, 3) for name in names}
    world.add(*job(roles, affinity=wish(), anti_affinity=wish(), task_order=wish()))
    world.settle()
    assert sum(map(len, by_node(world).values())) == min(sum(room), sum(roles.values()))
