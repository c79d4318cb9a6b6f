"""StatefulSets as kubectl users know them: pods that keep their number, their name and their claims."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.effects.vocabulary import Create
from pumice.ports.cluster import Json
from pumice.wire.kinds import EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from pumice_lab.controllers import statefulset
from pumice_lab.controllers.statefulset import REVISIONS

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
SELECTOR = {"matchLabels": {"app": "x"}}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def _make(cluster: Cluster, replicas: int = 3, pods: Json | None = None, **spec: Any) -> None:
    whole = {"serviceName": "s", "replicas": replicas, "selector": SELECTOR, "template": pods or template(), **spec}
    await cluster.make(STATEFUL_SETS, "StatefulSet", "web", whole)


async def _patch(cluster: Cluster, spec: Json) -> None:
    await cluster.kube.patch(STATEFUL_SETS, "web", {"spec": spec}, "default")


async def _status(cluster: Cluster) -> Json:
    status: Json = (await cluster.kube.get(STATEFUL_SETS, "web", "default"))["status"]
    return status


async def _uids(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await cluster.pods()}


async def _images(cluster: Cluster) -> list[str]:
    pods = sorted(await cluster.pods(), key=lambda pod: str(pod["metadata"]["name"]))
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


def _with_image(image: str) -> Json:
    made = template()
    made["spec"]["containers"][0]["image"] = image
    return made


def _never_ready() -> Json:
    made = template()
    made["spec"]["containers"][0]["readinessProbe"] = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    return made


async def _reported(cluster: Cluster) -> list[str]:
    """Which pods it made and deleted, in turn."""
    events = (await cluster.kube.list(EVENTS, "default"))["items"]
    of_it = [event for event in events if event["involvedObject"]["kind"] == "StatefulSet"]
    return [event["message"] for event in sorted(of_it, key=lambda event: int(event["metadata"]["resourceVersion"]))]


COUNTED = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")


def test_pods_come_in_the_order_of_their_numbers_and_go_in_the_reverse(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster)
        await cluster.settle(10)
        status = await _status(cluster)
        assert {key: status[key] for key in COUNTED} == dict.fromkeys(COUNTED, 3)
        await _patch(cluster, {"replicas": 0})
        await cluster.settle(120)
        over = await cluster.kube.get(STATEFUL_SETS, "web", "default")
        await cluster.settle(60)
        assert await cluster.kube.get(STATEFUL_SETS, "web", "default") == over, "who has what he wants writes nothing"
        assert await _reported(cluster) == [
            *(f"Created pod: web-{i}" for i in range(3)),
            *(f"Deleted pod: web-{i}" for i in (2, 1, 0)),
        ]

    with_controllers(work)


def test_who_is_not_ready_holds_up_those_after_him_unless_all_start_together(with_controllers: With) -> None:
    for policy, there in (("OrderedReady", ["web-0"]), ("Parallel", ["web-0", "web-1", "web-2"])):

        async def work(cluster: Cluster, policy: str = policy, there: Sequence[str] = there) -> None:
            await _make(cluster, pods=_never_ready(), podManagementPolicy=policy)
            await cluster.settle(10)
            assert await cluster.names(PODS) == there

        with_controllers(work)


def test_a_pod_comes_back_under_its_name_with_its_identity(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster, ordinals={"start": 4})
        await cluster.settle(10)
        before = await _uids(cluster)
        assert sorted(before) == ["web-4", "web-5", "web-6"]
        await cluster.kube.delete(PODS, "web-5", "default", grace=0)
        await cluster.settle(10)
        after = await _uids(cluster)
        assert {name for name in after if after[name] != before[name]} == {"web-5"}
        pod = await cluster.kube.get(PODS, "web-5", "default")
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-5", "s")
        labels = pod["metadata"]["labels"]
        assert labels["statefulset.kubernetes.io/pod-name"] == "web-5"
        assert labels["apps.kubernetes.io/pod-index"] == "5"
        assert labels["controller-revision-hash"] == (await _status(cluster))["currentRevision"]

    with_controllers(work)


def test_each_pod_has_claims_of_its_own_that_outlive_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster, 2, volumeClaimTemplates=[CLAIM], podManagementPolicy="Parallel")
        await cluster.settle()
        pod = await cluster.kube.get(PODS, "web-1", "default")
        assert {v["name"]: v.get("persistentVolumeClaim", {}).get("claimName") for v in pod["spec"]["volumes"]}[
            "data"
        ] == "data-web-1"
        await cluster.kube.delete(STATEFUL_SETS, "web", "default")
        await cluster.settle(120)
        assert await cluster.names(PODS) == []
        assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == ["data-web-0", "data-web-1"]

    with_controllers(work)


@pytest.mark.parametrize(("policy", "scaled", "gone"), [
    ({"whenScaled": "Delete", "whenDeleted": "Retain"}, ["data-web-0"], ["data-web-0"]),
    ({"whenScaled": "Retain", "whenDeleted": "Delete"}, ["data-web-0", "data-web-1"], []),
])  # fmt: skip
def test_claims_go_where_the_set_says_so(
    with_controllers: With, policy: Json, scaled: list[str], gone: list[str]
) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster, 2, volumeClaimTemplates=[CLAIM], podManagementPolicy="Parallel",
                    persistentVolumeClaimRetentionPolicy=policy)  # fmt: skip
        await cluster.settle()
        await _patch(cluster, {"replicas": 1})
        await cluster.settle(120)
        assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == scaled
        await cluster.kube.delete(STATEFUL_SETS, "web", "default")
        await cluster.settle(120)
        assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == gone

    with_controllers(work)


def test_a_new_template_is_rolled_out_from_the_last_pod_and_back(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster)
        await cluster.settle(10)
        first = (await _status(cluster))["currentRevision"]
        await _patch(cluster, {"template": _with_image("new")})
        await cluster.settle(200)
        assert await _images(cluster) == ["new"] * 3
        deleted = [reported for reported in await _reported(cluster) if reported.startswith("Deleted")]
        assert deleted == [f"Deleted pod: web-{i}" for i in (2, 1, 0)]
        status = await _status(cluster)
        assert status["currentRevision"] == status["updateRevision"] != first
        await _patch(cluster, {"template": _with_image("i")})
        await cluster.settle(200)
        assert await _images(cluster) == ["i"] * 3
        assert (await _status(cluster))["currentRevision"] == first, (
            "a template that was there before is the same revision"
        )
        assert len(await cluster.names(REVISIONS)) == 2

    with_controllers(work)


def test_pods_below_the_partition_keep_the_old_template_also_when_they_are_made_anew(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
        await cluster.settle(10)
        await _patch(cluster, {"template": _with_image("new")})
        await cluster.settle(100)
        assert await _images(cluster) == ["i", "i", "new"]
        for name in ("web-0", "web-2"):
            await cluster.kube.delete(PODS, name, "default", grace=0)
        await cluster.settle(10)
        assert await _images(cluster) == ["i", "i", "new"]
        status = await _status(cluster)
        assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)

    with_controllers(work)


def test_on_delete_leaves_the_pods_to_their_owner(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await _make(cluster, updateStrategy={"type": "OnDelete"})
        await cluster.settle(10)
        await _patch(cluster, {"template": _with_image("new")})
        await cluster.settle(20)
        assert await _images(cluster) == ["i"] * 3
        await cluster.kube.delete(PODS, "web-1", "default", grace=0)
        await cluster.settle(10)
        assert await _images(cluster) == ["i", "new", "i"]

    with_controllers(work)


def test_a_pod_that_failed_is_made_anew_and_a_stranger_under_its_name_is_left_alone(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        stranger = {
            "metadata": {"name": "web-1", "namespace": "default", "labels": {"app": "another"}},
            "spec": template()["spec"],
        }
        await cluster.kube.create(PODS, stranger)
        await _make(cluster, 2)
        await cluster.settle(10)
        before = await _uids(cluster)
        await cluster.kube.patch(PODS, "web-0", {"status": {"phase": "Failed"}}, "default", subresource="status")
        await cluster.settle(10)
        after = await _uids(cluster)
        assert after["web-0"] != before["web-0"]
        assert after["web-1"] == before["web-1"]
        assert (await _status(cluster))["replicas"] == 1

    with_controllers(work)


def test_an_orphan_of_its_name_is_adopted_and_one_that_it_selects_no_more_let_go(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        orphan = {
            "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "x"}},
            "spec": template()["spec"],
        }
        made = await cluster.kube.create(PODS, orphan)
        await _make(cluster, 2, updateStrategy={"type": "OnDelete"})
        await cluster.settle(10)
        adopted = await cluster.kube.get(PODS, "web-0", "default")
        assert adopted["metadata"]["uid"] == made["metadata"]["uid"]
        assert adopted["metadata"]["ownerReferences"][0]["name"] == "web"
        await cluster.kube.patch(PODS, "web-1", {"metadata": {"labels": {"app": "no-more"}}}, "default")
        await cluster.settle(5)
        assert "ownerReferences" not in (await cluster.kube.get(PODS, "web-1", "default"))["metadata"]

    with_controllers(work)


def test_pods_that_are_made_together_are_made_in_bursts() -> None:
    sts = {"metadata": {"name": "s", "namespace": "default", "uid": "u"}, "spec": {
        "replicas": 2**31 - 1, "podManagementPolicy": "Parallel", "selector": SELECTOR, "template": template()}}  # fmt: skip
    (first,) = [a.obj for a in statefulset.reconcile(sts, [], [], {}, 0.0) if isinstance(a, Create)]
    made = [a for a in statefulset.reconcile(sts, [], [first], {}, 0.0) if isinstance(a, Create)]
    assert len(made) == 500
