"""Rules of enqueue and of queues that the acceptance list does not name (Volcano pkg/scheduler/actions, Volcano
pkg/scheduler/plugins, Volcano pkg/controllers/queue), each as a small story."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World, scenario
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

from pumice.scheduler.engine import Engine
from pumice.wire.scheduler_conf import parse_scheduler_conf

Json = dict[str, Any]


# -- enqueue ----------------------------------------------------------------------------------------------------------


def told_of_group(world: World) -> list[tuple[str, str]]:
    return [(e.type, e.message) for e in world.events if e.kind == "PodGroup"]


def test_a_job_above_its_queues_quota_is_not_enqueued_and_its_group_is_told_once() -> None:
    world = World()
    world.add(node("n1", cpu="8"), queue("q", capability={"cpu": "1"}))
    world.add(group("g", minimum=1, queue="q", resources={"cpu": "2", "memory": "1"}), pod("a", cpu="2", group="g"))
    world.settle(10)
    assert world.groups["default/g"]["status"]["phase"] == "Pending"
    text = "queue resource quota insufficient: insufficient cpu"
    assert told_of_group(world).count(("Normal", text)) == 1
    assert world.condition("a")["message"] == text
    assert world.groups["default/g"]["status"]["conditions"][0]["message"].endswith(f". Origin reason is: {text}")


def test_a_job_above_what_the_cluster_may_promise_is_not_enqueued() -> None:
    """overcommit speaks first; its no ends the vote, so that its reason stands."""
    world = World(conf("gang", "overcommit", "proportion", "predicates"))
    world.add(node("n1", cpu="10", memory="10"), group("g", minimum=1, resources={"cpu": "13", "memory": "13"}))
    world.add(pod("a", cpu="13", group="g"))
    world.settle()
    assert ("Normal", "resource in cluster is overused: overused cpu, overused memory") in told_of_group(world)


def test_what_pods_use_is_promised_to_nobody() -> None:
    """10 of cpu by 1.2, less 8 in use by somebody else: 4 may be promised."""
    world = World(conf("gang", "overcommit", "predicates"))
    world.add(node("n1", cpu="10"), pod("theirs", cpu="8", scheduler="default-scheduler", nodeName="n1"))
    world.add(group("a", minimum=1, resources={"cpu": "5"}), group("b", minimum=1, resources={"cpu": "4"}))
    world.settle()
    assert [obj["status"]["phase"] for obj in world.groups.values()] == ["Pending", "Inqueue"]


@pytest.mark.parametrize(("factor", "phase"), [("1.2", "Inqueue"), ("1.0", "Pending"), ("0.5", "Inqueue"), ('"2"', "Inqueue")])
def test_the_overcommit_factor_says_how_much_may_be_promised(factor: str, phase: str) -> None:
    """10 of cpu; a factor below 1 counts as 1.2."""
    text = conf("gang", "overcommit", "predicates").replace(
        "  - name: overcommit\n", f"  - name: overcommit\n    arguments:\n      overcommit-factor: {factor}\n")  # fmt: skip
    world = World(text)
    world.add(node("n1", cpu="10"), group("g", minimum=2, resources={"cpu": "12"}), pod("a", cpu="6", group="g"))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == phase


def phases_in_a_queue_of_four(*objects: Json) -> list[str]:
    world = World(conf("gang", "proportion", "predicates"))
    world.add(node("n1", cpu="100"), queue("q", capability={"cpu": "4"}), *objects)
    world.settle()
    return [obj["status"]["phase"] for obj in world.groups.values()]


def test_what_is_promised_in_a_queue_counts_against_its_quota() -> None:
    groups = [group(name, minimum=1, queue="q", resources={"cpu": "3"}) for name in ("a", "b")]
    assert sorted(phases_in_a_queue_of_four(*groups)) == ["Inqueue", "Pending"]


def test_what_gated_pods_ask_for_is_not_promised_yet() -> None:
    gated = [group("a", minimum=1, queue="q", resources={"cpu": "3"}), pod("a-0", cpu="3", group="a", gated=True)]
    assert phases_in_a_queue_of_four(*gated, group("b", minimum=1, queue="q", resources={"cpu": "3"})) == [
        "Inqueue", "Inqueue"]  # fmt: skip


def test_what_a_job_holds_beyond_its_minimum_does_not() -> None:
    """a holds 3 of cpu and needs 1: for b's 2 there is room, because 2 of a's may be taken back."""
    elastic = [group("a", minimum=1, queue="q", resources={"cpu": "1"}),
               *(pod(f"a-{i}", cpu="1", group="a", nodeName="n1") for i in range(3))]  # fmt: skip
    assert phases_in_a_queue_of_four(*elastic, group("b", minimum=1, queue="q", resources={"cpu": "2"})) == [
        "Running", "Inqueue"]  # fmt: skip
    assert phases_in_a_queue_of_four(*elastic, group("c", minimum=1, queue="q", resources={"cpu": "4"})) == [
        "Running", "Pending"]  # fmt: skip


def test_what_is_promised_to_one_job_is_not_promised_to_the_next() -> None:
    world = World(conf("gang", "overcommit", "predicates"))
    world.add(node("n1", cpu="10"))
    for name in ("a", "b"):
        world.add(group(name, minimum=1, resources={"cpu": "7"}))
    world.cycle()
    phases = [world.groups[f"default/{name}"]["status"]["phase"] for name in ("a", "b")]
    assert sorted(phases) == ["Inqueue", "Pending"]


BOUNDED = conf("gang", "overcommit", "predicates") + """\
configurations:
- name: enqueue
  arguments:
    pumice.promise-for: %s
"""


def tried_without_success(text: str, **member: Any) -> World:
    """A gang of three that was started and of which two fit, and a later job for which there would be room but for that."""
    world = World(text)
    world.add(node("n1", cpu="10"), node("n2", cpu="10"), pod("small", cpu="4"))
    world.settle()
    world.add(group("gang", minimum=3, resources={"cpu": "18"}))
    world.add(*(pod(f"g-{i}", cpu="6", group="gang", **member) for i in range(3)))
    world.settle()
    world.add(group("late", minimum=1, resources={"cpu": "4"}), pod("late", cpu="4", group="late"))
    world.settle(10)
    assert not any(world.node_of(f"g-{i}") for i in range(3))
    return world


def test_a_started_job_that_found_no_room_keeps_its_promise_and_no_later_one_is_started_on_it() -> None:
    world = tried_without_success(conf("gang", "overcommit", "predicates"))
    world.settle(4000)
    assert world.groups["default/late"]["status"]["phase"] == "Pending"
    for i in range(3):
        world.delete_pod(f"g-{i}")
    world.remove("PodGroup", "default/gang")
    world.settle()
    assert world.node_of("late")


def test_a_promise_that_the_configuration_bounds_ends_in_time_and_the_later_job_starts() -> None:
    world = tried_without_success(BOUNDED % "5m")
    assert world.groups["default/late"]["status"]["phase"] == "Pending"
    world.settle(295)
    assert world.node_of("late")
    assert world.groups["default/gang"]["status"]["phase"] == "Inqueue"


def test_nothing_is_promised_to_a_job_whose_pods_no_node_can_ever_hold() -> None:
    world = tried_without_success(conf("gang", "overcommit", "predicates"), nodeSelector={"zone": "nowhere"})
    assert world.node_of("late")


def test_a_bound_for_promises_that_is_no_duration_is_said_and_none_is_used() -> None:
    (remark,) = Engine().configure(parse_scheduler_conf(BOUNDED % "soon"))
    assert remark == ("configuration enqueue: pumice.promise-for: 'soon' is no duration; write for example 1s, 500ms or 1m30s;"
                      " promises are kept for ever")  # fmt: skip


def test_a_resource_of_which_a_job_wants_nothing_is_not_asked_about() -> None:
    """cpu is promised to the last; a job that names 0 of it may start all the same."""
    text = conf("gang", "overcommit", "predicates").replace(
        "  - name: overcommit\n", "  - name: overcommit\n    arguments:\n      overcommit-factor: 1.0\n")  # fmt: skip
    world = World(text)
    world.check = lambda: None  # type: ignore[method-assign]  # a foreign pod holds more than there is
    world.add(node("n1", cpu="2"), pod("theirs", cpu="3", scheduler="default-scheduler", nodeName="n1"))
    world.add(group("g", minimum=1, resources={"cpu": "0", "memory": "1Mi"}))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Inqueue"


def test_a_limit_on_what_no_node_has_promises_none_of_it() -> None:
    world = World(conf("gang", "proportion", "predicates"))
    world.add(node("n1"), queue("q", capability={"nvidia.com/gpu": "4"}))
    world.add(group("g", minimum=1, queue="q", resources={"nvidia.com/gpu": "1"}))
    world.settle()
    assert ("Normal", "queue resource quota insufficient: insufficient nvidia.com/gpu") in told_of_group(world)
    world.add(node("n2", extra={"nvidia.com/gpu": "1"}))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Inqueue"


def test_a_group_that_names_no_minimum_of_resources_is_enqueued_at_once() -> None:
    world = World()
    world.add(node("n1", cpu="1"), group("g", minimum=9))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Inqueue"


def test_without_enqueue_allocate_starts_a_group_before_it_has_pods() -> None:
    """The Job controller makes pods only after Inqueue."""
    world = World(conf("gang", actions="allocate"))
    world.add(node("n1"), group("g", minimum=1))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Inqueue"


def test_what_was_promised_to_a_group_is_free_again_when_the_group_is_deleted() -> None:
    world = World(conf("gang", "overcommit", "predicates"))
    world.add(node("n1", cpu="10"), group("a", minimum=1, resources={"cpu": "12"}))
    world.settle()
    world.add(group("b", minimum=1, resources={"cpu": "12"}))
    world.settle()
    assert world.groups["default/b"]["status"]["phase"] == "Pending"
    world.remove("PodGroup", "default/a")
    assert world.engine.has_work(world.now)
    world.settle()
    assert world.groups["default/b"]["status"]["phase"] == "Inqueue"


def test_a_group_made_anew_under_its_old_name_starts_anew() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1"), group("g", minimum=2), pod("g-0", cpu="1", group="g"), pod("g-1", cpu="1", group="g"))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Running"
    world.remove("PodGroup", "default/g")
    again = group("g", minimum=2)
    again["metadata"]["uid"] = "group-g-again"
    for name in ("g-0", "g-1"):
        world.delete_pod(name)
    world.add(again)
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Inqueue"


def test_a_group_of_nobody_is_complete_at_once() -> None:
    world = World()
    world.add(group("e", minimum=0))
    world.settle()
    assert world.groups["default/e"]["status"]["phase"] == "Completed"


# -- queues (11.5, 15) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugins", [(), ("predicates",), ("gang", "proportion")])
@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown"])
def test_a_queue_that_is_not_open_starts_nothing_whatever_the_plugins(state: str, plugins: tuple[str, ...]) -> None:
    world = World(conf(*plugins))
    world.add(node("n1"), queue("q", state=state), pod("a", cpu="1", queue="q"), pod("idle", queue="q"))
    world.settle()
    assert (world.node_of("a"), world.node_of("idle")) == ("", "")
    assert f"queue q is {state}" in world.condition("a")["message"]


def test_a_queue_without_a_state_counts_as_open() -> None:
    scenario("no state yet", nodes=[queue("q", state=""), node("n1")], arriving=[pod("a", cpu="1", queue="q")],
             expect={"a": "n1"})  # fmt: skip


def test_what_a_queue_is_guaranteed_is_kept_free_for_it() -> None:
    world = World()
    world.add(node("n1", cpu="10", pods=1000), queue("kept", guarantee={"cpu": "4"}), queue("greedy", weight=9))
    world.add(*(pod(f"g-{i}-x", cpu="1", queue="greedy") for i in range(20)))
    world.add(pod("waits", cpu="20", queue="kept"))
    world.settle()
    assert sum(bool(world.node_of(f"g-{i}-x")) for i in range(20)) == 6
    world.add(*(pod(f"k-{i}-x", cpu="1", queue="kept") for i in range(4)))
    world.settle()
    assert sum(bool(world.node_of(f"k-{i}-x")) for i in range(4)) == 4


def test_a_queue_that_has_all_it_deserves_is_passed_over_and_its_pods_hear_that() -> None:
    world = World(conf("proportion", "predicates"))
    world.add(node("n1", cpu="8"), queue("q", capability={"cpu": "2"}), pod("holder", cpu="2", queue="q"))
    world.settle()
    world.add(pod("more", cpu="1", queue="q"))
    world.settle()
    assert world.condition("more")["message"] == "queue q is overused"


def test_the_queue_of_higher_priority_goes_first() -> None:
    world = World(conf("proportion", "predicates"))
    world.add(node("n1", cpu="3"), node("n2", cpu="1"), queue("a"), queue("b", priority=5))
    world.add(pod("a", cpu="2", queue="a"), pod("b", cpu="2", queue="b"))
    world.settle()
    assert (world.node_of("b"), world.node_of("a")) == ("n1", "")


def test_a_plugin_that_knows_no_tree_orders_queues_as_ever_though_it_is_asked_for_one() -> None:
    world = World(conf("proportion", "predicates").replace("proportion\n", "proportion\n    enableHierarchy: true\n"))
    world.add(node("n1", cpu="3"), node("n2", cpu="1"), queue("a"), queue("b", priority=5))
    world.add(pod("a", cpu="2", queue="a"), pod("b", cpu="2", queue="b"))
    world.settle()
    assert (world.node_of("b"), world.node_of("a")) == ("n1", "")


# -- whole devices ----------------------------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"


def sharing(gpus: int, *pods: Json, weights: tuple[int, int] = (1, 1)) -> World:
    world = World(conf("gang", "proportion", "predicates"))
    world.add(node("n1", extra={GPU: str(gpus)}), queue("a", weight=weights[0]), queue("b", weight=weights[1]), *pods)
    world.settle()
    return world


def whole(name: str, at: str, gpus: int = 1, **more: Any) -> Json:
    return pod(name, queue=at, limits={GPU: str(gpus)}, **more)


def test_one_gpu_and_two_queues_somebody_has_it_and_they_take_turns() -> None:
    world = sharing(1, *(whole(f"{at}{i}", at) for at in "ab" for i in range(3)))
    turns = []
    for _ in range(6):
        (runs,) = [name for name, where in world.placements().items() if where]
        turns.append(runs[0])
        world.delete_pod(runs)
        world.settle()
    assert turns in (list("ababab"), list("bababa"))


def test_of_what_whole_pods_leave_over_the_queue_whose_share_lacks_more_gets_it_first() -> None:
    world = sharing(1, whole("light", "a"), whole("heavy", "b"), weights=(1, 3))
    assert (world.node_of("light"), world.node_of("heavy")) == ("", "n1")


def test_two_queues_whose_pods_want_more_than_their_share_do_not_block_each_other() -> None:
    world = sharing(8, whole("a", "a", 8), whole("b", "b", 8))
    assert sorted((world.node_of("a"), world.node_of("b"))) == ["", "n1"]


def test_two_gangs_larger_than_their_shares_do_not_block_each_other() -> None:
    gangs = [obj for at in "ab" for obj in (group(at, minimum=2, queue=at), *(whole(f"{at}{i}", at, group=at) for i in range(2)))]
    world = sharing(2, *gangs)
    assert sorted({name[0] for name, where in world.placements().items() if where}) in (["a"], ["b"])
    assert sum(bool(where) for where in world.placements().values()) == 2


@pytest.mark.parametrize("idle", [
    {"gated": True}, {"nodeSelector": {"zone": "nowhere"}}, {"group": "absent"}, {"group": "short"},
])  # fmt: skip
def test_who_cannot_start_whatever_is_released_withholds_nothing_from_others(idle: Json) -> None:
    """Four GPUs; queue a wants four that it cannot have."""
    world = sharing(4, group("short", minimum=9, queue="a"), *(whole(f"a{i}", "a", **idle) for i in range(4)))
    world.add(*(whole(f"b{i}", "b") for i in range(4)))
    world.settle()
    assert [world.node_of(f"b{i}") for i in range(4)] == ["n1"] * 4


def test_what_a_queue_can_claim_within_its_share_is_lent_to_nobody_without_reclaim() -> None:
    """b's pods are within its share and wait for two GPUs of one node: a has its four and gets no fifth."""
    world = World(conf("gang", "proportion", "predicates"))
    world.add(*(node(f"n{i}", extra={GPU: "2"}) for i in range(4)), queue("a"), queue("b"))
    world.add(*(whole(f"a{i}", "a", nodeSelector={"kubernetes.io/hostname": f"n{i}"}) for i in range(4)))
    world.settle()
    world.add(*(whole(f"b{i}", "b", 2) for i in range(2)), *(whole(f"late{i}", "a") for i in range(4)))
    world.settle()
    assert not any(world.node_of(name) for name in ("b0", "b1", "late0", "late1", "late2", "late3"))
    assert world.condition("late0")["message"] == "queue a is overused"
    world.delete_pod("b0")
    world.settle()
    assert sum(bool(world.node_of(f"late{i}")) for i in range(4)) == 2
    world.delete_pod("b1")
    world.settle()
    assert all(world.node_of(f"late{i}") for i in range(4))


def test_a_pod_that_no_node_could_hold_asks_for_its_share_again_when_a_node_can() -> None:
    world = sharing(1, whole("a", "a", 2), whole("b", "b"))
    assert (world.node_of("a"), world.node_of("b")) == ("", "n1")
    world.add(node("n2", extra={GPU: "2"}))
    world.settle()
    assert world.node_of("a") == "n2"


def test_a_group_that_moves_to_another_queue_takes_what_it_holds_along_and_the_parents_count_it_once() -> None:
    world = World()
    world.add(node("n1", cpu="8"), queue("root"), queue("team", parent="root"))
    world.add(queue("a", parent="team"), queue("b", parent="root"))
    world.add(group("g", minimum=1, queue="a"), pod("p", cpu="2", group="g"), pod("other", cpu="1", queue="b"))
    world.settle()

    def held() -> dict[str, str]:
        return {name: obj["status"].get("allocated", {}).get("cpu", "0") for name, obj in world.queues.items()}

    assert held() == {"default": "0", "root": "3", "team": "2", "a": "2", "b": "1"}
    world.groups["default/g"]["spec"]["queue"] = "b"
    world.add(world.groups["default/g"])
    world.settle()
    assert held() == {"default": "0", "root": "3", "team": "0", "a": "0", "b": "3"}
    world.queues["b"]["spec"]["parent"] = "team"
    world.add(world.queues["b"])
    world.settle()
    assert held() == {"default": "0", "root": "3", "team": "3", "a": "0", "b": "3"}
