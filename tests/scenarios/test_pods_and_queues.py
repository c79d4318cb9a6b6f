"""Bare pods, priorities, queues, best effort, texts: the core's acceptance list ()."""

from itertools import pairwise

import pytest
from kit.engine_world import ALL_PLUGINS, World, scenario
from kit.objects import group, node, pod, priority_class, queue
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import Bind, QueueAllocated
from pumice.wire.objects import Pod, convert


def test_a_bare_pod_is_placed_at_once_as_a_group_of_one() -> None:
    world = World()
    world.add(node("n1"), pod("a", cpu="1"))
    world.cycle()
    assert world.node_of("a") == "n1"


def test_a_pod_too_big_says_so_and_is_not_rewritten_while_nothing_changes() -> None:
    world = World()
    world.add(node("n1", cpu="4"), node("n2", cpu="4"), pod("a", cpu="5"))
    world.settle()
    assert world.condition("a")["message"] == "0/2 nodes are unavailable: 2 Insufficient cpu."
    assert world.condition("a")["reason"] == "Unschedulable"
    written = len(world.events)
    world.settle(60)
    assert len(world.events) == written


def test_reasons_are_counted_over_nodes() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    world = World()
    world.add(node("n1", cpu="1"), node("n2", cpu="1"), node("n3", taints=[taint]), node("n4", cordoned=True))
    world.add(pod("a", cpu="2"))
    world.settle()
    assert world.condition("a")["message"] == (
        "0/4 nodes are unavailable: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_without_nodes_the_text_says_so() -> None:
    world = World()
    world.add(pod("a", cpu="1"))
    world.settle()
    assert world.condition("a")["message"] == "0/0 nodes are unavailable"


def test_best_effort_pods_are_placed_by_backfill() -> None:
    scenario("best effort", nodes=[node("n1")], arriving=[pod("a")], expect={"a": "n1"})


def test_best_effort_pods_stay_pending_without_backfill() -> None:
    scenario("no backfill", conf=conf("gang", "predicates", actions="enqueue, allocate"), nodes=[node("n1")],
             arriving=[pod("a")], expect={"a": ""})  # fmt: skip


@pytest.mark.parametrize("plugins", [(), ("predicates",), ("gang",), ("priority", "gang"), ("proportion",), ("drf",)])
def test_any_subset_of_plugins_schedules(plugins: tuple[str, ...]) -> None:
    scenario("subset", conf=conf(*plugins), nodes=[node("n1")], arriving=[pod("a", cpu="1")], expect={"a": "n1"})


def test_allocate_promotes_jobs_itself_without_enqueue() -> None:
    scenario("no enqueue", conf=conf("gang", actions="allocate"), nodes=[node("n1")],
             arriving=[group("g", minimum=1), pod("a", cpu="1", group="g")], expect={"a": "n1"})  # fmt: skip


def test_the_more_important_job_goes_first() -> None:
    world = World()
    world.add(priority_class("high", 1000), node("n1", cpu="1"))
    world.add(group("low", minimum=1), pod("l", cpu="1", group="low"))
    world.add(group("high", minimum=1, priority_class="high"), pod("h", cpu="1", group="high"))
    world.settle()
    assert (world.node_of("h"), world.node_of("l")) == ("n1", "")


def test_two_queues_of_weight_one_and_three_share_one_to_three() -> None:
    world = World()
    world.add(node("n1", cpu="40", pods=1000), queue("a", weight=1), queue("b", weight=3))
    for name in ("a", "b"):
        world.add(*(pod(f"{name}-{i}-x", cpu="1", queue=name) for i in range(60)))
    world.settle(10)
    running = [sum(bool(world.node_of(f"{name}-{i}-x")) for i in range(60)) for name in ("a", "b")]
    assert running == [10, 30]


def test_a_queue_never_exceeds_its_capability() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000), queue("small", capability={"volcano.sh/vgpu-memory": "5000"}))
    world.add(*(pod(f"p{i}", mib=2000, queue="small") for i in range(4)))
    world.settle()
    assert sum(bool(world.node_of(f"p{i}")) for i in range(4)) == 2


def test_a_closed_queue_starts_nothing() -> None:
    world = World()
    world.add(node("n1"), queue("closed", state="Closed"), pod("a", cpu="1", queue="closed"))
    world.settle()
    assert world.node_of("a") == ""
    world.add(queue("closed", state="Open"))
    world.settle()
    assert world.node_of("a") == "n1"


def test_an_unknown_queue_holds_only_its_own_pods() -> None:
    scenario("unknown queue", nodes=[node("n1")], arriving=[pod("a", cpu="1", queue="nowhere"), pod("b", cpu="1")],
             expect={"a": "", "b": "n1"})  # fmt: skip


def test_allocated_of_a_queue_is_written_with_its_ancestors() -> None:
    world = World(ALL_PLUGINS)
    world.add(queue("root"), queue("team", parent="root"), node("n1"), pod("a", cpu="1500m", queue="team"))
    world.settle()
    assert world.queues["team"]["status"]["allocated"]["cpu"] == "1500m"
    assert world.queues["root"]["status"]["allocated"]["cpu"] == "1500m"


def test_gated_pods_wait_for_their_gates() -> None:
    world = World()
    gated = pod("a", cpu="1", gated=True)
    world.add(node("n1"), gated)
    world.settle()
    assert world.node_of("a") == ""
    assert world.condition("a") == {}
    gated["spec"]["schedulingGates"] = []
    world.add(gated)
    world.settle()
    assert world.node_of("a") == "n1"


def test_a_restart_while_pods_are_binding_uses_nothing_twice_and_loses_no_pod() -> None:
    world = World()
    world.deliver = False
    world.add(node("n1", cards=1), *(pod(f"p{i}", mib=3000) for i in range(4)))
    world.cycle()
    world.engine = world.restarted()
    world.deliver = True
    world.settle()
    assert sum(bool(world.node_of(f"p{i}")) for i in range(4)) == 2


def test_a_refused_binding_frees_the_cards_and_is_tried_again_with_back_off() -> None:
    world = World()
    times = []
    world.refuse = lambda bind: times.append(world.now) is None and len(times) < 4
    world.add(node("n1", cards=1), pod("a", mib=8000))
    world.settle(10)
    assert world.card_of("a") == "n1/0"
    assert len(times) == 4
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps == sorted(gaps)


def test_pods_that_run_already_are_no_work_for_a_cycle() -> None:
    """After a restart, bound pods without a PodGroup must not be looked at in every cycle."""
    world = World()
    world.add(node("n1", pods=1000, cpu="1000"), *(pod(f"p{i}", cpu="1", nodeName="n1") for i in range(50)))
    assert not any(queue.active for queue in world.engine.state.queues.values())
    world.add(pod("new", cpu="1"))
    world.engine.cycle(world.now, budget=0.0)
    assert world.engine.state.ledger.placements[world.pods["default/new"]["metadata"]["uid"]].node == "n1"


@pytest.mark.parametrize("named", ["", "mine"])
def test_when_a_podgroup_goes_its_members_stand_in_the_queue_that_a_restarted_scheduler_gives_them(named: str) -> None:
    world = World()
    world.add(node("n1", cpu="2"), queue("team"), queue("mine"), group("g", minimum=1, queue="team"))
    world.add(*(pod(f"g-{i}", cpu="1", group="g", queue=named) for i in range(3)))
    world.settle()
    assert world.engine.state.queues["team"].allocated["cpu"] == 2000
    world.remove("PodGroup", "default/g")
    left, anew = world.engine.state.queues, world.restarted().state.queues
    for name in ("team", "mine", "default"):
        assert (left[name].allocated, left[name].pending) == (anew[name].allocated, anew[name].pending)
    assert left[named or "default"].allocated["cpu"] == 2000
    assert {e.name for e in world.cycle() if isinstance(e, QueueAllocated)} == {"team", named or "default"}
    world.settle()
    assert world.node_of("g-2") == ""


def test_the_echo_of_a_queues_own_status_wakes_nobody() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000), pod("a", mib=1000), pod("b", mib=1000))
    world.settle()
    world.add({**world.queues["default"], "status": {"state": "Open", "allocated": {"volcano.sh/vgpu-memory": "2000"}}})
    world.engine.cycle(world.now)
    world.add({**world.queues["default"], "status": {"state": "Open", "allocated": {"volcano.sh/vgpu-memory": "1000"}}})
    assert not world.engine.state.scheduling_queue.dirty
    assert not world.engine.has_work(world.now)
    world.add({**world.queues["default"], "spec": {"weight": 7}})
    assert world.engine.has_work(world.now)


def test_what_a_cycle_had_no_time_to_lend_is_lent_by_the_next_one() -> None:
    """Half of the node is team b's, whose pod waits for a claim that nobody makes."""
    world = World()
    claims = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}]}
    world.add(node("n1", cpu="4"), queue("a"), queue("b"), pod("waits", cpu="4", queue="b", **claims))
    world.settle(2)
    world.add(*(pod(f"p{i}", cpu="1", queue="a") for i in range(3)))
    for _ in range(4):
        for effect in world.engine.cycle(world.now, world.rng, budget=0.0).effects:
            world.perform(effect)
    assert all(world.node_of(f"p{i}") for i in range(3))


def test_a_whole_card_of_which_nobody_can_tell_which_it_is_costs_its_queue_the_dearest_after_a_restart() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), node("n2", cards=1, mib=8000))
    world.add(queue("small", capability={"volcano.sh/vgpu-memory": "12000"}), pod("runs", cards=1, queue="small"))
    world.settle(2)
    runs = world.pods["default/runs"]
    runs["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"] = ""
    world.set_phase("runs", "Running")
    engine = world.restarted()
    engine.state.pods.put(convert(Pod, pod("next", cards=1, queue="small")))
    assert not [effect for effect in engine.cycle(world.now, world.rng).effects if isinstance(effect, Bind)], "of 12000 MiB"
