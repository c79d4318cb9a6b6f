"""ResourceClaims of pods' templates: made, named in the pod's status, released, deallocated and let go."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.ports.cluster import Json
from pumice.wire.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from pumice.wire.kubernetes import CLAIM_PROTECTION, POD_CLAIM_NAME
from pumice_lab.controllers.resource_claims import reconcile_pod

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}


async def claim_template(cluster: Cluster, name: str = "one") -> None:
    spec = {"metadata": {"labels": {"team": "a"}}, "spec": DEVICES}
    await cluster.make(RESOURCE_CLAIM_TEMPLATES, "ResourceClaimTemplate", name, spec)


async def pod(cluster: Cluster, name: str, node: str = "", **claim: str) -> Json:
    named = claim or {"resourceClaimTemplateName": "one"}
    spec = {**template("sleep", "infinity")["spec"], "resourceClaims": [{"name": "gpu", **named}]}
    spec |= {"nodeName": node} if node else {}
    spec = {key: value for key, value in spec.items() if key != "nodeName" or node}
    return await cluster.make(PODS, "Pod", name, spec)


async def allocate(cluster: Cluster, name: str, *consumers: Json) -> None:
    """As a scheduler does: the finalizer, then allocation and reservation in one write."""
    claim = await cluster.kube.get(RESOURCE_CLAIMS, name, "default")
    claim["metadata"]["finalizers"] = [CLAIM_PROTECTION]
    claim = await cluster.kube.update(RESOURCE_CLAIMS, claim)
    reserved = [{"resource": "pods", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]} for one in consumers]
    claim["status"] = {"allocation": {"devices": {"results": [RESULT]}}, **({"reservedFor": reserved} if reserved else {})}
    await cluster.kube.update(RESOURCE_CLAIMS, claim, subresource="status")


async def reserved(cluster: Cluster, name: str) -> list[str]:
    claim = await cluster.get(RESOURCE_CLAIMS, name)
    return [one["name"] for one in ((claim or {}).get("status") or {}).get("reservedFor") or ()]


def test_a_pods_claim_is_made_of_its_template_owned_by_the_pod_and_named_in_its_status(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await claim_template(cluster)
        made = await pod(cluster, "p")
        await cluster.settle()
        [name] = await cluster.names(RESOURCE_CLAIMS)
        claim = await cluster.kube.get(RESOURCE_CLAIMS, name, "default")
        assert name.startswith("p-gpu-")
        assert claim["metadata"]["annotations"] == {POD_CLAIM_NAME: "gpu"}
        assert claim["metadata"]["labels"] == {"team": "a"}
        assert claim["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        status = (await cluster.kube.get(PODS, "p", "default"))["status"]
        assert status["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]

    with_controllers(work)


def test_a_template_that_comes_later_is_waited_for_and_the_pod_is_told(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await pod(cluster, "p")
        await cluster.settle()
        assert await cluster.names(RESOURCE_CLAIMS) == []
        events = (await cluster.kube.list(EVENTS, "default"))["items"]
        [reported] = [event["message"] for event in events if event["reason"] == "FailedResourceClaimCreation"]
        assert 'resource claim template "one": resourceclaimtemplate.resource.k8s.io "one" not found' in reported
        await claim_template(cluster)
        await cluster.settle()
        assert len(await cluster.names(RESOURCE_CLAIMS)) == 1

    with_controllers(work)


def test_a_long_name_is_shortened_on_both_sides(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await claim_template(cluster)
        await pod(cluster, "p" * 60)
        await cluster.settle()
        [name] = await cluster.names(RESOURCE_CLAIMS)
        assert len(name) <= 63
        assert "-g" in name

    with_controllers(work)


def test_a_pod_that_was_bound_by_hand_is_reserved_for(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(RESOURCE_CLAIMS, "ResourceClaim", "shared", DEVICES)
        await allocate(cluster, "shared")
        await pod(cluster, "p", "n3", resourceClaimName="shared")
        await cluster.settle()
        assert await reserved(cluster, "shared") == ["p"]

    with_controllers(work)


def test_a_consumer_that_is_gone_is_released_and_the_last_takes_the_allocation_with_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(RESOURCE_CLAIMS, "ResourceClaim", "shared", DEVICES)
        pods = [await pod(cluster, name, resourceClaimName="shared") for name in ("p", "q")]
        await allocate(cluster, "shared", *pods)
        await cluster.settle()
        assert await reserved(cluster, "shared") == ["p", "q"]
        await cluster.kube.delete(PODS, "p", "default", grace=0)
        await cluster.settle()
        assert await reserved(cluster, "shared") == ["q"]
        await cluster.kube.delete(PODS, "q", "default", grace=0)
        await cluster.settle()
        claim = await cluster.kube.get(RESOURCE_CLAIMS, "shared", "default")
        assert not claim.get("status")
        assert not claim["metadata"].get("finalizers")

    with_controllers(work)


def test_a_finalizer_that_was_written_before_the_allocation_stays(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(RESOURCE_CLAIMS, "ResourceClaim", "shared", DEVICES, finalizers=[CLAIM_PROTECTION])
        await cluster.settle()
        claim = await cluster.kube.get(RESOURCE_CLAIMS, "shared", "default")
        assert claim["metadata"]["finalizers"] == [CLAIM_PROTECTION]

    with_controllers(work)


def test_a_claim_in_use_outlives_its_deletion_and_goes_with_its_last_consumer(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(RESOURCE_CLAIMS, "ResourceClaim", "shared", DEVICES)
        consumer = await pod(cluster, "p", resourceClaimName="shared")
        await allocate(cluster, "shared", consumer)
        await cluster.kube.delete(RESOURCE_CLAIMS, "shared", "default")
        await cluster.settle()
        assert await cluster.names(RESOURCE_CLAIMS) == ["shared"]
        await cluster.kube.delete(PODS, "p", "default", grace=0)
        await cluster.settle()
        assert await cluster.names(RESOURCE_CLAIMS) == []

    with_controllers(work)


def test_the_claim_of_a_template_goes_when_its_pod_has_finished(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await claim_template(cluster)
        made = await pod(cluster, "p")
        await cluster.settle()
        [name] = await cluster.names(RESOURCE_CLAIMS)
        await allocate(cluster, name, made)
        await cluster.kube.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
        await cluster.settle()
        assert await cluster.names(RESOURCE_CLAIMS) == []
        assert await cluster.names(PODS) == ["p"]

    with_controllers(work)


def test_no_claim_is_made_for_a_pod_that_is_over() -> None:
    """It would be deleted at once, and made again."""
    entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"nodeName": "n", "resourceClaims": [entry]}}
    made = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": DEVICES}}
    assert reconcile_pod({**pod, "status": {"phase": "Pending"}}, lambda *_: made, ())
    assert not reconcile_pod({**pod, "status": {"phase": "Failed"}}, lambda *_: made, ())
