"""One pod, one reason: conditions, events, metrics, ``pumice explain`` and ``pumice top`` say the same of why it waits."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import PodCondition
from pumice.metrics.scheduler import JobSeries, queue_families
from pumice.scheduler.explaining.explain import explain_known
from pumice.scheduler.explaining.queues import queue_view, queue_views
from pumice.scheduler.explaining.workloads import explain_group, waiting_pods

WHY = "0/1 nodes are unavailable: 1 hami-vgpuDeviceSharing: memory 2 of 2 cards."


def pending(world: World) -> dict[tuple[str, str], float]:
    return {(labels["queue_name"], labels["reason"]): number for labels, number in JobSeries(world.engine).backlog().samples}


def overused(world: World) -> dict[str, float]:
    (family,) = [family for family in queue_families(world.engine) if family.name == "volcano_queue_overused"]
    return {labels["queue_name"]: value for labels, value in family.samples}


def condition(world: World, key: str) -> str:
    return next(c["message"] for c in world.pods[key]["status"]["conditions"] if c["type"] == "PodScheduled")


def walked() -> World:
    """The README's own walk: a pod that has its share, then one that no card can hold, both with PodGroups."""
    world = World()
    world.add(node("n1", cards=2, mib=11178), group("small", minimum=1), pod("small", cards=1, mib=3000, group="small"))
    world.settle()
    world.add(group("too-big", minimum=1), pod("too-big", cards=1, mib=16000, group="too-big"))
    world.settle()
    assert world.placements()["small"] == "n1/0"
    return world


def test_a_pod_that_no_card_can_hold_hears_of_cards_everywhere_and_never_of_its_queue() -> None:
    world = walked()
    assert condition(world, "default/too-big") == WHY
    said = {c["type"]: c["message"] for c in world.groups["default/too-big"]["status"]["conditions"]}
    assert said["Unschedulable"].endswith(f"Origin reason is too-big: {WHY}")
    events = [event.message for event in world.events if event.kind == "PodGroup" and event.name == "too-big"]
    assert events
    assert all(WHY in text for text in events), events
    assert pending(world) == {("default", "unschedulable"): 1}
    assert overused(world) == {"default": 0}
    found = explain_known(world.restarted(), "default", "too-big", now=world.now)
    assert found is not None
    assert found.summary == WHY
    assert found.gates == ()
    assert WHY in explain_group(world.restarted(), "default", "too-big", world.now).summary


def test_explain_queue_and_top_show_the_same_figures_and_the_same_reason() -> None:
    world = walked()
    view = queue_view(world.restarted(), "default", world.now)
    (other,) = [each for each in queue_views(world.restarted(), world.now) if each.name == "default"]
    assert view == other
    assert view.jobs == (("default/too-big", 1, WHY),)
    assert view.deserved["volcano.sh/vgpu-memory"] == 3000 * 1000


def test_of_two_that_wait_in_a_full_queue_the_one_that_fits_nowhere_is_told_of_nodes_and_the_other_of_its_queue() -> None:
    world = World()
    world.add(node("n1", cpu="8"), queue("a"), queue("b"))
    world.add(*(pod(f"a{i}", cpu="1", queue="a") for i in range(4)), *(pod(f"b{i}", cpu="1", queue="b") for i in range(3)))
    world.settle()
    world.add(pod("huge", cpu="20", queue="a"))
    world.settle()
    assert condition(world, "default/huge") == "0/1 nodes are unavailable: 1 Insufficient cpu."
    assert pending(world) == {("a", "unschedulable"): 1}


def test_a_gang_that_lost_a_member_says_so_on_its_pods_and_no_longer_where_they_would_have_gone() -> None:
    world = World()
    world.add(node("n1", cpu="2"), group("g", minimum=3), *(pod(f"g-{i}", cpu="1", group="g") for i in range(3)))
    world.settle()
    assert "can possibly be assigned" in condition(world, "default/g-0")
    world.delete_pod("g-2")
    world.settle()
    why = "Not enough valid tasks for gang-scheduling, valid: 2, min: 3"
    assert condition(world, "default/g-0") == condition(world, "default/g-1") == why
    assert pending(world) == {("default", "gang"): 2}


def test_a_pod_whose_binding_failed_hears_that_its_queue_closed_since() -> None:
    world = World()
    world.add(node("n1", cpu="8"), queue("a"), pod("p", cpu="1", queue="a"))
    world.refuse = lambda bind: True
    world.cycle()
    closed = queue("a")
    closed["status"] = {"state": "Closed"}
    world.add(closed)
    world.settle()
    assert condition(world, "default/p") == "queue a is Closed"


def test_a_gang_names_the_same_pod_in_whatever_order_its_pods_are_listed() -> None:
    members = pod("g-2", cpu="20", group="g"), pod("g-10", cards=1, mib=16000, group="g")
    said = []
    for order in (members, members[::-1]):
        world = World()
        world.add(node("n1", cards=2, mib=11178), group("g", minimum=2), *order)
        world.settle()
        said.append({c["type"]: c["message"] for c in world.groups["default/g"]["status"]["conditions"]}["Unschedulable"])
    assert said[0] == said[1]
    assert "Origin reason is g-2: 0/1 nodes are unavailable: 1 Insufficient cpu." in said[0]


def test_a_pod_whose_claim_is_not_there_hears_so_before_the_first_node_comes() -> None:
    world = World()
    never = pod("never", cpu="1")
    never["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "nowhere"}]
    world.add(never)
    world.settle()
    why = "spec.resourceClaims: ResourceClaim default/nowhere is not there"
    assert condition(world, "default/never") == f"0/0 nodes are unavailable: {why}."
    found = explain_known(world.restarted(), "default", "never", now=world.now)
    assert found is not None
    assert found.summary == f"cannot be tried yet: {why}"


def test_explain_waiting_keeps_the_name_of_a_claim_that_begins_with_the_pods() -> None:
    world = World()
    claiming = pod("p", cpu="1")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
    world.add(node("n1", cpu="4"), claiming)
    world.settle()
    (row,) = waiting_pods(world.restarted(), world.now)
    assert row.why == condition(world, "default/p")
    assert "ResourceClaim default/p-gpu is not there" in row.why


@pytest.mark.parametrize("budget", range(1, 30))
def test_a_member_that_a_short_cycle_did_not_come_to_hears_why_like_those_before_it(budget: int) -> None:
    """Two of the gang are bound, one waits for what a pod releases, and for the last the cycle has no time."""
    world = World()
    world.add(node("n1", cpu="6"), node("n2", cpu="3"), pod("old", cpu="2", node="n2"))
    world.settle()
    world.terminate("old")
    world.add(group("g", minimum=2), *(pod(f"g-{i}", cpu="3", group="g") for i in range(4)))
    world.settle()
    world.engine = world.restarted()
    cycle = world.engine.cycle
    short = partial(cycle, budget=budget, tick=count().__next__, at_least=1)
    world.engine.cycle = short  # type: ignore[method-assign]
    world.cycle()
    world.engine.cycle = cycle  # type: ignore[method-assign]
    world.settle()
    waiting = {name for name in ("g-0", "g-1", "g-2", "g-3") if not world.pods[f"default/{name}"]["spec"].get("nodeName")}
    assert len(waiting) == 2
    said = {condition(world, f"default/{name}") for name in waiting}
    assert not any("not tried yet" in text for text in said), said
    view = explain_group(world.restarted(), "default", "g", world.now)
    assert {name for names in view.waiting.values() for name in names} == waiting


def test_a_pod_that_can_never_run_and_its_group_count_the_nodes_that_are_there_a_minute_after_one_came_or_went() -> None:
    world = World()
    never = pod("never", cpu="1", group="g")
    never["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "nowhere"}]
    world.add(node("n1"), node("n2"), group("g", minimum=1), never)
    world.settle()
    assert condition(world, "default/never").startswith("0/2 nodes are unavailable: 2 ")
    for change, number in ((lambda: world.remove("Node", "n2"), 1), (lambda: world.add(node("n3"), node("n4")), 3)):
        change()
        world.settle(61.0)
        assert condition(world, "default/never").startswith(f"0/{number} nodes are unavailable: {number} ")
        said = {c["type"]: c["message"] for c in world.groups["default/g"]["status"]["conditions"]}
        assert f"0/{number} nodes are unavailable: {number} " in said["Unschedulable"]


def test_a_pod_told_just_before_a_node_came_counts_it_a_minute_later() -> None:
    world = World()
    world.add(node("n1", cpu="1"), pod("p", cpu="2"))
    world.settle()
    world.add(node("n2", cpu="1"))
    world.settle(61.0)
    assert condition(world, "default/p") == "0/2 nodes are unavailable: 2 Insufficient cpu."


def test_a_member_that_its_gangs_last_try_did_not_come_to_no_longer_tells_of_an_earlier_one() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="2"), group("g", minimum=2), pod("g-0", cpu="2", group="g"), pod("g-1", cpu="1", group="g"))
    world.settle()
    assert condition(world, "default/g-1") == "0/1 nodes are unavailable: 1 Insufficient cpu."
    world.remove("Node", "n1")
    world.add(node("n2", cpu="1"), node("n3", cpu="1"))
    world.settle(61.0)
    why = "0/2 nodes are unavailable: 2 Insufficient cpu."
    assert condition(world, "default/g-0") == why
    assert condition(world, "default/g-1").endswith(f"Origin reason is g-0: {why}")


def test_a_pod_tried_at_the_moment_in_which_a_node_went_counts_the_others_a_minute_later() -> None:
    world = World()
    changed = pod("p", cpu="2")
    world.add(node("n1", cpu="1"), node("n2", cpu="1"), changed)
    world.settle()
    assert condition(world, "default/p") == "0/2 nodes are unavailable: 2 Insufficient cpu."
    world.remove("Node", "n2")
    changed["spec"]["tolerations"] = [{"operator": "Exists"}]
    world.add(changed)
    world.settle(61.0)
    assert condition(world, "default/p") == "0/1 nodes are unavailable: 1 Insufficient cpu."


def test_a_pod_that_can_never_run_counts_the_nodes_although_its_gang_changes_as_they_go() -> None:
    world = World()
    never = pod("g-0", cpu="1", group="g")
    never["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "nowhere"}]
    world.add(node("n1"), node("n2"), group("g", minimum=2), never)
    world.settle()
    assert condition(world, "default/g-0").startswith("0/2 nodes are unavailable: 2 ")
    world.remove("Node", "n2")
    world.add(group("g", minimum=3))
    world.settle(61.0)
    assert condition(world, "default/g-0").startswith("0/1 nodes are unavailable: 1 ")


def test_where_nodes_come_all_the_time_a_waiting_pod_is_written_every_half_minute_and_counts_all_of_them_in_the_end() -> None:
    world = World()
    world.add(node("n0", cpu="1"), *(pod(f"p{number}", cpu="2") for number in range(3)), pod("lone", cpu="3"))
    world.settle()
    world.effects.clear()
    for number in range(1, 41):
        world.add(node(f"n{number}", cpu="1"))
        if number % 4 == 0:
            world.add(world.pods["default/lone"])
        world.settle(5.0)
    world.settle(61.0)
    written = Counter(effect.name for effect in world.effects if isinstance(effect, PodCondition))
    assert all(count <= 1 + (40 * 5 + 61) // 30 for count in written.values()), written
    said = {condition(world, f"default/{name}") for name in ("p0", "p1", "p2", "lone")}
    assert said == {"0/41 nodes are unavailable: 41 Insufficient cpu."}


def test_explain_pod_counts_as_taken_what_a_gang_keeps_for_itself_like_the_condition_does() -> None:
    """A member of the gang has all of n1, and waits for another whose place on n2 is being released."""
    world = World()
    world.add(node("n1", cpu="2"), node("n2", cpu="2"), node("n3", cpu="2", labels={"zone": "a"}))
    world.add(pod("old", cpu="2", nodeName="n2"), pod("other", cpu="2", nodeName="n3"))
    world.settle()
    world.terminate("old")
    world.add(group("g", minimum=2), pod("g-0", cpu="2", group="g"), pod("g-1", cpu="2", group="g"))
    world.settle()
    world.add(pod("late", cpu="1", nodeSelector={"zone": "a"}))
    world.settle()
    why = "0/3 nodes are unavailable: 3 Insufficient cpu."
    assert condition(world, "default/late") == why
    found = explain_known(world.restarted(), "default", "late", now=world.now)
    assert found is not None
    assert found.summary == why
    assert {error.node: error.text for error in found.fit_errors} == dict.fromkeys(("n1", "n2", "n3"), "Insufficient cpu")
    assert not found.node
