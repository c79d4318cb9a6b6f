"""PodGroups of bare pods and the states of queues: pure reconciling, and the daemon that carries it out."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import pod, queue
from kit.virtual_time import VirtualClock, run_virtually

from pumice.effects.vocabulary import Create, Delete, Event, Patch
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice.wire.names import GROUP_NAME
from pumice.wire.objects import Pod, convert
from pumice.wire.volcano import Queue
from pumice_jobs.apps.controller.daemon import Controller, Settings
from pumice_jobs.controllers.podgroup import (
    SCALED_KINDS,
    group_body,
    min_member,
    passed_on,
    reconcile_owner,
    reconcile_pod,
)
from pumice_jobs.controllers.queue import (
    command,
    event,
    mark_closed_by_parent,
    next_state,
    reconcile_queue,
    set_parent,
    set_state,
)

OURS = ("volcano",)


def bare(**parts: Any) -> Pod:
    made = pod("a", cpu="1", **parts)
    made["metadata"]["uid"] = "uid-a"
    return convert(Pod, made)


def test_a_bare_pod_gets_a_group_of_one_and_its_name() -> None:
    create, annotate = reconcile_pod(bare(queue="team"), group_exists=False, owner_annotations={}, scheduler_names=OURS, now=0.0)
    assert isinstance(create, Create)
    assert create.obj["metadata"]["name"] == "podgroup-uid-a"
    assert create.obj["spec"]["minMember"] == 1
    assert create.obj["spec"]["queue"] == "team"
    assert create.obj["spec"]["minResources"]["cpu"] == "1"
    assert create.obj["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert annotate == Patch(
        kinds.PODS, "default", "a", {"metadata": {"annotations": {GROUP_NAME: "podgroup-uid-a"}}}, "uid-a")  # fmt: skip


def test_a_group_that_comes_behind_the_binding_is_born_standing() -> None:
    found = {}
    for node, phase, minimum in ((None, "Pending", "1"), ("n1", "Pending", "1"), ("n1", "Running", "0"), ("n1", "Running", "2")):
        made = pod("a", cpu="1", **({"nodeName": node} if node else {}))
        made["status"]["phase"] = phase
        create, _ = reconcile_pod(
            convert(Pod, made), group_exists=False, scheduler_names=OURS, now=1_800_000_000.0,
            owner_annotations={"scheduling.volcano.sh/group-min-member": minimum},
        )  # fmt: skip
        assert isinstance(create, Create)
        found[node, phase, minimum] = create.obj["status"]
    conditions = [{"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled",
                   "lastTransitionTime": "2027-01-15T08:00:00Z"}]  # fmt: skip
    assert found == {
        (None, "Pending", "1"): {"phase": "Pending"},
        ("n1", "Pending", "1"): {"phase": "Running", "conditions": conditions, "running": 0},
        ("n1", "Running", "0"): {"phase": "Running", "conditions": conditions, "running": 1},
        ("n1", "Running", "2"): {"phase": "Pending"},
    }


def test_pods_of_one_owner_share_its_group() -> None:
    made = pod("a", cpu="1")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    annotations = {"scheduling.volcano.sh/group-min-member": "3", "volcano.sh/preemptable": "true", "other": "x"}
    body = group_body(convert(Pod, made), annotations)
    assert body["metadata"]["name"] == "podgroup-rs-uid"
    assert body["metadata"]["annotations"] == {"volcano.sh/preemptable": "true"}
    assert (body["spec"]["minMember"], body["spec"]["minResources"]["cpu"]) == (3, "3")


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("0", 0), ("-1", 1), ("many", 1), ("", 1), ("9999999999", 1)])
def test_the_owners_wish_for_a_minimum_is_an_integer_of_at_least_zero(text: str, number: int) -> None:
    assert min_member({"scheduling.volcano.sh/group-min-member": text}) == number


def test_a_group_asks_for_what_its_pods_take_with_sidecars_and_overhead() -> None:
    made = pod("a", cpu="1", overhead={"cpu": "100m"}, initContainers=[
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        {"name": "early", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}])  # fmt: skip
    wanted = group_body(convert(Pod, made), {"scheduling.volcano.sh/group-min-member": "2"})["spec"]["minResources"]
    assert (wanted["cpu"], wanted["requests.cpu"], wanted["memory"]) == ("9200m", "9200m", str(2 * 2**30))
    assert (wanted["limits.cpu"], wanted["pods"], wanted["count/pods"]) == ("2200m", "2", "2")


def test_annotations_that_are_not_inherited_still_say_how_many_pods_belong_together() -> None:
    said = {"volcano.sh/preemptable": "true", "scheduling.volcano.sh/group-min-member": "3"}
    assert passed_on(said, inherit=True) == said
    assert passed_on(said, inherit=False) == {"scheduling.volcano.sh/group-min-member": "3"}


OWNER = {"metadata": {"uid": "rs-uid"}, "spec": {"replicas": 2}}


def group_of(found: Pod, **changes: Any) -> dict[str, Any]:
    made = group_body(found, {})
    return {**made, "metadata": {**made["metadata"], "namespace": "default"}, "spec": {**made["spec"], **changes}}


def test_an_owner_scaled_to_nothing_keeps_no_group() -> None:
    none = {**OWNER, "spec": {"replicas": 0}}
    assert reconcile_owner(none, group_of(bare()), None, {}) == [Delete(volcano.POD_GROUPS, "default", "podgroup-uid-a")]
    assert reconcile_owner(none, None, None, {}) == []


def test_a_group_follows_its_owner_and_a_current_pod() -> None:
    assert reconcile_owner(OWNER, group_of(bare()), bare(), {}) == []
    assert reconcile_owner(OWNER, group_of(bare()), None, {"scheduling.volcano.sh/group-min-member": "3"}) == []
    (update,) = reconcile_owner(OWNER, group_of(bare()), bare(), {"scheduling.volcano.sh/group-min-member": "3",
                                                                  "volcano.sh/preemptable": "true"})  # fmt: skip
    assert isinstance(update, Patch)
    assert (update.body["spec"]["minMember"], update.body["spec"]["minResources"]["cpu"]) == (3, "3")
    assert update.body["metadata"] == {"annotations": {"volcano.sh/preemptable": "true"}}


@pytest.mark.parametrize("parts", [{"group": "mine"}, {"scheduler": "default-scheduler"},
                                   {"annotations": {"scheduling.volcano.sh/group-name": "mine"}}])  # fmt: skip
def test_pods_that_name_a_group_or_are_not_ours_are_left_alone(parts: dict[str, Any]) -> None:
    assert reconcile_pod(bare(**parts), group_exists=False, owner_annotations={}, scheduler_names=OURS, now=0.0) == []


STATES = [("", 0, "Open"), ("", 3, "Open"), ("Open", 3, "Open"), ("Closing", 2, "Closing"), ("Closing", 0, "Closed"),
          ("Closed", 0, "Closed"), ("Closed", 1, "Closed"), ("Strange", 0, "Unknown")]  # fmt: skip


@pytest.mark.parametrize(("state", "groups", "after"), STATES)
def test_the_state_of_a_queue(state: str, groups: int, after: str) -> None:
    assert next_state(state, groups) == after


def test_a_new_queue_gets_its_parent_and_opens() -> None:
    assert reconcile_queue(convert(Queue, queue("team", state="")), 0) == [
        set_parent("team", "root"), set_state("team", "Open")]  # fmt: skip
    assert reconcile_queue(convert(Queue, queue("root", state="Open")), 0) == []


def tree(**states: str) -> dict[str, Queue]:
    """Queues below one another, each the child of the one before it."""
    parents = dict(zip(states, ["root", *states], strict=False))
    found = {name: convert(Queue, queue(name, parent=parents[name], state=state)) for name, state in states.items()}
    return {"root": convert(Queue, queue("root")), **found}


def test_closing_a_queue_closes_those_below_it_and_opening_it_opens_those_again_and_no_others() -> None:
    queues = tree(team="Open", group="Open", idle="Closed")
    assert command("CloseQueue", "team", queues, {"group": 2}.get) == [  # type: ignore[arg-type]
        set_state("team", "Closed"), mark_closed_by_parent("group", closed=True), set_state("group", "Closing"),
        event(queues["team"], "Normal", "CloseQueue", "Close queue succeed"),
    ]  # fmt: skip
    closed = tree(team="Closed", group="Closing", idle="Closed")
    closed["group"].metadata.annotations["volcano.sh/closed-by-parent"] = "true"
    assert command("OpenQueue", "team", closed, lambda name: 0) == [
        set_state("team", "Open"), mark_closed_by_parent("group", closed=False), set_state("group", "Open")]  # fmt: skip


def test_what_cannot_be_done_with_a_queue_is_said_on_it() -> None:
    queues = tree(team="Closed", group="Closed")
    for action, name, words in (("OpenQueue", "group", "its parent team is Closed"), ("CloseQueue", "root", "cannot be closed"),
                                ("Restart", "team", "none of a queue")):  # fmt: skip
        (reported,) = command(action, name, queues, lambda name: 0)
        assert isinstance(reported, Event)
        assert (reported.type, words in reported.message) == ("Warning", True)


def test_queues_that_are_their_own_ancestors_are_closed_once() -> None:
    queues = {name: convert(Queue, queue(name, parent=parent)) for name, parent in (("a", "b"), ("b", "a"))}
    closed = [act for act in command("CloseQueue", "a", queues, lambda name: 0) if isinstance(act, Patch) and act.subresource]
    assert closed == [set_state("a", "Closed"), set_state("b", "Closed")]


def test_the_daemon_keeps_groups_and_queues() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster: FaultyCluster = await faulty_cluster(clock)
        failures = [3]

        def fault(verb: str, path: str) -> ApiError | None:
            if verb == "POST" and path.endswith("/podgroups") and failures[0]:
                failures[0] -= 1
                return ApiError(500, "InternalError", "injected")
            return None

        cluster.fault = fault
        stop = asyncio.Event()
        running = Controller(Settings(listen="127.0.0.1:0"), cluster, clock, random.Random(1), stop)
        task = asyncio.create_task(running.run())
        body = {"metadata": {"name": "a"}, "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]}}
        await cluster.create(kinds.PODS, body, "default")
        await clock.sleep(10)
        found = (await cluster.pods())["a"]
        (group,) = (await cluster.list(volcano.POD_GROUPS))["items"]
        assert found["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
        assert group["metadata"]["name"] == f"podgroup-{found['metadata']['uid']}"
        queues = {q["metadata"]["name"]: q for q in (await cluster.list(volcano.QUEUES))["items"]}
        assert queues["default"]["spec"]["parent"] == "root"
        assert {q["status"]["state"] for q in queues.values()} == {"Open"}
        assert 'volcano_queue_pod_group_pending_count{queue_name="default"} 1' in running.metrics_text()
        stop.set()
        await task

    run_virtually(story())


def test_a_group_that_is_refused_is_asked_for_rarely_and_its_pod_is_not_told_of_it() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster: FaultyCluster = await faulty_cluster(clock)
        requested: list[float] = []

        def fault(verb: str, path: str) -> ApiError | None:
            if verb != "POST" or not path.endswith("/podgroups"):
                return None
            requested.append(clock.monotonic())
            return (
                ApiError(403, "Forbidden", "can only submit PodGroup to queue with state `Open`")
                if len(requested) < 3
                else None
            )

        cluster.fault = fault
        stop = asyncio.Event()
        task = asyncio.create_task(Controller(Settings(listen="127.0.0.1:0"), cluster, clock, random.Random(1), stop).run())
        body = {"metadata": {"name": "a"}, "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]}}
        await cluster.create(kinds.PODS, body, "default")
        await clock.sleep(500)
        assert len(requested) == 2
        assert "annotations" not in (await cluster.pods())["a"]["metadata"]
        await clock.sleep(200)
        assert "scheduling.k8s.io/group-name" in (await cluster.pods())["a"]["metadata"]["annotations"]
        stop.set()
        await task

    run_virtually(story())


def test_the_group_of_a_replicaset_follows_it_and_goes_when_it_is_scaled_to_nothing() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster: FaultyCluster = await faulty_cluster(clock)
        stop = asyncio.Event()
        running = Controller(Settings(listen="127.0.0.1:0"), cluster, clock, random.Random(1), stop)
        task = asyncio.create_task(running.run())
        template = {"metadata": {"labels": {"app": "x"}},
                    "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]}}  # fmt: skip
        sets = SCALED_KINDS[0]
        body = {"metadata": {"name": "rs"}, "spec": {"replicas": 1, "template": template,
                                                     "selector": {"matchLabels": {"app": "x"}}}}  # fmt: skip
        uid = (await cluster.create(sets, body, "default"))["metadata"]["uid"]
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": True}
        member = {"metadata": {"name": "a", "labels": {"app": "x"}, "ownerReferences": [reference]}, "spec": template["spec"]}
        await cluster.create(kinds.PODS, member, "default")
        await clock.sleep(5)

        async def minimums() -> list[int]:
            return [g["spec"]["minMember"] for g in (await cluster.list(volcano.POD_GROUPS))["items"]]

        assert await minimums() == [1]
        wish = {"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": "2"}}}
        await cluster.patch(sets, "rs", wish, "default")
        await clock.sleep(5)
        assert await minimums() == [2]
        await cluster.patch(sets, "rs", {"spec": {"replicas": 0}}, "default")
        await clock.sleep(5)
        assert await minimums() == []
        stop.set()
        await task

    run_virtually(story())
