"""Plugin resourcequota: a job is started when all of its pods may be made, not when some of them may."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.scheduler_confs import conf

Json = dict[str, Any]
CONF = conf("gang", "resourcequota", "predicates")


def quota(hard: dict[str, str], used: dict[str, str] | None = None, *, namespace: str = "default", **spec: Any) -> Json:
    return {
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": namespace, "uid": f"quota-{namespace}"},
        "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used or {}},
    }  # fmt: skip


def phases(world: World) -> dict[str, str]:
    return {obj["metadata"]["name"]: obj["status"]["phase"] for obj in world.groups.values()}


def world_of(*objects: Json, text: str = CONF) -> World:
    world = World(text)
    world.add(node("n1", cpu="64"), *objects)
    world.settle()
    return world


@pytest.mark.parametrize("name", ["cpu", "requests.cpu"])
def test_a_job_that_its_namespace_cannot_pay_is_not_started_and_hears_the_numbers(name: str) -> None:
    world = world_of(quota({name: "4"}, {name: "1"}), group("g", minimum=2, resources={"cpu": "4"}))
    assert phases(world) == {"g": "Pending"}
    (said,) = [event for event in world.events if event.name == "g" and event.reason == "Unschedulable"]
    assert said.type == "Normal"
    assert said.message == "resource quota insufficient, requested: cpu=4, used: cpu=1, limited: cpu=4"


def test_it_starts_when_the_quota_grows_or_others_use_less() -> None:
    world = world_of(quota({"cpu": "4"}, {"cpu": "1"}), group("g", minimum=2, resources={"cpu": "4"}))
    world.add(quota({"cpu": "4"}, {"cpu": "0"}))
    world.settle()
    assert phases(world) == {"g": "Inqueue"}
    world.add(group("h", minimum=2, resources={"cpu": "4"}))
    world.settle()
    assert phases(world)["h"] == "Pending"
    world.remove("ResourceQuota", "default/q")
    world.settle()
    assert phases(world)["h"] == "Inqueue"


def test_what_a_started_job_still_wants_is_promised_to_no_other_until_its_pods_are_counted() -> None:
    world = world_of(quota({"cpu": "6"}), group("a", minimum=2, resources={"cpu": "4"}))
    world.add(group("b", minimum=1, resources={"cpu": "4"}))
    world.settle()
    assert phases(world) == {"a": "Inqueue", "b": "Pending"}
    world.add(*(pod(f"a{i}", cpu="2", group="a") for i in range(2)), quota({"cpu": "8"}, {"cpu": "4"}))
    world.settle()
    assert phases(world) == {"a": "Running", "b": "Inqueue"}  # counted once: as used, and no longer as promised


def test_pods_and_devices_are_counted_too() -> None:
    pods = quota({"pods": "3"}, {"pods": "2"})
    assert phases(world_of(pods, group("g", minimum=2, resources={"cpu": "1"}))) == {"g": "Pending"}
    devices = {"volcano.sh/vgpu-memory": "8000"}
    hard = {"requests.volcano.sh/vgpu-memory": "4000"}
    assert phases(world_of(quota(hard), group("g", minimum=1, resources=devices))) == {"g": "Pending"}


@pytest.mark.parametrize(("hard", "more"), [
    ({"cpu": "1"}, {"scopes": ["BestEffort"]}),
    ({"cpu": "1"}, {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}),
    ({"limits.cpu": "1", "count/secrets": "0", "cpu": "nonsense"}, {}),
])  # fmt: skip
def test_a_quota_for_some_pods_or_of_what_a_group_does_not_say_keeps_nobody_back(hard: dict[str, str], more: Json) -> None:
    assert phases(world_of(quota(hard, **more), group("g", minimum=1, resources={"cpu": "4"}))) == {"g": "Inqueue"}


def test_a_quota_of_another_namespace_and_one_without_the_plugin_keep_nobody_back() -> None:
    wants = group("g", minimum=1, resources={"cpu": "4"})
    assert phases(world_of(quota({"cpu": "1"}, namespace="other"), dict(wants))) == {"g": "Inqueue"}
    assert phases(world_of(quota({"cpu": "1"}), dict(wants), text=conf("gang", "predicates"))) == {"g": "Inqueue"}
