"""Status of groups and pods: phases, conditions, texts and events (Volcano pkg/scheduler/framework/job_updater.go)."""

from __future__ import annotations

import pytest
from kit.engine_world import ALL_PLUGINS, World, scenario
from kit.objects import group, node, pod
from kit.scheduler_confs import conf

from pumice.scheduler.state.waiting import Waiting


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


def test_a_group_of_which_another_scheduler_places_the_pods_is_told_by_that_one() -> None:
    world = World()
    placed = pod("g-0", cpu="1", group="g", scheduler="another", nodeName="n1")
    world.add(node("n1"), placed, {**group("g", minimum=1), "status": {"phase": "Running", "running": 1}})
    world.settle(2)
    assert world.groups["default/g"]["status"]["phase"] == "Running"
    world.add(pod("g-1", cpu="1", group="g"))
    world.settle(2)
    assert world.groups["default/g"]["status"].get("running", 0) == 0, "now it has pods of ours, none of which runs yet"


def test_a_group_that_the_pods_of_another_scheduler_name_no_more_is_told_by_us() -> None:
    world = World()
    placed = pod("g-0", cpu="1", group="g", scheduler="another", nodeName="n1")
    world.add(node("n1"), placed, {**group("g", minimum=1), "status": {"phase": "Running", "running": 1}})
    world.settle(2)
    world.add({**placed, "metadata": {**placed["metadata"], "annotations": {}}})
    world.add({**group("g", minimum=2), "status": {"phase": "Running", "running": 1}})
    world.settle(2)
    assert world.groups["default/g"]["status"].get("running", 0) == 0


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


def test_conditions_count_nodes_that_came_and_are_not_rewritten_for_each_within_half_a_minute() -> None:
    world = World()
    world.add(node("n1", cpu="1"), pod("a", cpu="5"))
    world.settle()
    assert world.condition("a")["message"] == "0/1 nodes are unavailable: 1 Insufficient cpu."
    world.add(node("n2", cpu="1"), pod("b", cpu="5"))
    world.settle()
    assert [world.condition(name)["message"] for name in "ab"] == ["0/2 nodes are unavailable: 2 Insufficient cpu."] * 2
    world.add(node("n3", cpu="1"))
    world.settle()
    assert world.condition("a")["message"] == "0/2 nodes are unavailable: 2 Insufficient cpu."
    world.settle(30)
    assert [world.condition(name)["message"] for name in "ab"] == ["0/3 nodes are unavailable: 3 Insufficient cpu."] * 2


def test_a_gated_pod_that_asks_for_nothing_waits_too() -> None:
    scenario("gated", nodes=[node("n1")], arriving=[pod("a", gated=True)], expect={"a": ""})


def running_gang(text: str = ALL_PLUGINS) -> World:
    """A gang of two that runs."""
    world = World(text)
    world.add(node("n1", cpu="2"), group("g", minimum=2), *(pod(f"g-{i}", cpu="1", group="g") for i in range(2)))
    world.settle()
    for name in ("g-0", "g-1"):
        world.set_phase(name, "Running")
    world.settle()
    world.check = lambda: None  # type: ignore[method-assign]  # the gang was whole; what is left of it may stand
    return world


@pytest.mark.parametrize("fate", ["deleted", "failed"])
def test_a_gang_that_lost_a_member_for_which_none_comes_is_unknown(fate: str) -> None:
    """Its controller learns so that it must act: the Job controller's event Unknown."""
    world = running_gang()
    if fate == "deleted":
        world.delete_pod("g-1")
    else:
        world.set_phase("g-1", "Failed")
    world.settle()
    status = world.groups["default/g"]["status"]
    assert (status["phase"], status["running"]) == ("Unknown", 1)
    text = {"deleted": "0/1 tasks in gang unschedulable: pod group is not ready, 1 Running, 2 minAvailable",
            "failed": "0/2 tasks in gang unschedulable: pod group is not ready, 1 Failed, 1 Running, 2 minAvailable"}  # fmt: skip
    assert [e.message for e in world.events if e.kind == "PodGroup"][-1] == text[fate]


def test_all_members_that_ended_complete_a_gang_though_one_of_them_failed() -> None:
    world = running_gang()
    world.set_phase("g-0", "Succeeded")
    world.set_phase("g-1", "Failed")
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Completed"


def test_a_gang_keeps_its_phase_until_it_is_known_why_its_loss_cannot_be_made_good() -> None:
    """Reasons are worked out beside the placing; before they are, nobody says Pending of a gang that runs."""
    world = running_gang(conf("priority", "gang", "predicates"))
    world.delete_pod("g-1")
    world.add(pod("blocker", cpu="1", nodeName="n1"), *(pod(f"w{i}", cpu=f"{i + 3}", priority=9) for i in range(3)))
    world.add(pod("g-2", cpu="1", group="g"))
    phases = []
    for _ in range(8):
        for effect in world.engine.cycle(world.now, world.rng, budget=0.0).effects:
            world.perform(effect)
        phases.append(world.groups["default/g"]["status"]["phase"])
        world.now += 0.1
    assert set(phases) == {"Running", "Unknown"}
    assert phases[-1] == "Unknown"


def test_what_waits_beyond_a_gangs_minimum_hears_that_the_group_is_ready() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="1"), group("g", minimum=1, roles={"ps": 1}))
    world.add(*(pod(f"g-x-{i}", cpu="1", group="g", role="ps") for i in range(2)))
    world.settle()
    assert Waiting(world.engine.state.jobs["default/g"]).text == (
        "pod group is ready, 1 Bound, 1 Pending, 1 minAvailable; Pending: 1 Unschedulable. "
        "Origin reason is g-x-1: 0/1 nodes are unavailable: 1 Insufficient cpu."
    )
