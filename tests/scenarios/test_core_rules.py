"""Rules of the core that the acceptance list does not name (spec volcano-core 4 to 15), each as a small story."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.kit.engine_world import World, conf, scenario
from tests.kit.objects import group, node, pod, priority_class

Json = dict[str, Any]


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
    assert set(world.engine.state.ledger.holdings) == {world.pods["default/old"]["metadata"]["uid"]}
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
    assert world.engine.state.ledger.holdings == {}
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
    world.tell(late)
    assert world.engine.state.tasks[late["metadata"]["uid"]].status.label == "Bound"
    world.add(pod("b", mib=8000))
    world.cycle()
    assert (world.card_of("a"), world.node_of("b")) == ("n1/0", "")


def test_an_eviction_once_decided_is_not_undone_by_an_older_event() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=8000))
    world.settle()
    victim = world.pods["default/a"]
    assert world.engine.evicting(victim["metadata"]["uid"]) is not None
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


# -- orders and orders' words (4.3, 7) -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["--5", "high", "", "1.5", "٣x"])
def test_a_task_priority_that_is_no_integer_counts_as_absent(text: str) -> None:
    scenario("odd annotation", nodes=[node("n1")],
             arriving=[pod("a", cpu="1", annotations={"volcano.sh/task-priority": text})], expect={"a": "n1"})  # fmt: skip


def test_inside_a_job_the_annotation_decides_before_the_pods_priority_and_then_the_index() -> None:
    world = World()
    world.add(node("n1", cpu="3"), group("g", minimum=1))
    world.add(pod("g-x-3", cpu="1", group="g", priority=7), pod("g-x-1", cpu="1", group="g", priority=7),
              pod("g-x-2", cpu="1", group="g", priority=7),
              pod("g-x-9", cpu="1", group="g", annotations={"volcano.sh/task-priority": "8"}))  # fmt: skip
    world.settle()
    assert [world.node_of(f"g-x-{i}") for i in (9, 1, 2, 3)] == ["n1", "n1", "n1", ""]


def test_the_older_spelling_of_the_group_annotation_is_read() -> None:
    world = World()
    world.add(node("n1", cpu="1"), group("g", minimum=2))
    alias = {"scheduling.volcano.sh/group-name": "g"}
    world.add(*(pod(f"g-{i}", cpu="1", annotations=alias) for i in range(2)))
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(2)] == ["", ""]


def test_the_global_default_priority_class_holds_for_groups_that_name_none() -> None:
    world = World()
    world.add(priority_class("low", 5), priority_class("usual", 50, default=True), node("n1", cpu="1"))
    world.add(group("a", minimum=1, priority_class="low"), pod("a", cpu="1", group="a"))
    world.add(group("b", minimum=1), pod("b", cpu="1", group="b"))
    world.settle()
    assert (world.node_of("b"), world.node_of("a")) == ("n1", "")


def test_a_gang_that_needs_every_pod_stops_at_the_first_that_does_not_fit() -> None:
    """Nothing is said of where the others might have gone (10.2)."""
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="4"), group("g", minimum=2))
    world.add(pod("g-x-0", cpu="9", group="g"), pod("g-x-1", cpu="1", group="g"))
    world.settle()
    assert "Insufficient cpu" in world.condition("g-x-0")["message"]
    assert world.condition("g-x-1")["reason"] == "Unschedulable"
    world.add(group("h", minimum=1), pod("h-x-0", cpu="9", group="h"), pod("h-x-1", cpu="1", group="h"))
    world.settle()
    assert world.node_of("h-x-1") == "n1"


def test_a_gang_whose_roles_are_not_all_placed_is_not_started() -> None:
    """Three of four fit, but none of them is the one of the role ps."""
    world = World()
    world.add(node("n1", cpu="4"), group("g", minimum=3, roles={"ps": 1, "worker": 2}))
    world.add(pod("g-w-0", cpu="1", group="g", role="worker"), pod("g-w-1", cpu="1", group="g", role="worker"),
              pod("g-w-2", cpu="1", group="g", role="worker"), pod("g-p-3", cpu="9", group="g", role="ps"))  # fmt: skip
    world.settle()
    assert world.bindings == []


def one_place_for_two(text: str) -> World:
    """Job a holds a pod and wants another; job b holds nothing; there is room for one."""
    world = World(text)
    world.add(node("n1", cpu="2"), group("a", minimum=1), pod("a-0", cpu="1", group="a", nodeName="n1"))
    world.add(pod("a-1", cpu="1", group="a"), group("b", minimum=1), pod("b-0", cpu="1", group="b"))
    world.settle()
    return world


@pytest.mark.parametrize("plugin", ["gang", "drf"])
def test_a_job_that_holds_nothing_goes_before_one_that_runs(plugin: str) -> None:
    world = one_place_for_two(conf(plugin, "predicates"))
    assert (world.node_of("b-0"), world.node_of("a-1")) == ("n1", "")
    assert one_place_for_two(conf("predicates")).node_of("a-1") == "n1"


# -- switches of plugins (3.2) -------------------------------------------------------------------------------------


def test_a_switch_takes_a_plugin_out_of_one_question_only() -> None:
    """gang without JobReady lets pods go one by one; its judgement of valid jobs has no switch."""
    world = World(conf("gang", "predicates").replace("  - name: gang\n", "  - name: gang\n    enableJobReady: false\n"))
    world.add(node("n1", cpu="2"), group("g", minimum=3))
    world.add(pod("g-0", cpu="1", group="g"), pod("g-1", cpu="1", group="g"))
    world.settle()
    assert world.node_of("g-0") == ""
    world.add(pod("g-2", cpu="1", group="g"))
    world.engine.cycle(world.now)
    assert sum(task.node != "" for task in world.engine.state.tasks.values()) == 2


def test_devices_have_no_say_between_nodes_when_their_node_order_is_switched_off() -> None:
    having = [node("n1", cards=1), node("n2", cards=1), pod("first", mib=1000, nodeName="n2", annotations={
        "volcano.sh/vgpu-ids-new": "GPU-n2-0,NVIDIA,1000,0:", "volcano.sh/vgpu-node": "n2"})]  # fmt: skip
    devices = ("tiers:\n- plugins:\n  - name: predicates\n  - name: deviceshare{}\n    arguments:\n"
               "      deviceshare.VGPUEnable: true\n      deviceshare.SchedulePolicy: binpack\n")  # fmt: skip
    for switch, expected in (("", "n2/0"), ("\n    enableNodeOrder: false", "n1/0")):
        text = 'actions: "allocate"\n' + devices.format(switch)
        scenario("switch", conf=text, nodes=[], having=having, arriving=[pod("a", mib=1000)], expect={"a": expected})


# -- status (13) ---------------------------------------------------------------------------------------------------


def test_phases_follow_the_pods() -> None:
    world = World()
    world.add(node("n1"), group("g", minimum=2))
    seen = []

    def look() -> None:
        world.settle(1)
        seen.append(world.groups["default/g"]["status"]["phase"])

    look()
    world.add(pod("g-0", cpu="1", group="g"), pod("g-1", cpu="1", group="g"))
    look()
    for phase in ("Running", "Succeeded"):
        for name in ("g-0", "g-1"):
            world.set_phase(name, phase)
        look()
    assert seen == ["Inqueue", "Running", "Running", "Completed"]


def test_a_gang_that_cannot_be_made_whole_again_is_unknown_and_runs_again_when_it_can() -> None:
    world = World()
    world.add(node("n1", cpu="2"), group("g", minimum=2), *(pod(f"g-{i}", cpu="1", group="g") for i in range(2)))
    world.settle()
    for name in ("g-0", "g-1"):
        world.set_phase(name, "Running")
    world.delete_pod("g-1")
    world.add(pod("blocker", cpu="1", nodeName="n1"), pod("g-2", cpu="1", group="g"))
    world.check = lambda: None  # type: ignore[method-assign]  # the gang was whole; what is left of it may stand
    world.settle()
    status = world.groups["default/g"]["status"]
    assert (status["phase"], status["running"]) == ("Unknown", 1)
    world.delete_pod("blocker")
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Running"


def test_a_gang_whose_members_are_only_going_is_not_called_unschedulable() -> None:
    world = World()
    world.add(node("n1"), group("g", minimum=2), *(pod(f"g-{i}", cpu="1", group="g") for i in range(2)))
    world.settle()
    for name in ("g-0", "g-1"):
        world.set_phase(name, "Running")
    world.terminate("g-0")
    world.settle()
    status = world.groups["default/g"]["status"]
    assert [c["type"] for c in status["conditions"]] == ["Scheduled"]
    assert status["phase"] == "Running"


def test_conditions_are_one_per_type_and_counts_follow() -> None:
    world = World()
    world.add(node("n1", cpu="1"), group("g", minimum=2), *(pod(f"g-{i}", cpu="1", group="g") for i in range(2)))
    world.settle()
    world.add(node("n2", cpu="1"))
    world.settle()
    conditions = {c["type"]: c for c in world.groups["default/g"]["status"]["conditions"]}
    assert set(conditions) == {"Unschedulable", "Scheduled"}
    assert conditions["Scheduled"]["reason"] == "tasks in gang are ready to be scheduled"
    world.set_phase("g-0", "Running")
    world.set_phase("g-1", "Failed")
    world.settle()
    status = world.groups["default/g"]["status"]
    assert (status["running"], status["failed"], status["succeeded"]) == (1, 1, 0)


def test_a_condition_of_which_only_the_numbers_change_is_rewritten_after_half_a_minute_at_most() -> None:
    world = World()
    world.add(node("n1", cpu="1"), pod("a", cpu="5"))
    world.settle()
    world.add(node("n2", cpu="1"), pod("b", cpu="5"))
    world.settle()
    assert world.condition("a")["message"] == "0/1 nodes are unavailable: 1 Insufficient cpu."
    assert world.condition("b")["message"] == "0/2 nodes are unavailable: 2 Insufficient cpu."
    world.now += 30
    changed = world.pods["default/a"]
    changed["metadata"]["annotations"] = {"volcano.sh/task-priority": "7"}
    changed["spec"]["tolerations"] = [{"operator": "Exists"}]
    world.add(changed)
    world.settle()
    assert world.condition("a")["message"] == "0/2 nodes are unavailable: 2 Insufficient cpu."


def test_a_role_that_failed_is_not_tried_again_for_its_other_pods() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="2"), group("g", minimum=1, roles={"ps": 1}))
    world.add(pod("g-p-0", cpu="1", group="g", role="ps"), pod("g-w-1", cpu="5", group="g", role="worker"),
              pod("g-w-2", cpu="5", group="g", role="worker"))  # fmt: skip
    world.settle()
    assert world.node_of("g-p-0") == "n1"
    assert world.condition("g-w-2")["message"] == (
        "Task g-w-2 with role spec worker has already predicated failed, skip"
    )


def test_a_gated_pod_that_asks_for_nothing_waits_too() -> None:
    scenario("gated", nodes=[node("n1")], arriving=[pod("a", gated=True)], expect={"a": ""})


def test_a_nominated_node_is_tried_first() -> None:
    named: dict[str, Any] = pod("a", cpu="1")
    named["status"]["nominatedNodeName"] = "n2"
    scenario("nominated", nodes=[node("n1"), node("n2")], arriving=[named], expect={"a": "n2"})


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
