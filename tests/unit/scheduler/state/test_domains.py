"""The tree that HyperNodes make: what of them counts, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import hyper_node, node


def cluster(*hyper_nodes: dict[str, Any], nodes: int = 4) -> World:
    world = World()
    world.add(*[node(f"n{i}", labels={"rack": str(i // 2)}) for i in range(nodes)], *hyper_nodes)
    world.settle(1)
    return world


def nodes_of(world: World, name: str) -> set[str]:
    tree, table = world.engine.state.hyper_nodes.tree, world.engine.state.ledger.table
    return {table.name(row) for row in tree.domains[name].rows.tolist()}


def said(world: World, name: str) -> tuple[str, str, str]:
    """The condition of the HyperNode: status, reason, message."""
    (condition,) = world.hyper_nodes[name]["status"]["conditions"]
    assert condition["type"] == "Accepted"
    return condition["status"], condition["reason"], condition["message"]


def test_members_are_named_matched_by_pattern_or_by_label_and_the_count_stands_in_the_status() -> None:
    world = cluster(
        hyper_node("by-name", 1, "n0", "n1"), hyper_node("by-pattern", 1, selectors=[{"regexMatch": {"pattern": "^n[23]$"}}]),
        hyper_node("by-label", 2, selectors=[{"labelMatch": {"matchLabels": {"rack": "1"}}}], children=["by-pattern"]),
        hyper_node("top", 3, children=["by-name", "by-label"]),
    )  # fmt: skip
    assert nodes_of(world, "by-name") == {"n0", "n1"}
    assert nodes_of(world, "by-pattern") == nodes_of(world, "by-label") == {"n2", "n3"}
    assert nodes_of(world, "top") == {"n0", "n1", "n2", "n3"}
    assert {name: obj["status"]["nodeCount"] for name, obj in world.hyper_nodes.items()} == {
        "by-name": 2, "by-pattern": 2, "by-label": 2, "top": 4}  # fmt: skip
    assert said(world, "top") == ("True", "Accepted", "")


def test_the_tree_follows_nodes_that_come_go_and_change_their_labels() -> None:
    by_label = hyper_node("s1", 1, selectors=[{"labelMatch": {"matchLabels": {"rack": "1"}}}])
    world = cluster(hyper_node("s0", 1, "n0", "n9"), by_label)
    assert said(world, "s0") == ("True", "MembersMissing", "node n9 does not exist")
    world.add(node("n9"), node("n3", labels={"rack": "7"}))
    world.settle(1)
    assert (nodes_of(world, "s0"), nodes_of(world, "s1")) == ({"n0", "n9"}, {"n2"})
    assert said(world, "s0") == ("True", "Accepted", "")
    world.remove("Node", "n0")
    world.settle(1)
    assert nodes_of(world, "s0") == {"n9"}
    assert world.hyper_nodes["s0"]["status"]["nodeCount"] == 1


def test_a_status_that_is_right_is_not_written_again() -> None:
    world = cluster(hyper_node("s0", 1, "n0"))
    version = world.hyper_nodes["s0"]["metadata"]["resourceVersion"]
    world.add(node("n8"))
    world.settle(1)
    assert world.hyper_nodes["s0"]["metadata"]["resourceVersion"] == version
    world.engine = world.restarted()
    world.settle(1)
    assert world.hyper_nodes["s0"]["metadata"]["resourceVersion"] == version


def test_a_node_that_two_branches_claim_is_the_older_ones_and_the_younger_is_told() -> None:
    younger = hyper_node("a-younger", 1, "n1", "n2", created="2026-01-02T00:00:00Z")
    world = cluster(younger, hyper_node("s0", 1, "n0", "n1"), hyper_node("top", 2, children=["s0", "a-younger"]))
    assert (nodes_of(world, "s0"), nodes_of(world, "a-younger")) == ({"n0", "n1"}, {"n2"})
    assert nodes_of(world, "top") == {"n0", "n1", "n2"}
    assert said(world, "a-younger") == ("False", "MembersRefused", "overlap: n1 belong to s0 already")
    assert said(world, "s0")[0] == said(world, "top")[0] == "True"
    assert [(e.name, e.reason) for e in world.events if e.kind == "HyperNode"] == [("a-younger", "MembersRefused")]
    world.remove("HyperNode", "s0")
    world.settle(1)
    assert nodes_of(world, "a-younger") == {"n1", "n2"}
    assert said(world, "a-younger")[0] == "True"


def test_a_node_may_be_named_by_a_hyper_node_and_by_those_above_it() -> None:
    world = cluster(hyper_node("s0", 1, "n0"), hyper_node("top", 2, "n0", "n1", children=["s0"]))
    assert said(world, "top")[0] == said(world, "s0")[0] == "True"
    assert nodes_of(world, "top") == {"n0", "n1"}


def test_a_hyper_node_of_two_parents_is_the_older_ones_child() -> None:
    world = cluster(hyper_node("s0", 1, "n0"), hyper_node("left", 2, "n1", children=["s0"]),
                    hyper_node("right", 2, "n2", children=["s0"]))  # fmt: skip
    assert (nodes_of(world, "left"), nodes_of(world, "right")) == ({"n0", "n1"}, {"n2"})
    assert said(world, "right") == ("False", "MembersRefused", "HyperNode s0 is a member of left already")


def test_a_circle_is_broken_where_it_does_not_fall_a_tier() -> None:
    world = cluster(hyper_node("a", 1, "n0", children=["b"]), hyper_node("b", 2, "n1", children=["a"]),
                    hyper_node("self", 1, "n2", children=["self"]))  # fmt: skip
    assert (nodes_of(world, "a"), nodes_of(world, "b")) == ({"n0"}, {"n0", "n1"})
    assert said(world, "a")[2] == "HyperNode b is of tier 2, which is not below 1"
    assert said(world, "self")[2] == "HyperNode self is of tier 1, which is not below 1"


def test_a_member_that_is_named_twice_counts_once() -> None:
    world = cluster(hyper_node("s0", 1, "n0", "n0", "n1"), hyper_node("top", 2, children=["s0", "s0"]))
    assert (nodes_of(world, "s0"), nodes_of(world, "top")) == ({"n0", "n1"}, {"n0", "n1"})
    assert said(world, "s0") == ("True", "MembersMissing", "node n0 is named twice")
    assert said(world, "top")[2] == "HyperNode s0 is named twice"


@pytest.mark.parametrize(("selector", "words"), [
    ({"labelMatch": {"matchLabels": {"rack": "none"}}}, "labelMatch selects no node; it has no node"),
    ({"regexMatch": {"pattern": "^x"}}, "regexMatch '^x' selects no node; it has no node"),
])  # fmt: skip
def test_a_selector_that_matches_nothing_is_said(selector: dict[str, Any], words: str) -> None:
    world = cluster(hyper_node("s0", 1, selectors=[selector]))
    assert said(world, "s0") == ("True", "MembersMissing", words)


@pytest.mark.parametrize(("member", "words"), [
    ({"type": "Node", "selector": {}}, "a member of type Node has no selector"),
    ({"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}, "regexMatch '(': "),
    ({"type": "Node", "selector": {"regexMatch": {"pattern": ""}}}, "regexMatch '': it is empty"),
    ({"type": "Node", "selector": {"regexMatch": {"pattern": "(n+)+$"}}}, "could take too long"),
    ({"type": "Node", "selector": {"regexMatch": {"pattern": "(n|n)*x"}}}, "could take too long"),
    ({"type": "Node", "selector": {"regexMatch": {"pattern": ".*.*.*.*x"}}}, "could take too long"),
    ({"type": "Node", "selector": {"regexMatch": {"pattern": "(n)\\1"}}}, "could take too long"),
    ({"type": "HyperNode", "selector": {"regexMatch": {"pattern": "s"}}}, "named by exactMatch alone"),
    ({"type": "Rack", "selector": {"exactMatch": {"name": "n1"}}}, "'Rack' is neither Node nor HyperNode"),
])  # fmt: skip
def test_a_member_that_cannot_be_meant_is_refused_alone(member: dict[str, Any], words: str) -> None:
    broken = hyper_node("s0", 1, "n0")
    broken["spec"]["members"].append(member)
    world = cluster(broken)
    assert nodes_of(world, "s0") == {"n0"}
    status, reason, message = said(world, "s0")
    assert (status, reason, words in message) == ("False", "MembersRefused", True)


@pytest.mark.parametrize("pattern", ["^node-[0-9]+$", "n.*", "(a|b)-[0-9]{1,3}", "rack-.+-host-.+"])
def test_usual_patterns_are_taken(pattern: str) -> None:
    world = cluster(hyper_node("s0", 1, "n0", selectors=[{"regexMatch": {"pattern": pattern}}]))
    assert said(world, "s0")[0] == "True"


def test_one_name_of_two_tiers_means_the_lower() -> None:
    world = cluster(hyper_node("s0", 1, "n0", tier_name="rack"), hyper_node("s1", 2, "n1", tier_name="rack"))
    assert world.engine.state.hyper_nodes.tree.tier_names == {"rack": 1}
    assert "tierName rack stands for tier 1, too" in said(world, "s1")[2]
