"""Queues are bound to groups of nodes, or lean to them (plugin nodegroup)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

from pumice.scheduler.explaining.explain import explain
from pumice.wire.objects import Pod, convert

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def world(arguments: str = "arguments: {strict: true}", groups: tuple[str, ...] = ("a", "b", ""), **shape: Any) -> World:
    """A node for each group; of the empty name, one without a group."""
    made = World(conf("gang", "predicates", "nodegroup") + f"    {arguments}\n")
    for name in groups:
        labels = {"volcano.sh/nodegroup-name": name} if name else {}
        made.add(node(f"node-{name or 'none'}", labels=labels, **shape))
    return made


def team(name: str = "team", *, limits: dict[str, Any] | None = None, **rules: dict[str, list[str]]) -> dict[str, Any]:
    parent = rules.pop("parent", "")
    made = queue(name, parent=parent)  # type: ignore[arg-type]
    made["spec"]["affinity"] = {f"nodeGroup{kind}": value for kind, value in rules.items()}
    if limits is not None:
        made["metadata"]["annotations"] = {"volcano.sh/nodegroup-resource-limits": json.dumps(limits)}
    return made


def test_a_queue_is_held_to_its_groups_and_its_pods_are_told_why_they_wait() -> None:
    made = world(cpu="2")
    made.add(team(Affinity={REQUIRED: ["b"]}), *[pod(f"p{i}", cpu="1", queue="team") for i in range(3)])
    made.settle()
    assert sorted(made.node_of(f"p{i}") for i in range(3)) == ["", "node-b", "node-b"]
    waiting = next(f"p{i}" for i in range(3) if not made.node_of(f"p{i}"))
    said = made.condition(waiting)["message"]
    assert said == (
        "0/3 nodes are unavailable: 1 Insufficient cpu, 1 node does not satisfy the node group affinity, "
        "1 node group label not found."
    )
    made.add(node("another-b", labels={"volcano.sh/nodegroup-name": "b"}))
    made.settle()
    assert made.node_of(waiting) == "another-b"


def test_an_explanation_names_the_groups_that_a_queue_may_not_have() -> None:
    made = world(cpu="2")
    made.add(team(Affinity={REQUIRED: ["b"]}), *[pod(f"p{i}", cpu="2", queue="team") for i in range(2)])
    made.settle()
    waiting = next(f"p{i}" for i in range(2) if not made.node_of(f"p{i}"))
    found = explain(made.engine, convert(Pod, made.pods[f"default/{waiting}"]), now=made.now)
    assert {fit_error.node: fit_error.text for fit_error in found.fit_errors} == {
        "node-a": "node does not satisfy the node group affinity", "node-b": "Insufficient cpu",
        "node-none": "node group label not found",
    }  # fmt: skip
    assert found.fitting == ()


def test_pods_of_one_shape_in_two_queues_go_to_the_groups_of_each() -> None:
    made = world()
    made.add(team("left", Affinity={REQUIRED: ["a"]}), team("right", Affinity={REQUIRED: ["b"]}))
    made.add(*[pod(f"{side}{i}", cpu="1", queue=side) for i in range(3) for side in ("left", "right")])
    made.settle()
    assert {made.node_of(f"left{i}") for i in range(3)} == {"node-a"}
    assert {made.node_of(f"right{i}") for i in range(3)} == {"node-b"}


def test_who_waits_for_his_group_keeps_no_pod_of_his_shape_from_another_one() -> None:
    made = world(groups=("a", "b"), cpu="1")
    made.add(team("left", Affinity={REQUIRED: ["a"]}), team("right", Affinity={REQUIRED: ["b"]}))
    made.add(*[pod(f"left{i}", cpu="1", queue="left") for i in range(2)])
    made.settle()
    made.add(pod("right0", cpu="1", queue="right"))
    made.settle()
    assert made.node_of("right0") == "node-b"


def test_preferred_groups_are_filled_first_and_left_when_they_are_full() -> None:
    made = world(cpu="1")
    made.add(team(Affinity={REQUIRED: ["a", "b"], PREFERRED: ["b"]}))
    for i in range(2):
        made.add(pod(f"p{i}", cpu="1", queue="team"))
        made.settle()
    assert (made.node_of("p0"), made.node_of("p1")) == ("node-b", "node-a")


def test_the_order_of_preferred_groups_counts_where_it_is_asked_for() -> None:
    made = world("arguments: {enablePreferredOrder: true}", groups=("a", "b", "c"))
    made.add(team(Affinity={PREFERRED: ["c", "b", "a"]}), pod("p", cpu="1", queue="team"))
    made.settle()
    assert made.node_of("p") == "node-c"


def test_a_group_to_be_avoided_is_shut_or_comes_last() -> None:
    made = world(groups=("a", "b"), cpu="1")
    made.add(team("shut", AntiAffinity={REQUIRED: ["a"]}), *[pod(f"p{i}", cpu="1", queue="shut") for i in range(2)])
    made.settle()
    assert sorted(made.node_of(f"p{i}") for i in range(2)) == ["", "node-b"]
    made = world(groups=("a", "b"), cpu="1")
    made.add(team("last", AntiAffinity={PREFERRED: ["a"]}))
    for i in range(2):
        made.add(pod(f"p{i}", cpu="1", queue="last"))
        made.settle()
    assert (made.node_of("p0"), made.node_of("p1")) == ("node-b", "node-a")


@pytest.mark.parametrize(("strict", "where"), [("true", ""), ("false", "node-none")])
def test_a_queue_without_groups_has_the_nodes_without_one_unless_the_plugin_is_strict(strict: str, where: str) -> None:
    made = world(f"arguments: {{strict: {strict}}}")
    made.add(queue("plain"), pod("p", cpu="1", queue="plain"))
    made.settle()
    assert made.node_of("p") == where


@pytest.mark.parametrize(("switch", "where"), [("enableHierarchy: true", "node-a"), ("enableHierarchy: false", "")])
def test_groups_are_inherited_from_the_nearest_queue_above_where_that_is_switched_on(switch: str, where: str) -> None:
    made = world(switch)
    made.add(queue("root"), team("lab", Affinity={REQUIRED: ["a"]}), queue("middle", parent="lab"))
    made.add(queue("leaf", parent="middle"), pod("p", cpu="1", queue="leaf"))
    made.settle()
    assert made.node_of("p") == where


def test_what_a_queue_may_hold_in_each_group_is_limited_and_the_rest_overflows() -> None:
    made = world(cpu="8")
    made.add(team(Affinity={REQUIRED: ["a", "b"], PREFERRED: ["a"]}, limits={"a": {"cpu": "2"}, "b": {"cpu": 1}}))
    made.add(group("g", minimum=1, queue="team"), *[pod(f"p{i}", cpu="1", group="g") for i in range(5)])
    made.settle()
    found = [made.node_of(f"p{i}") for i in range(5)]
    assert (found.count("node-a"), found.count("node-b"), found.count("")) == (2, 1, 2)
    waiting = next(f"p{i}" for i in range(5) if not made.node_of(f"p{i}"))
    assert "2 node group resource limit exceeded" in made.condition(waiting)["message"]
    made.delete_pod(next(f"p{i}" for i in range(5) if made.node_of(f"p{i}") == "node-b"))
    made.settle()
    assert made.node_of(waiting) == "node-b"


def test_without_the_plugin_a_queues_groups_are_ignored_and_that_is_said() -> None:
    made = World(conf("gang", "predicates"))
    made.add(node("n1"), team(Affinity={REQUIRED: ["b"]}), pod("p", cpu="1", queue="team"))
    made.settle()
    assert made.node_of("p") == "n1"
    assert made.engine.state.problems["Queue team"].startswith("spec.affinity is ignored")
    made.add(queue("team"))
    made.settle()
    assert "Queue team" not in made.engine.state.problems


@pytest.mark.parametrize("limits", [
    "{", "[]", '{"a": 3}', '{"a": {"cpu": [1]}}', '{"a": {"cpu": "much"}}', '{"a": {"cpu": -1}}', '{"a": {"cpu": NaN}}',
])  # fmt: skip
def test_limits_that_cannot_be_read_hold_the_queue_alone_and_say_so(limits: str) -> None:
    made = world()
    bad = team(Affinity={REQUIRED: ["a"]})
    bad["metadata"]["annotations"] = {"volcano.sh/nodegroup-resource-limits": limits}
    made.add(bad, team("other", Affinity={REQUIRED: ["a"]}))
    made.add(pod("p", cpu="1", queue="team"), pod("q", cpu="1", queue="other"))
    made.settle()
    assert (made.node_of("p"), made.node_of("q")) == ("", "node-a")
    assert "node group resource limit annotation invalid" in made.condition("p")["message"]
    assert "nodegroup-resource-limits" in made.engine.state.problems["Queue team"]


@pytest.mark.parametrize("rules", [None, "a", {"requiredDuringSchedulingIgnoredDuringExecution": "a"}, {"x": 1}])
def test_rules_of_no_known_form_are_no_rules(rules: Any) -> None:
    made = world("arguments: {strict: false}")
    bad = queue("team")
    bad["spec"]["affinity"] = {"nodeGroupAffinity": rules}
    made.add(bad, pod("p", cpu="1", queue="team"))
    made.settle()
    assert made.node_of("p") == "node-none"
