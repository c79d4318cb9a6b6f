"""Kubernetes' own Jobs that say what a failure and what a success is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.effects.vocabulary import Create, Patch
from pumice.ports.cluster import Json, Resource
from pumice.wire.kinds import JOBS, PODS
from pumice_lab.controllers.common import View
from pumice_lab.controllers.job import failure_rule, reconcile, success_rule
from pumice_lab.controllers.job_pods import Indexes
from pumice_lab.runtime.spec import ContainerSpec

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES, IGNORED = "batch.kubernetes.io/job-index-failure-count", "batch.kubernetes.io/job-index-ignored-failure-count"
INDEXED = {"completionMode": "Indexed"}


def exits(spec: ContainerSpec) -> tuple[float, int] | None:
    """``exit 0 42 after 5``: index 0 with 0, index 1 with 42, the last of them also for the others, in five seconds."""
    if spec.argv[0] != "exit":
        return None
    codes, _, seconds = " ".join(spec.argv[1:]).partition(" after ")
    index = int(spec.env.get("JOB_COMPLETION_INDEX", "0"))
    wanted = codes.split()
    code = wanted[min(index, len(wanted) - 1)]
    return None if code == "never" else (float(seconds or 1), int(code))


async def job(cluster: Cluster, command: str, policy: str = "Never", **spec: Any) -> None:
    cluster.runtime.lifetime = exits
    await cluster.make(JOBS, "Job", "j", {"template": template(*command.split(), restartPolicy=policy), **spec})


async def status_of(cluster: Cluster) -> Json:
    status: Json = (await cluster.kube.get(JOBS, "j", "default"))["status"]
    return status


def reported(status: Json) -> list[tuple[str, str]]:
    return [(c["type"], c["reason"]) for c in status.get("conditions") or () if c["status"] == "True"]


def on_codes(action: str, *codes: int, operator: str = "In", **more: Any) -> Json:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes), **more}}


def test_a_code_that_fails_the_job_ends_its_other_pods_and_is_told(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 42 never after 2", completions=2, parallelism=2, **INDEXED,
                  podFailurePolicy={"rules": [on_codes("Ignore", 7), on_codes("FailJob", 42, containerName="c")]})
        await cluster.settle(8)
        status = await status_of(cluster)
        assert reported(status) == [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]
        (first,) = [p for p in await cluster.pods() if p["metadata"]["labels"][INDEX] == "0"]
        assert status["conditions"][-1]["message"] == (
            f"Container c for pod default/{first['metadata']['name']} failed with exit code 42 matching FailJob rule at index 1")
        assert (status["failed"], status.get("active"), status["terminating"]) == (2, None, 0)
        assert not await cluster.pods("Running")

    with_controllers(work)


def test_a_failure_that_is_ignored_costs_nothing_of_the_limit(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 7", backoffLimit=0, podFailurePolicy={"rules": [on_codes("Ignore", 7)]})
        await cluster.settle(35)
        assert len(await cluster.pods("Failed")) == 3
        status = await status_of(cluster)
        assert (status.get("failed"), reported(status)) == (None, [])

    with_controllers(work)


def test_a_job_that_is_asked_to_end_first_says_so_and_has_failed_when_its_last_pod_has_ended() -> None:
    body = a_job(backoffLimit=0)
    actions = reconcile(body, [a_pod("Failed", code=1), a_pod("Running")], 100.0)
    said = status_written(actions)
    assert reported(said) == [("FailureTarget", "BackoffLimitExceeded")]
    assert (said["terminating"], said["failed"], said["active"]) == (1, 2, None)
    body["status"] = said
    ending = a_pod("Running", deleting=True)
    assert reconcile(body, [a_pod("Failed", code=1), ending], 101.0) == []
    said = status_written(reconcile(body, [a_pod("Failed", code=1)], 102.0))
    assert reported(said) == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
    assert said["failed"] == 2


def test_a_job_of_another_controller_is_left_alone(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 0", managedBy="example.com/other")
        await cluster.settle(5)
        assert (await cluster.pods(), (await status_of(cluster))) == ([], {})

    with_controllers(work)
    assert reconcile(a_job(managedBy="kubernetes.io/job-controller"), [], 1.0)


@pytest.mark.parametrize(("rule", "pod", "met"), [
    (on_codes("Count", 1, 2), {"code": 2}, True),
    (on_codes("Count", 1, 2), {"code": 3}, False),
    (on_codes("Count", 1, 2, operator="NotIn"), {"code": 3}, True),
    (on_codes("Count", 1, operator="NotIn"), {"code": 0}, False),
    (on_codes("Count", 2, containerName="other"), {"code": 2}, False),
    ({"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, {"target": "True"}, True),
    ({"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, {"target": "False"}, False),
])  # fmt: skip
def test_a_rule_is_met_by_codes_or_by_conditions(rule: Json, pod: Json, met: bool) -> None:
    assert bool(failure_rule({"podFailurePolicy": {"rules": [rule]}}, a_pod("Failed", **pod))) is met


def test_containers_that_restart_themselves_stop_at_the_limit(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 1", policy="OnFailure", backoffLimit=1)
        await cluster.settle(60)
        assert reported(await status_of(cluster))[-1] == ("Failed", "BackoffLimitExceeded")

    with_controllers(work)


def test_an_index_that_fails_too_often_is_given_up_and_the_others_go_on(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 0 1 0", completions=3, parallelism=3, **INDEXED, backoffLimitPerIndex=1)
        await cluster.settle(8)
        status = await status_of(cluster)
        assert (status["completedIndexes"], status["failedIndexes"], reported(status)) == ("0,2", "", [])
        await cluster.settle(20)
        status = await status_of(cluster)
        assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0,2", "1", 2)
        assert reported(status) == [("FailureTarget", "FailedIndexes"), ("Failed", "FailedIndexes")]
        failed = await cluster.pods("Failed")
        assert sorted(p["metadata"]["annotations"][FAILURES] for p in failed) == ["0", "1"]

    with_controllers(work)


def test_a_job_gives_up_when_too_many_indexes_have_failed(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        rules = [on_codes("FailIndex", 3)]
        await job(cluster, "exit 3 3 never", completions=3, parallelism=3, **INDEXED, backoffLimitPerIndex=5,
                  maxFailedIndexes=1, podFailurePolicy={"rules": rules})
        await cluster.settle(8)
        status = await status_of(cluster)
        assert (status["failedIndexes"], reported(status)[-1]) == ("0,1", ("Failed", "MaxFailedIndexesExceeded"))

    with_controllers(work)


def test_a_new_pod_of_an_index_knows_what_failed_before_it_and_what_was_ignored() -> None:
    body = a_job(completions=1, parallelism=1, **INDEXED, backoffLimitPerIndex=5, backoffLimit=2**31 - 1,
                 podFailurePolicy={"rules": [on_codes("Ignore", 7)]})
    before = a_pod("Failed", code=7, index=0, **{FAILURES: "2"})
    (made,) = [a for a in reconcile(body, [before], 2e9) if isinstance(a, Create)]
    annotations = made.obj["metadata"]["annotations"]
    assert annotations[FAILURES] == "2"
    assert annotations[IGNORED] == "1"


def test_an_index_has_succeeded_or_failed_and_never_both() -> None:
    body = a_job(completions=2, **INDEXED, backoffLimitPerIndex=0, backoffLimit=2**31 - 1)
    late = [a_pod("Failed", code=1, index=0), a_pod("Succeeded", code=0, index=0)]
    said = status_written(reconcile(body, late, 2e9))
    assert (said["completedIndexes"], said["failedIndexes"]) == ("0", "")
    body["status"] = {"failedIndexes": "0"}
    assert status_written(reconcile(body, late, 2e9))["completedIndexes"] is None


def test_a_job_is_a_success_when_its_leader_is(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 0 never after 2", completions=3, parallelism=3, **INDEXED,
                  successPolicy={"rules": [{"succeededIndexes": "0"}]})
        await cluster.settle(8)
        status = await status_of(cluster)
        assert reported(status) == [("SuccessCriteriaMet", "SuccessPolicy"), ("Complete", "SuccessPolicy")]
        assert status["conditions"][-1]["message"] == "Matched rules at index 0"
        assert (status["completedIndexes"], status["succeeded"], status.get("failed")) == ("0", 1, None)
        assert not await cluster.pods("Running")

    with_controllers(work)


@pytest.mark.parametrize(("rule", "done", "met"), [
    ({"succeededCount": 2}, {1, 5}, True),
    ({"succeededCount": 3}, {1, 5}, False),
    ({"succeededIndexes": "0-2"}, {0, 1, 2, 7}, True),
    ({"succeededIndexes": "0-2"}, {0, 2, 7}, False),
    ({"succeededIndexes": "0-2,8", "succeededCount": 2}, {0, 7, 8}, True),
    ({"succeededIndexes": "0-2,8", "succeededCount": 2}, {0, 7}, False),
    ({"succeededCount": 0}, set(), False),
    ({"succeededIndexes": "0-1999999999"}, {0, 1}, False),
])  # fmt: skip
def test_a_rule_of_success_names_indexes_or_counts_or_both(rule: Json, done: set[int], met: bool) -> None:
    spec = {"completions": 2_000_000_000, "successPolicy": {"rules": [rule]}}
    assert bool(success_rule(spec, Indexes.of(done))) is met


@pytest.mark.parametrize(("policy", "made"), [("TerminatingOrFailed", 1), ("Failed", 0)])
def test_a_pod_that_is_ending_is_replaced_at_once_or_when_it_has_ended(policy: str, made: int) -> None:
    body = a_job(podReplacementPolicy=policy)
    actions = reconcile(body, [a_pod("Running", deleting=True)], 1.0)
    assert sum(isinstance(action, Create) for action in actions) == made
    assert status_written(actions)["terminating"] == 1
    assert any(isinstance(action, Create) for action in reconcile(body, [], 1.0))


def test_what_is_suspended_has_not_failed(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit never", backoffLimit=0)
        await cluster.settle(3)
        await cluster.kube.patch(JOBS, "j", {"spec": {"suspend": True}}, "default")
        await cluster.settle(40)
        status = await status_of(cluster)
        assert (await cluster.pods(), status.get("failed"), reported(status)) == ([], None, [("Suspended", "JobSuspended")])

    with_controllers(work)


def test_an_index_that_once_succeeded_stays_so_when_its_pod_is_deleted(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit 0 never", completions=2, parallelism=2, **INDEXED)
        await cluster.settle(5)
        (done,) = await cluster.pods("Succeeded")
        await cluster.kube.delete(PODS, done["metadata"]["name"], "default")
        await cluster.settle(5)
        assert (await status_of(cluster))["completedIndexes"] == "0"
        assert len(await cluster.pods()) == 1

    with_controllers(work)


def test_fewer_completions_end_the_pods_of_the_indexes_that_went(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "exit never", completions=3, parallelism=3, **INDEXED)
        await cluster.settle(3)
        await cluster.kube.patch(JOBS, "j", {"spec": {"completions": 1, "parallelism": 1}}, "default")
        await cluster.settle(5)
        assert [p["metadata"]["labels"][INDEX] for p in await cluster.pods("Running")] == ["0"]

    with_controllers(work)


@pytest.mark.parametrize(("text", "completions", "read"), [
    ("0-2,5", 10, "0-2,5"), ("0-9", 5, "0-4"), ("x,3,4-y,1,,-", 10, "1,3"), (None, 3, ""), ("3,4,5", 10, "3-5"), ("7", 3, ""),
])  # fmt: skip
def test_indexes_are_read_whatever_stands_there(text: str | None, completions: int, read: str) -> None:
    indexes = Indexes.parse(text, completions)
    assert str(indexes) == read
    assert all((i in indexes) is (i not in list(indexes.others(completions))) for i in range(completions))


def a_job(**spec: Any) -> Json:
    meta = {"name": "j", "namespace": "default", "uid": "u"}
    whole = {"completions": 1, "parallelism": 1, "backoffLimit": 6, "template": template(restartPolicy="Never"), **spec}
    return {"metadata": meta, "spec": whole, "status": {}}


def a_pod(phase: str, code: int | None = None, index: int | None = None, target: str = "", deleting: bool = False,
          **annotations: str) -> View:
    if index is not None:
        annotations[INDEX] = str(index)
    meta = {"name": "p", "namespace": "default", "uid": f"p-{phase}", "annotations": annotations,
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"uid": "u", "controller": True}],
            **({"deletionTimestamp": "2026-01-01T00:00:10Z"} if deleting else {})}  # fmt: skip
    ended = {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:00:05Z"}} if code is not None else {"running": {}}
    return {"metadata": meta, "spec": {}, "status": {
        "phase": phase, "containerStatuses": [{"name": "c", "state": ended}],
        "conditions": [{"type": "DisruptionTarget", "status": target}] if target else []}}  # fmt: skip


def status_written(actions: list[Any]) -> Json:
    (patch,) = [action for action in actions if isinstance(action, Patch)]
    status: Json = patch.body["status"]
    return status


@pytest.mark.parametrize("spec", [{}, {"completions": 2**31 - 1}, {**INDEXED, "completions": 2**31 - 1},
                                  {**INDEXED, "completions": 2**31 - 1, "backoffLimitPerIndex": 1}], ids=str)
def test_a_job_of_any_size_asks_for_five_hundred_pods_at_a_time(spec: Json) -> None:
    asked: Json = {"parallelism": 2**31 - 1, "template": template(), **spec}
    meta = {"name": "j", "namespace": "default", "uid": "u"}
    made = [a for a in reconcile({"metadata": meta, "spec": asked}, [], 0.0) if isinstance(a, Create)]
    assert len(made) == 500


def test_a_job_of_two_billion_pods_keeps_nobody_waiting_and_goes_with_its_pods(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(Resource("", "v1", "resourcequotas"), "ResourceQuota", "few", {"hard": {"pods": "20"}})
        cluster.runtime.lifetime = exits
        huge = {"template": template(restartPolicy="Never"), "parallelism": 2**31 - 1, "completions": 2**31 - 1}
        await cluster.make(JOBS, "Job", "huge", huge)
        await cluster.settle(5)
        assert len(await cluster.pods()) == 20
        sent = cluster.kube.requests["POST"]
        await cluster.settle(10)
        assert cluster.kube.requests["POST"] - sent <= 15, "the rest of a burst is not tried where its first pod is refused"
        await cluster.kube.delete(JOBS, "huge", "default", propagation="Background")
        await cluster.settle(40)
        assert not await cluster.pods()

    with_controllers(work)
