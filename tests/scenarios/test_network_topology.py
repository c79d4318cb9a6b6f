"""Jobs that ask for one switch get one, the nearest that takes them (HyperNodes, networkTopology, subGroupPolicy)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.engine_world import ALL_PLUGINS, World
from kit.objects import group, hyper_node, node, pod, priority_class
from kit.scheduler_confs import conf

from pumice.devices.lint import lint_files

PLUGINS = conf("gang", "predicates", "network-topology-aware")
EXAMPLES = Path(__file__).parents[2] / "examples/topology"


def leaf_spine(configuration: str = PLUGINS, *, cpu: str = "2") -> World:
    """n0 and n1 behind s0, n2 and n3 behind s1, both behind s4; n4 and n5 behind s2, n6 and n7 behind s3, both behind s5; all of
    them behind s6."""
    world = World(configuration)
    world.add(*[node(f"n{i}", cpu=cpu) for i in range(8)])
    world.add(*[hyper_node(f"s{i}", 1, f"n{2 * i}", f"n{2 * i + 1}") for i in range(4)])
    world.add(hyper_node("s4", 2, children=["s0", "s1"], tier_name="rack"))
    world.add(hyper_node("s5", 2, children=["s2", "s3"], tier_name="rack"), hyper_node("s6", 3, children=["s4", "s5"]))
    world.settle(1)
    return world


def gang(size: int, minimum: int | None = None, *, cpu: str = "1", name: str = "g", **ask: Any) -> list[dict[str, Any]]:
    requested = {"mode": "hard", **ask}
    return [group(name, minimum=size if minimum is None else minimum, topology=requested),
            *(pod(f"{name}-{i}", group=name, cpu=cpu) for i in range(size))]  # fmt: skip


def switches(world: World, pods: int, name: str = "g") -> set[str]:
    """The leaf switches of the gang's pods; empty for those that wait."""
    places = (world.node_of(f"{name}-{i}") for i in range(pods))
    return {f"s{int(where[1:]) // 2}" if where else "" for where in places}


def together(world: World, pods: int) -> bool:
    """Return whether all have a node, behind one leaf switch."""
    found = switches(world, pods)
    return len(found) == 1 and found != {""}


def busy(world: World, *nodes: str, cpu: str = "2") -> None:
    world.add(*[pod(f"busy-{where}", nodeName=where, scheduler="other", cpu=cpu) for where in nodes])


def test_a_gang_that_asks_for_one_leaf_gets_one_although_others_are_as_free() -> None:
    world = leaf_spine()
    world.add(*gang(4, highestTierAllowed=1))
    world.settle()
    assert together(world, 4)


def test_the_nearest_switch_is_tried_first_and_a_farther_one_only_as_far_as_it_is_allowed() -> None:
    world = leaf_spine()
    busy(world, "n0", "n2", "n4", "n6", "n7")
    world.add(*gang(4, highestTierAllowed=2))
    world.settle()
    assert switches(world, 4) == {"s0", "s1"}, "no leaf holds four; of the spines, the left one does"
    assert {world.node_of(f"g-{i}") for i in range(4)} == {"n1", "n3"}


def test_a_gang_that_fits_behind_no_switch_that_is_allowed_waits_whole_and_says_which_came_closest() -> None:
    world = leaf_spine()
    busy(world, "n1", "n2", "n4", "n6")
    world.add(*gang(3, highestTierAllowed=1))
    world.settle()
    assert switches(world, 3) == {""}
    said = world.condition("g-0")["message"]
    assert said == "no HyperNode of tier 1 or below takes 3 pods (4 looked at); s0 has room for 2 at most"
    (condition,) = world.groups["default/g"]["status"]["conditions"]
    assert condition["message"].endswith(f"Origin reason is: {said}")
    world.remove("Pod", "default/busy-n6")
    world.settle()
    assert switches(world, 3) == {"s3"}


def test_a_demand_holds_whatever_plugins_are_configured() -> None:
    world = leaf_spine(ALL_PLUGINS)
    world.add(*gang(4, highestTierAllowed=1))
    world.settle()
    assert together(world, 4)


def test_the_allowed_tier_may_be_named() -> None:
    world = leaf_spine()
    world.add(*gang(6, highestTierName="rack"), *gang(6, name="h", highestTierName="row"))
    world.settle()
    assert switches(world, 6) in ({"s0", "s1"}, {"s2", "s3"})
    assert switches(world, 6, "h") == {""}
    assert world.condition("h-0")["message"] == "no HyperNode has the tierName 'row'"
    world.add(hyper_node("s6", 3, children=["s4", "s5"], tier_name="row"))
    world.settle()
    assert "" not in switches(world, 6, "h")


def test_members_beyond_the_minimum_stay_behind_the_switch_that_was_chosen() -> None:
    world = leaf_spine()
    world.add(*gang(8, 3, highestTierAllowed=1))
    world.settle()
    places = [world.node_of(f"g-{i}") for i in range(8)]
    assert len(switches(world, 8) - {""}) == 1
    assert sum(map(bool, places)) == 4
    waiting = next(f"g-{i}" for i in range(8) if not places[i])
    assert "no HyperNode of tier 1 or below takes it (1 looked at)" in world.condition(waiting)["message"]


def test_a_pod_that_comes_anew_goes_behind_the_switch_of_those_that_run() -> None:
    world = leaf_spine()
    world.add(*gang(3, 2, highestTierAllowed=1))
    world.settle()
    (switch,) = switches(world, 3)
    world.delete_pod("g-2")
    world.add(pod("g-2", group="g", cpu="1"))
    world.settle()
    assert switches(world, 3) == {switch}


def test_after_a_restart_the_switch_is_known_by_the_nodes_of_those_that_run() -> None:
    world = leaf_spine()
    world.add(*gang(3, 2, highestTierAllowed=1))
    world.settle()
    (switch,) = switches(world, 3)
    world.delete_pod("g-2")
    world.engine = world.restarted()
    world.add(pod("g-2", group="g", cpu="1"))
    world.settle()
    assert switches(world, 3) == {switch}


def test_a_wish_is_met_where_it_can_be_and_else_keeps_nobody_waiting() -> None:
    world = leaf_spine()
    world.add(*gang(4, mode="soft"))
    world.settle()
    assert together(world, 4)
    world = leaf_spine()
    world.add(*gang(7, mode="soft"))
    world.settle()
    assert switches(world, 7) in ({"s0", "s1"}, {"s2", "s3"})
    world = leaf_spine()
    world.remove("HyperNode", "s6")
    world.add(*gang(12, mode="soft"))
    world.settle()
    assert "" not in switches(world, 12), "no switch holds twelve; the cluster does"


def test_of_switches_of_one_tier_the_fullest_that_takes_the_gang_is_chosen_where_the_plugin_scores() -> None:
    world = leaf_spine()
    busy(world, "n4", cpu="1")
    world.add(*gang(2, highestTierAllowed=1))
    world.settle()
    assert switches(world, 2) == {"s2"}


def test_pods_that_ask_nothing_of_the_network_fill_switches_that_are_in_use() -> None:
    world = leaf_spine()
    busy(world, "n4", cpu="1")
    world.add(pod("plain", cpu="1"))
    world.settle()
    assert world.node_of("plain") in ("n4", "n5")


@pytest.mark.parametrize("arguments", [
    "hypernode.binpack.normal-pod.fading: 1e300", "hypernode.binpack.normal-pod.fading: -1", "weight: -5",
    "hypernode.binpack.cpu: x", "hypernode.binpack.resources: [a, b]", "weight: 0", "hypernode.binpack.normal-pod.enable: false",
])  # fmt: skip
def test_arguments_of_any_size_and_tiers_of_any_height_harm_nobody(arguments: str) -> None:
    world = leaf_spine(f"{PLUGINS}    arguments: {{{arguments}}}\n")
    world.add(hyper_node("sky", 10**12, children=["s6"]), pod("plain", cpu="1"), *gang(2, highestTierAllowed=1))
    world.settle()
    assert world.node_of("plain")
    assert together(world, 2)


def test_a_switch_where_the_gang_stands_at_once_is_better_than_a_nearer_one_where_it_would_wait() -> None:
    world = leaf_spine()
    busy(world, "n0", "n2", "n4", "n6")
    world.settle(1)
    world.terminate("busy-n0")
    world.add(*gang(4, highestTierAllowed=2))
    world.settle(1)
    assert switches(world, 4) == {"s0", "s1"}


def test_a_gang_waits_for_a_switch_that_is_being_freed() -> None:
    world = leaf_spine()
    busy(world, *[f"n{i}" for i in range(8)])
    world.settle(1)
    world.terminate("busy-n2")
    world.terminate("busy-n3")
    world.add(*gang(4, highestTierAllowed=1))
    world.cycle()
    assert "once resource is released" in world.condition("g-0")["message"]
    for where in ("n2", "n3"):
        world.delete_pod(f"busy-{where}")
    world.settle()
    assert switches(world, 4) == {"s1"}


def test_pods_that_request_nothing_are_held_to_the_switch_too() -> None:
    world = leaf_spine()
    world.add(group("g", minimum=1, topology={"mode": "hard", "highestTierAllowed": 1}))
    for i in range(6):
        world.add(pod(f"g-{i}", group="g"))
        world.settle()
    assert together(world, 6)


def test_pods_of_sub_groups_that_request_nothing_are_held_to_the_switches_of_these() -> None:
    world = leaf_spine()
    near = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"name": "w", "matchLabelKeys": ["part"], "networkTopology": near}
    world.add(group("g", minimum=1, topology={"mode": "hard", "highestTierAllowed": 2}, sub_groups=[policy]))
    for i in range(8):
        world.add(pod(f"g-{i % 2}-{i // 2}", group="g", labels={"part": str(i % 2)}))
        world.settle(1)
        busy(world, *[f"n{i}"] if i in (1, 3) else [])
    left, right = parts(world, 2, 4)
    assert (len(left), len(right), "" in left | right) == (1, 1, False)
    assert (left | right) <= {"s0", "s1"} or (left | right) <= {"s2", "s3"}


@pytest.mark.parametrize("where", ["group", "pod"])
def test_annotations_ask_as_the_field_does(where: str) -> None:
    requested = {"volcano.sh/network-topology-mode": "hard", "volcano.sh/network-topology-highest-tier": "1"}
    world = leaf_spine()
    made = group("g", minimum=4)
    if where == "group":
        made["metadata"]["annotations"] = requested
    world.add(made, *[pod(f"g-{i}", group="g", cpu="1", annotations=requested if where == "pod" else {}) for i in range(4)])
    world.settle()
    assert together(world, 4)


@pytest.mark.parametrize(("requested", "said"), [
    ({"highestTierAllowed": 1, "highestTierName": "rack"}, "exclude each other"),
    ({"mode": "firm"}, "is neither hard nor soft"),
])  # fmt: skip
def test_a_demand_that_contradicts_itself_holds_its_gang_alone_and_says_so(requested: dict[str, Any], said: str) -> None:
    world = leaf_spine()
    world.add(*gang(2, **requested), *gang(2, name="h", highestTierAllowed=1))
    world.settle()
    assert (switches(world, 2), len(switches(world, 2, "h") - {""})) == ({""}, 1)
    assert said in world.condition("g-0")["message"]


@pytest.mark.parametrize("grouped", [True, False])
def test_nobody_is_evicted_for_a_gang_with_sub_groups(grouped: bool) -> None:
    """Room is made for a job as a whole, and might be made behind different switches for one sub-group."""
    actions = "enqueue, allocate, preempt, backfill"
    world = leaf_spine(conf("priority", "gang", "conformance", "predicates", actions=actions))
    world.add(priority_class("high", 100), group("low", minimum=1), *[pod(f"low-{i}", group="low", cpu="2") for i in range(8)])
    world.settle()
    made = group("g", minimum=2, priority_class="high", sub_groups=[{"name": "all"}] if grouped else ())
    world.add(made, *[pod(f"g-{i}", group="g", cpu="2") for i in range(2)])
    world.settle()
    assert (sum(name.startswith("low-") for name in world.placements()) == 8) is grouped


# -- sub-groups -------------------------------------------------------------------------------------------------------


def partitions(count: int, size: int, *, minimum: int, policy: dict[str, Any], **ask: Any) -> list[dict[str, Any]]:
    taken = {"name": "workers", "labelSelector": {"matchLabels": {"role": "worker"}}, "matchLabelKeys": ["part"], **policy}
    made = group("g", minimum=minimum, topology={"mode": "hard", **ask} if ask else None, sub_groups=[taken])
    pods = [
        pod(f"g-{part}-{i}", group="g", cpu="1", labels={"role": "worker", "part": str(part)})
        for part in range(count) for i in range(size)
    ]  # fmt: skip
    return [made, *pods]


def parts(world: World, count: int, size: int) -> list[set[str]]:
    places = [[world.node_of(f"g-{part}-{i}") for i in range(size)] for part in range(count)]
    return [{f"s{int(where[1:]) // 2}" if where else "" for where in part} for part in places]


def test_each_sub_group_has_a_switch_of_its_own_within_that_of_the_job() -> None:
    world = leaf_spine()
    policy = {"subGroupSize": 4, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    world.add(*partitions(2, 4, minimum=8, policy=policy, highestTierAllowed=2))
    world.settle()
    left, right = parts(world, 2, 4)
    assert (left | right) in ({"s0", "s1"}, {"s2", "s3"})
    assert (len(left), len(right)) == (1, 1)


def test_sub_groups_that_are_not_kept_together_by_the_job_may_be_far_apart() -> None:
    world = leaf_spine()
    busy(world, "n0", "n2", "n6")
    policy = {"subGroupSize": 4, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    world.add(*partitions(1, 4, minimum=4, policy=policy))
    world.settle()
    assert parts(world, 1, 4) == [{"s2"}]


def test_a_sub_group_is_placed_whole_or_not_at_all() -> None:
    world = leaf_spine()
    busy(world, *[f"n{i}" for i in range(1, 8)])
    busy(world, "n1", cpu="0")
    world.add(*partitions(3, 2, minimum=1, policy={"subGroupSize": 2}))
    world.settle()
    found = [sum(bool(world.node_of(f"g-{part}-{i}")) for i in range(2)) for part in range(3)]
    assert found == [2, 0, 0]


def test_a_job_starts_with_as_many_whole_sub_groups_as_it_wants() -> None:
    world = leaf_spine()
    busy(world, *[f"n{i}" for i in range(1, 8)])
    world.add(*partitions(3, 2, minimum=2, policy={"subGroupSize": 2, "minSubGroups": 2}))
    world.settle()
    assert parts(world, 3, 2) == [{""}, {""}, {""}], "room for one"
    world.remove("Pod", "default/busy-n5")
    world.settle()
    assert sum("" not in part for part in parts(world, 3, 2)) == 2


def test_a_job_that_lacks_sub_groups_is_not_tried() -> None:
    world = leaf_spine()
    world.add(*partitions(1, 2, minimum=2, policy={"subGroupSize": 2, "minSubGroups": 2}))
    world.settle()
    assert "Not enough valid subGroups of each task for gang-scheduling" in world.condition("g-0-0")["message"]


def test_pods_of_no_sub_group_belong_to_the_job_alone() -> None:
    world = leaf_spine()
    policy = {"subGroupSize": 2, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    world.add(*partitions(2, 2, minimum=5, policy=policy), pod("g-9", group="g", cpu="1"))
    world.settle()
    assert world.node_of("g-9")
    assert all(len(part) == 1 and "" not in part for part in parts(world, 2, 2))


def test_what_a_sub_group_asks_in_vain_is_said() -> None:
    world = leaf_spine()
    policy = {"subGroupSize": 2, "networkTopology": {"mode": "hard", "highestTierName": "row"}}
    world.add(*partitions(1, 2, minimum=2, policy=policy, highestTierAllowed=2))
    world.settle()
    assert parts(world, 1, 2) == [{""}]
    assert "no HyperNode has the tierName 'row'" in world.condition("g-0-0")["message"]


# -- the example ------------------------------------------------------------------------------------------------------


def example(name: str) -> list[dict[str, Any]]:
    """The objects of one file as an API server would hand them out."""
    found = list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text("utf-8")))
    for obj in found:
        uid = f"{obj['kind']}-{obj['metadata']['name']}"
        obj["metadata"] |= {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
        if obj["kind"] != "HyperNode":
            obj["metadata"]["namespace"] = "default"
            obj["status"] = {"phase": "Pending"}
    return found


def test_the_example_does_what_it_says() -> None:
    world = World()
    world.add(*[node(f"node-{i}", cards=2, mib=11000) for i in range(1, 5)], *example("hypernodes"))
    world.add(*example("too-many"))
    world.settle()
    assert world.condition("too-many-0")["message"] == (
        "no HyperNode of tier rack or below takes 5 pods (2 looked at); rack-1 has room for 4 at most"
    )
    wider = world.groups["default/too-many"]
    wider["spec"]["networkTopology"]["highestTierName"] = "room"
    world.add(wider)
    world.settle()
    assert all(world.node_of(f"too-many-{i}") for i in range(5))
    for i in range(5):
        world.delete_pod(f"too-many-{i}")
    world.add(*example("one-rack"))
    world.settle()
    assert {world.node_of(f"one-rack-{i}") for i in range(3)} in ({"node-1", "node-2"}, {"node-3", "node-4"})


def test_nothing_in_the_examples_is_without_effect_or_misspelt() -> None:
    files = {path.name: path.read_text("utf-8") for path in sorted(EXAMPLES.glob("*.yaml"))}
    assert len(files) == 4
    assert lint_files(files) == []
