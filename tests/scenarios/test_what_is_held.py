"""Allocations of pods, tentative and final, and their effect on others (Volcano pkg/scheduler/cache, Volcano
pkg/scheduler/framework/statement.go)."""

from __future__ import annotations

import copy

from kit.engine_world import World, scenario
from kit.objects import group, node, pod, priority_class
from kit.scheduler_confs import conf

# -- statements (8) ------------------------------------------------------------------------------------------------


def half_released() -> World:
    """A gang of two, room for one, and a pod that is going."""
    world = World()
    world.add(node("n1", cpu="2"), pod("old", cpu="1"))
    world.settle()
    world.terminate("old")
    world.add(group("g", minimum=2), *(pod(f"g-{i}", cpu="1", group="g") for i in range(2)))
    world.settle()
    return world


def test_a_gang_that_stands_in_part_on_what_is_being_released_holds_nothing_between_cycles() -> None:
    world = half_released()
    assert [world.node_of(f"g-{i}") for i in range(2)] == ["", ""]
    assert set(world.engine.state.ledger.placements) == {world.pods["default/old"]["metadata"]["uid"]}
    assert world.condition("g-0")["message"] == (
        "Pod default/g-0 can possibly be assigned to n1, once minAvailable is satisfied"
    )
    assert world.condition("g-1")["message"] == (
        "Pod default/g-1 can possibly be assigned to n1, once resource is released and minAvailable is satisfied"
    )
    world.delete_pod("old")
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(2)] == ["n1", "n1"]


def test_what_such_a_gang_waits_with_is_kept_from_later_pods_but_not_from_more_important_ones() -> None:
    world = half_released()
    world.add(pod("late", cpu="1"))
    world.settle()
    assert world.node_of("late") == ""
    world.add(priority_class("high", 9), group("h", minimum=1, priority_class="high"), pod("urgent", cpu="1", group="h"))
    world.settle()
    assert world.node_of("urgent") == "n1"


def test_what_such_a_gang_waits_with_is_offered_to_others_once_the_gang_is_gone() -> None:
    world = half_released()
    world.add(pod("late", cpu="1"))
    world.settle()
    for name in ("g-0", "g-1"):
        world.delete_pod(name)
    world.settle()
    assert world.node_of("late") == "n1"


# -- what placed pods mean for others (5) --------------------------------------------------------------------------


def test_a_running_pod_that_is_resized_in_place_takes_its_new_size() -> None:
    world = World()
    world.add(node("n1", cpu="4"), pod("grows", cpu="1"))
    world.settle()
    grown = world.pods["default/grows"]
    grown["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    world.add(grown, pod("two", cpu="2"))
    world.settle()
    assert world.node_of("two") == ""
    assert world.engine.state.queues["default"].allocated["cpu"] == 3000


def test_a_running_pod_that_is_labelled_anew_is_found_by_its_new_label() -> None:
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    world = World()
    world.add(node("n1"), pod("web", cpu="1"))
    world.settle()
    world.add(pod("a", cpu="1", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}))
    world.settle()
    assert world.node_of("a") == ""
    labelled = world.pods["default/web"]
    labelled["metadata"]["labels"] = {"app": "web"}
    world.add(labelled)
    world.settle()
    assert world.node_of("a") == "n1"


def test_a_pod_deleted_while_its_binding_is_on_the_way_gives_its_cards_back_when_the_binding_fails() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=8000))

    def deleted_meanwhile(_: object) -> bool:
        world.terminate("a")  # a finalizer keeps the object
        return True

    world.refuse = deleted_meanwhile
    world.cycle()
    assert world.engine.state.ledger.placements == {}
    world.refuse = lambda _: False
    world.add(pod("b", mib=8000))
    world.settle()
    assert world.card_of("b") == "n1/0"


def test_a_late_event_of_a_pod_without_node_does_not_undo_its_placement() -> None:
    """The Binding is accepted and not yet seen; an older change of the pod, newer than what was known, arrives first."""
    world = World()
    world.deliver = False
    world.add(node("n1", cards=1), pod("a", mib=8000))
    late = copy.deepcopy(world.pods["default/a"])
    world.cycle()
    late["metadata"]["resourceVersion"] = str(int(late["metadata"]["resourceVersion"]) + 1)
    world.report(late)
    assert world.engine.state.tasks[late["metadata"]["uid"]].status.label == "Bound"
    world.add(pod("b", mib=8000))
    world.cycle()
    assert (world.card_of("a"), world.node_of("b")) == ("n1/0", "")


def test_an_eviction_once_decided_is_not_undone_by_an_older_event() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=8000))
    world.settle()
    victim = world.pods["default/a"]
    assert world.engine.state.terminating.evicting(victim["metadata"]["uid"]) is not None
    victim["metadata"]["labels"] = {"changed": "meanwhile"}
    world.add(victim, pod("b", mib=8000))
    world.settle()
    state = world.engine.state
    assert state.tasks[victim["metadata"]["uid"]].status.label == "Releasing"
    assert state.ledger.is_terminating(victim["metadata"]["uid"])
    assert world.node_of("b") == ""
    world.delete_pod("a")
    world.settle()
    assert world.card_of("b") == "n1/0"
    assert not state.ledger.table.releasing.any()


def test_pods_of_other_schedulers_count_as_used_only() -> None:
    foreign = pod("theirs", cpu="3", scheduler="default-scheduler", nodeName="n1")
    scenario("a foreign pod", nodes=[node("n1", cpu="4")], having=[foreign, pod("unplaced", scheduler="default-scheduler")],
             arriving=[pod("a", cpu="2"), pod("b", cpu="1")], expect={"a": "", "b": "n1", "unplaced": ""})  # fmt: skip


def test_pods_of_a_node_that_vanished_are_charged_again_when_it_returns() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=6000))
    world.settle()
    world.remove("Node", "n1")
    world.settle()
    world.add(node("n1", cards=1), pod("b", mib=6000))
    world.settle()
    assert (world.card_of("a"), world.node_of("b")) == ("n1/0", "")


def test_a_pod_whose_card_has_gone_still_takes_its_part_of_what_the_node_advertises() -> None:
    """The kubelet counts it and would turn away whoever came beside it."""
    world = World()
    world.add(node("n1", cards=2), pod("a", mib=1000, cores=100), pod("other", mib=1000, cores=100))
    world.settle()
    world.remove("Node", "n1")
    world.delete_pod(next(name for name in ("a", "other") if world.card_of(name) == "n1/0"))
    world.add(node("n1", cards=1), pod("b", mib=1000, cores=100))
    world.settle()
    assert world.node_of("b") == ""
    assert "volcano.sh/vgpu-cores" in world.condition("b")["message"]


# -- places that are being released -----------------------------------------------------------------------------------


def two_pods_go() -> World:
    """n1 and n2 are full, a pod goes from each; n3 is idle and small."""
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="4"), node("n2", cpu="4"), node("n3", cpu="1"))
    world.add(pod("stays", cpu="1", nodeName="n2"), pod("goes-1", cpu="4", nodeName="n1"), pod("goes-2", cpu="3", nodeName="n2"))
    for name in ("goes-1", "goes-2"):
        world.terminate(name)
    return world


def hoped_for(world: World, name: str) -> str:
    return str(world.condition(name)["message"]).removeprefix(f"Pod default/{name} can possibly be assigned to ").split(",")[0]


def test_of_two_places_that_are_being_released_the_better_one_is_waited_for() -> None:
    """cpu is gone on both; of memory n2 has more left."""
    world = World(conf("gang", "predicates", "nodeorder") + "    arguments: {balancedresource.weight: 0}\n")
    world.add(node("n1", cpu="4"), node("n2", cpu="4"))
    world.add(pod("goes-1", cpu="4", memory="32Gi", nodeName="n1"), pod("goes-2", cpu="4", memory="8Gi", nodeName="n2"))
    for name in ("goes-1", "goes-2"):
        world.terminate(name)
    world.add(group("g", minimum=1), pod("g-0", cpu="2", memory="1Gi", group="g"))
    world.settle()
    assert hoped_for(world, "g-0") == "n2"


def test_a_pod_for_which_room_is_being_made_on_a_node_waits_for_it_there_while_nothing_else_is_free() -> None:
    world = two_pods_go()
    named = pod("named", cpu="2", group="g")
    named["status"]["nominatedNodeName"] = "n2"
    world.add(group("g", minimum=1), named, pod("other", cpu="1"))
    world.settle()
    assert (world.node_of("named"), world.node_of("other")) == ("", "n3")
    assert hoped_for(world, "named") == "n2"
    world.delete_pod("goes-2")
    world.settle()
    assert world.node_of("named") == "n2"


def test_a_free_node_is_better_than_a_nominated_one_where_something_is_still_going() -> None:
    world = two_pods_go()
    named = pod("named", cpu="1")
    named["status"]["nominatedNodeName"] = "n2"
    world.add(named)
    world.settle()
    assert world.node_of("named") == "n3"


def test_a_nominated_node_that_cannot_take_the_pod_keeps_it_from_no_other() -> None:
    world = two_pods_go()
    named = pod("named", cpu="1")
    named["status"]["nominatedNodeName"] = "n9"
    world.add(named)
    world.settle()
    assert world.node_of("named") == "n3"


def bound_without_its_group() -> World:
    """On each of two cards a bound pod of PodGroup g that does not say so yet, as before the controller's write."""
    world = World()
    world.add(node("n1", cards=2), *(pod(f"g-{i}", mib=6000) for i in range(2)))
    world.settle()
    assert {world.card_of("g-0"), world.card_of("g-1")} == {"n1/0", "n1/1"}
    return world


def names_its_group(world: World, name: str, group: str) -> None:
    changed = copy.deepcopy(world.pods[f"default/{name}"])
    changed["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = group
    world.add(changed)


def test_a_bound_pod_that_is_given_its_podgroup_later_keeps_pods_of_the_group_that_spread_off_its_card() -> None:
    world = bound_without_its_group()
    spread = {"volcano.sh/vgpu-podgroup-policy": "spread"}
    world.add(group("g", minimum=1), group("h", minimum=1), pod("h-0", mib=500, group="h", annotations=spread))
    world.settle()  # somebody has asked for marks by now
    names_its_group(world, "g-0", "g")
    names_its_group(world, "g-1", "g")
    world.add(pod("g-2", mib=500, group="g", annotations=spread))
    world.settle()
    assert world.node_of("g-2") == ""
    names_its_group(world, "g-1", "h")
    world.settle()
    assert world.card_of("g-2") == world.card_of("g-1")


def test_no_node_is_looked_at_again_because_a_bound_pod_names_its_podgroup_where_nobody_spreads() -> None:
    world = bound_without_its_group()
    changes = world.engine.state.ledger.table.changes
    before = changes.end
    names_its_group(world, "g-0", "g")
    world.settle()
    assert changes.end == before
    assert world.card_of("g-0") in ("n1/0", "n1/1")
