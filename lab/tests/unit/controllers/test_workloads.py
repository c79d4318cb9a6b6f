"""Deployment, ReplicaSet, DaemonSet and Job as kubectl users know them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.effects.vocabulary import Event, Patch
from pumice.ports.cluster import Json, Resource
from pumice.wire.kinds import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NETWORK_POLICIES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
)
from pumice_lab.controllers.common import share_of, template_hash
from pumice_lab.controllers.daemonset import fits
from pumice_lab.controllers.job import reconcile as reconcile_job
from pumice_lab.controllers.job_pods import Indexes

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
SELECTOR = {"matchLabels": {"app": "x"}}
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses")


async def deployment(cluster: Cluster, replicas: int = 3, **more: Any) -> None:
    spec = {"replicas": replicas, "selector": SELECTOR, "template": template(), **more}
    await cluster.make(DEPLOYMENTS, "Deployment", "d", spec)


async def job(cluster: Cluster, *command: str, name: str = "j", policy: str = "Never", **spec: Any) -> None:
    await cluster.make(JOBS, "Job", name, {"template": template(*command, restartPolicy=policy), **spec})


def test_a_deployment_has_its_pods_and_says_so(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster)
        await cluster.settle()
        status = (await cluster.kube.get(DEPLOYMENTS, "d", "default"))["status"]
        assert {key: status[key] for key in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")} == {
            "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
        assert {c["type"]: c["status"] for c in status["conditions"]} == {"Available": "True", "Progressing": "True"}
        assert len(await cluster.pods("Running")) == 3
        events = (await cluster.kube.list(EVENTS, "default"))["items"]
        reported = [(e["involvedObject"]["kind"], e["reason"]) for e in events if e["involvedObject"]["kind"] != "Pod"]
        assert sorted(reported) == [("Deployment", "ScalingReplicaSet"), *[("ReplicaSet", "SuccessfulCreate")] * 3]

    with_controllers(work)


def test_scaling_makes_and_removes_pods(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 2)
        await cluster.settle()
        await cluster.kube.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 5}}, "default")
        await cluster.settle()
        assert len(await cluster.pods("Running")) == 5
        await cluster.kube.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 1}}, "default")
        await cluster.settle()
        assert len(await cluster.pods()) == 1

    with_controllers(work)


def test_a_lost_pod_is_replaced(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 2)
        await cluster.settle()
        before = {p["metadata"]["uid"] for p in await cluster.pods()}
        await cluster.kube.delete(PODS, (await cluster.pods())[0]["metadata"]["name"], "default")
        await cluster.settle()
        after = {p["metadata"]["uid"] for p in await cluster.pods("Running")}
        assert len(after) == 2
        assert len(before & after) == 1

    with_controllers(work)


def test_a_rollout_replaces_every_pod_and_never_has_too_few(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 4)
        await cluster.settle()
        fewest, most = 4, 4

        async def look() -> None:
            nonlocal fewest, most
            ready = sum(any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", ()))
                        for p in await cluster.pods())
            fewest, most = min(fewest, ready), max(most, len(await cluster.pods()))

        change = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
        await cluster.kube.patch(DEPLOYMENTS, "d", change, "default")
        for _ in range(200):
            await look()
            await cluster.settle(0.02)
        assert {p["metadata"]["labels"].get("version") for p in await cluster.pods()} == {"2"}
        assert (fewest >= 3, most <= 6) == (True, True)  # maxUnavailable 25 %, maxSurge 25 %, one may still be ending
        sets = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        assert sorted(rs["spec"]["replicas"] for rs in sets) == [0, 4]
        revision = (await cluster.kube.get(DEPLOYMENTS, "d", "default"))["metadata"]["annotations"]
        assert revision["deployment.kubernetes.io/revision"] == "2"

    with_controllers(work)


def test_a_deployment_that_recreates_ends_the_old_pods_first(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 2, strategy={"type": "Recreate"})
        await cluster.settle()
        await cluster.kube.patch(DEPLOYMENTS, "d", {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}, "default")
        for _ in range(100):
            assert len({p["metadata"]["labels"].get("v") for p in await cluster.pods()}) <= 1
            await cluster.settle(0.02)
        assert [p["metadata"]["labels"].get("v") for p in await cluster.pods("Running")] == ["2", "2"]

    with_controllers(work)


def test_a_rollback_uses_the_old_set_again(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 1)
        await cluster.settle()
        (first,) = await cluster.names(REPLICA_SETS)
        for labels in ({"v": "2"}, {"v": None}):
            await cluster.kube.patch(DEPLOYMENTS, "d", {"spec": {"template": {"metadata": {"labels": labels}}}}, "default")
            await cluster.settle()
        sets = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        sizes = {rs["metadata"]["name"]: rs["spec"]["replicas"] for rs in sets}
        assert sizes[first] == 1
        assert sorted(sizes.values()) == [0, 1]

    with_controllers(work)


def test_a_daemon_set_has_one_pod_on_every_node_that_it_selects(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        pods = template()
        del pods["spec"]["nodeName"]
        await cluster.make(DAEMON_SETS, "DaemonSet", "ds", {"selector": SELECTOR, "template": pods})
        await cluster.settle()
        assert sorted(p["spec"]["nodeName"] for p in await cluster.pods("Running")) == ["n1", "n2"]
        status = (await cluster.kube.get(DAEMON_SETS, "ds", "default"))["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"], status["updatedNumberScheduled"]) == (2, 2, 2)
        await cluster.kube.patch(NODES, "n2", {"metadata": {"labels": {"gpu": "on"}}})
        await cluster.kube.patch(DAEMON_SETS, "ds", {"spec": {"template": {"spec": {"nodeSelector": {"gpu": "on"}}}}}, "default")
        await cluster.settle(10)
        assert [p["spec"]["nodeName"] for p in await cluster.pods()] == ["n2"]

    with_controllers(work)


def test_a_daemon_set_rolls_to_a_new_template_one_pod_at_a_time(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        pods = template()
        del pods["spec"]["nodeName"]
        await cluster.make(DAEMON_SETS, "DaemonSet", "ds", {"selector": SELECTOR, "template": pods})
        await cluster.settle()
        await cluster.kube.patch(DAEMON_SETS, "ds", {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}, "default")
        await cluster.settle(10)
        assert [p["metadata"]["labels"]["v"] for p in await cluster.pods("Running")] == ["2", "2"]

    with_controllers(work)


def test_a_daemon_pod_that_failed_is_made_anew(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        pods = template(nodeName="n1")
        await cluster.make(DAEMON_SETS, "DaemonSet", "ds", {"selector": SELECTOR, "template": pods})
        await cluster.settle()
        (pod,) = await cluster.pods("Running")
        failed = {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}
        cluster.runtime.end(next(iter(cluster.runtime.running())), 1)
        await cluster.kube.patch(PODS, pod["metadata"]["name"], failed, "default", subresource="status")
        await cluster.settle(5)
        assert pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in await cluster.pods("Running")}

    with_controllers(work)


def test_a_job_runs_until_so_many_have_succeeded(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "sleep", "5", completions=5, parallelism=2)
        await cluster.settle(3)
        assert (await cluster.kube.get(JOBS, "j", "default"))["status"]["active"] == 2
        await cluster.settle(30)
        status = (await cluster.kube.get(JOBS, "j", "default"))["status"]
        assert status["succeeded"] == 5
        assert "active" not in status
        assert {c["type"] for c in status["conditions"] if c["status"] == "True"} == {"SuccessCriteriaMet", "Complete"}
        assert len(await cluster.pods()) == 5

    with_controllers(work)


def test_a_failing_job_backs_off_and_then_gives_up(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "false", backoffLimit=2)
        await cluster.settle(8)
        assert len(await cluster.pods()) == 1
        await cluster.settle(60)
        status = (await cluster.kube.get(JOBS, "j", "default"))["status"]
        assert status["failed"] == 3
        (failed,) = [c for c in status["conditions"] if c["type"] == "Failed"]
        assert failed["reason"] == "BackoffLimitExceeded"

    with_controllers(work)


def test_a_job_past_its_deadline_fails_and_its_pods_end(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "sleep", "infinity", activeDeadlineSeconds=20)
        await cluster.settle(25)
        (failed,) = [c for c in (await cluster.kube.get(JOBS, "j", "default"))["status"]["conditions"] if c["type"] == "Failed"]
        assert failed["reason"] == "DeadlineExceeded"
        assert not await cluster.pods("Running")

    with_controllers(work)


def test_an_indexed_job_gives_every_pod_its_index(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "sleep", "3", completions=3, parallelism=3, completionMode="Indexed")
        await cluster.settle(1)
        assert sorted(spec.env["JOB_COMPLETION_INDEX"] for spec in cluster.runtime.started) == ["0", "1", "2"]
        await cluster.settle(10)
        assert (await cluster.kube.get(JOBS, "j", "default"))["status"]["completedIndexes"] == "0-2"

    with_controllers(work)


def test_a_suspended_job_runs_nothing_until_it_is_resumed(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "sleep", "3", suspend=True)
        await cluster.settle(5)
        assert await cluster.pods() == []
        await cluster.kube.patch(JOBS, "j", {"spec": {"suspend": False}}, "default")
        await cluster.settle(10)
        assert (await cluster.kube.get(JOBS, "j", "default"))["status"]["succeeded"] == 1

    with_controllers(work)


def test_a_finished_job_goes_after_its_time_to_live_with_its_pods(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "true", ttlSecondsAfterFinished=30)
        await cluster.settle(20)
        assert await cluster.get(JOBS, "j")
        await cluster.settle(30)
        assert await cluster.get(JOBS, "j") is None
        assert await cluster.pods() == []

    with_controllers(work)


def test_a_job_that_was_listed_is_told_of_as_a_job() -> None:
    listed = {"metadata": {"name": "j", "namespace": "default", "uid": "u"}, "spec": {
        "completions": 0, "parallelism": 0, "template": template()}}  # fmt: skip
    actions = reconcile_job(listed, [], 0.0)
    assert [action.kind for action in actions if isinstance(action, Event)] == ["Job"]
    conditions = [c for action in actions if isinstance(action, Patch) for c in action.body["status"]["conditions"]]
    assert conditions
    assert all("lastUpdateTime" not in condition for condition in conditions)


def test_a_template_keeps_its_hash_when_only_its_own_label_differs() -> None:
    one = template()
    other = template()
    other["metadata"]["labels"]["pod-template-hash"] = "abc"
    assert template_hash(one) == template_hash(other)
    other["metadata"]["labels"]["v"] = "2"
    assert template_hash(one) != template_hash(other)


def test_percentages_round_up_for_surge_and_down_for_unavailable() -> None:
    assert (share_of("25%", 5, "0", up=True), share_of("25%", 5, "0", up=False), share_of(3, 5, "0", up=True)) == (2, 1, 3)


def test_completed_indexes_are_told_as_ranges() -> None:
    assert str(Indexes.of({0, 1, 2, 5, 7, 8})) == "0-2,5,7,8"


def test_a_daemon_pod_stays_off_tainted_nodes_that_it_does_not_tolerate() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    node = {"metadata": {"name": "n", "labels": {"a": "1"}}, "spec": {"taints": [taint]}}
    assert not fits({}, node)
    assert fits({"tolerations": [{"key": "k", "operator": "Exists"}]}, node)
    assert fits({"tolerations": [{"operator": "Exists"}]}, node)
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = {"metadata": {"name": "n"}, "spec": {"taints": [unschedulable]}}
    assert fits({}, cordoned)
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}]}}}
    assert fits({"affinity": affinity}, {**node, "spec": {}})
    assert not fits({"affinity": affinity}, cordoned)


async def unowned(cluster: Cluster, name: str, **labels: str) -> Json:
    return await cluster.make(PODS, "Pod", name, template()["spec"], labels=labels)


async def owners(cluster: Cluster) -> dict[str, list[str]]:
    return {pod["metadata"]["name"]: [o["name"] for o in pod["metadata"].get("ownerReferences") or ()]
            for pod in await cluster.pods()}


@pytest.mark.parametrize(("resource", "kind", "selector"), [
    (REPLICA_SETS, "ReplicaSet", SELECTOR), (REPLICATION_CONTROLLERS, "ReplicationController", {"app": "x"})])
def test_pods_that_nobody_owns_are_adopted_and_those_with_other_labels_let_go(
        with_controllers: With, resource: Resource, kind: str, selector: Json) -> None:
    async def work(cluster: Cluster) -> None:
        await unowned(cluster, "mine", app="x")
        await unowned(cluster, "other", app="y")
        await cluster.make(resource, kind, "set", {"replicas": 2, "selector": selector, "template": template()})
        await cluster.settle()
        found = await owners(cluster)
        assert (len(found), found["mine"], found["other"]) == (3, ["set"], [])
        await cluster.kube.patch(PODS, "mine", {"metadata": {"labels": {"app": "z"}}}, "default")
        await cluster.settle()
        found = await owners(cluster)
        assert (len(found), found["mine"]) == (4, [])
        status = (await cluster.kube.get(resource, "set", "default"))["status"]
        assert (status["replicas"], status["readyReplicas"]) == (2, 2)
        await cluster.kube.patch(resource, "set", {"spec": {"replicas": 0}}, "default")
        await cluster.settle(60)
        assert (await owners(cluster)).keys() == {"mine", "other"}

    with_controllers(work)


def test_a_cron_job_makes_a_job_at_each_time_and_keeps_so_many(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        job_template = {"spec": {"template": template("sleep", "90", restartPolicy="Never")}}
        spec = {"schedule": "*/1 * * * *", "successfulJobsHistoryLimit": 2, "jobTemplate": job_template}
        await cluster.make(CRON_JOBS, "CronJob", "c", spec)
        await cluster.settle(65)
        (name,) = await cluster.names(JOBS)
        made = await cluster.get(JOBS, name)
        assert made is not None
        assert [(o["apiVersion"], o["kind"], o["name"]) for o in made["metadata"]["ownerReferences"]] == [
            ("batch/v1", "CronJob", "c")]
        status = (await cluster.kube.get(CRON_JOBS, "c", "default"))["status"]
        assert status["lastScheduleTime"]
        assert [(job["apiVersion"], job["name"]) for job in status["active"]] == [("batch/v1", name)]
        await cluster.settle(420)
        jobs = (await cluster.kube.list(JOBS, "default"))["items"]
        assert sum(bool(job["status"].get("succeeded")) for job in jobs) == 2
        assert len(jobs) in (3, 4)
        assert "lastSuccessfulTime" in (await cluster.kube.get(CRON_JOBS, "c", "default"))["status"]

    with_controllers(work)


@pytest.mark.parametrize(("resource", "kind", "spec"), [
    (Resource("autoscaling", "v2", "horizontalpodautoscalers"), "HorizontalPodAutoscaler",
     {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}),
    (NETWORK_POLICIES, "NetworkPolicy", {"podSelector": {}}),
    (INGRESSES, "Ingress", {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}),
])
def test_what_has_no_effect_says_so(with_controllers: With, resource: Resource, kind: str, spec: Json) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(resource, kind, "a", spec)
        await cluster.settle()
        events = (await cluster.kube.list(EVENTS, "default"))["items"]
        reported = [e["message"] for e in events if e["involvedObject"]["kind"] == kind]
        assert [text.partition(":")[0] for text in reported] == [f"{kind}s have no effect in this cluster"]

    with_controllers(work)


def test_a_replica_set_that_nobody_owns_is_adopted_and_one_with_other_labels_let_go(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, replicas=2)
        await cluster.settle(4)
        (name,) = await cluster.names(REPLICA_SETS)
        await cluster.kube.delete(DEPLOYMENTS, "d", "default", propagation="Orphan")
        await cluster.settle(4)
        (alone,) = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        assert not alone["metadata"].get("ownerReferences")
        await deployment(cluster, replicas=2)
        await cluster.settle(4)
        (adopted,) = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        assert (adopted["metadata"]["uid"], adopted["metadata"]["ownerReferences"][0]["name"]) == (alone["metadata"]["uid"], "d")
        assert len(await cluster.pods("Running")) == 2
        await cluster.kube.patch(REPLICA_SETS, name, {"metadata": {"labels": {"app": "other"}}}, "default")
        await cluster.settle(4)
        sets = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        let_go = next(each for each in sets if each["metadata"]["name"] == name)
        assert not let_go["metadata"].get("ownerReferences")

    with_controllers(work)


def test_a_replica_set_says_why_its_pods_are_not_made_and_its_deployment_with_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        quotas = Resource("", "v1", "resourcequotas")
        await cluster.make(quotas, "ResourceQuota", "few", {"hard": {"pods": "1"}})
        await deployment(cluster, replicas=3)
        await cluster.settle(8)
        (rs,) = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        above = (await cluster.kube.get(DEPLOYMENTS, "d", "default"))["status"]
        for status in (rs["status"], above):
            failure = next(c for c in status["conditions"] if c["type"] == "ReplicaFailure")
            assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
            assert "exceeded quota: few" in failure["message"]
        events = (await cluster.kube.list(EVENTS, "default"))["items"]
        assert any(e["reason"] == "FailedCreate" and e["message"].startswith("Error creating: pods ") for e in events)
        assert cluster.kube.requests["POST"] < 60, "it tries again ever more rarely"
        await cluster.kube.delete(quotas, "few", "default")
        await cluster.settle(40)
        (rs,) = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        assert (rs["status"]["readyReplicas"], rs["status"].get("conditions")) == (3, None)
        above = (await cluster.kube.get(DEPLOYMENTS, "d", "default"))["status"]
        assert "ReplicaFailure" not in [c["type"] for c in above["conditions"]]

    with_controllers(work)


def test_a_job_adopts_the_pods_that_it_selects_and_nobody_owns(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await job(cluster, "sleep", "infinity", parallelism=2)
        await cluster.settle(3)
        (first, _) = await cluster.pods()
        await cluster.kube.patch(PODS, first["metadata"]["name"], {"metadata": {"ownerReferences": None}}, "default")
        await cluster.settle(3)
        pods = await cluster.pods()
        assert len(pods) == 2, "none is made beside it"
        assert [pod["metadata"]["ownerReferences"][0]["name"] for pod in pods] == ["j", "j"]
        labels = dict.fromkeys(first["metadata"]["labels"])
        await cluster.kube.patch(PODS, first["metadata"]["name"], {"metadata": {"labels": labels}}, "default")
        await cluster.settle(3)
        pods = await cluster.pods()
        assert sorted(bool(pod["metadata"].get("ownerReferences")) for pod in pods) == [False, True, True]

    with_controllers(work)


def test_a_policy_says_that_its_types_were_checked(with_controllers: With) -> None:
    """Tools wait for it before they count on the policy."""

    async def work(cluster: Cluster) -> None:
        policies = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        await cluster.kube.create(policies, {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}})
        await cluster.settle()
        assert (await cluster.kube.get(policies, "p"))["status"] == {"observedGeneration": 1, "typeChecking": {}}

    with_controllers(work)


def test_the_limits_that_a_quotas_status_names_are_those_of_its_spec(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        quotas = Resource("", "v1", "resourcequotas")
        await cluster.make(quotas, "ResourceQuota", "q", {"hard": {"pods": "5"}})
        wrong = {"status": {"hard": {"pods": "9", "services": "1"}}}
        await cluster.kube.patch(quotas, "q", wrong, "default", subresource="status")
        await cluster.settle()
        assert (await cluster.kube.get(quotas, "q", "default"))["status"]["hard"] == {"pods": "5"}

    with_controllers(work)
