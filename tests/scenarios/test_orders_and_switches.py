"""Which job, pod and node comes first, and the switches that change it (Volcano pkg/scheduler/util.go, Volcano
pkg/scheduler/api/job_info.go, Volcano pkg/scheduler/framework/session_plugins.go, Volcano pkg/scheduler/actions/allocate)."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World, scenario
from kit.objects import group, node, pod, priority_class
from kit.scheduler_confs import conf

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
    """Nothing is said of where the others might have gone."""
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


def test_a_role_that_failed_is_not_tried_again_in_later_passes_of_the_cycle() -> None:
    """The job stands after its first pod; the worker that failed by then speaks for those that come after."""
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="3"), group("g", minimum=1, roles={"ps": 1}))
    world.add(pod("g-x-0", cpu="9", group="g", role="worker"), pod("g-x-1", cpu="1", group="g", role="ps"),
              pod("g-x-2", cpu="1", group="g", role="worker"), pod("g-x-3", cpu="1", group="g", role="ps"))  # fmt: skip
    world.cycle()
    assert [world.node_of(f"g-x-{i}") for i in range(4)] == ["", "n1", "", "n1"]
    assert "g-x-2 with role spec worker has already" in world.condition("g-x-2")["message"]


def test_a_nominated_node_is_tried_first() -> None:
    named: dict[str, Any] = pod("a", cpu="1")
    named["status"]["nominatedNodeName"] = "n2"
    scenario("nominated", nodes=[node("n1"), node("n2")], arriving=[named], expect={"a": "n2"})


# -- switches of plugins ----------------------------------------------------------------------------------------------


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
