"""Followers of a selector's pods: EndpointSlices and Endpoints of Services, and the counts of disruption budgets."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kit.seeds import chosen_seed
from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import DEPLOYMENTS, DISRUPTION_BUDGETS, ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from pumice.wire.objects import selects
from pumice_lab.controllers import endpoints
from pumice_lab.controllers.enqueueing import Selecting

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
SELECTOR = {"matchLabels": {"app": "x"}}
PORTED = {"containers": [{"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}]}


async def deployment(cluster: Cluster, replicas: int, **spec: Any) -> None:
    await cluster.make(DEPLOYMENTS, "Deployment", "d", {"replicas": replicas, "selector": SELECTOR, "template": template(**spec)})


async def service(cluster: Cluster, **spec: Any) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": "web"}]
    await cluster.make(SERVICES, "Service", "s", {"selector": {"app": "x"}, "ports": ports, **spec}, labels={"team": "a"})


async def slices(cluster: Cluster) -> list[Json]:
    found: list[Json] = (await cluster.kube.list(ENDPOINT_SLICES, "default"))["items"]
    return found


def test_a_service_says_where_its_pods_answer(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await service(cluster)
        await deployment(cluster, 2, **PORTED)
        await cluster.settle(4)
        (slice_,) = await slices(cluster)
        pods = {pod["metadata"]["name"]: pod for pod in await cluster.pods()}
        assert slice_["metadata"]["labels"] == {
            "team": "a", "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
        assert slice_["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        assert {e["targetRef"]["name"]: (e["addresses"], e["nodeName"]) for e in slice_["endpoints"]} == {
            name: ([pod["status"]["podIP"]], "n1") for name, pod in pods.items()}
        assert all(e["conditions"] == {"ready": True, "serving": True, "terminating": False} for e in slice_["endpoints"])
        (subset,) = (await cluster.kube.get(ENDPOINTS, "s", "default"))["subsets"]
        assert [a["targetRef"]["name"] for a in subset["addresses"]] == sorted(pods)
        assert subset["ports"] == slice_["ports"]

    with_controllers(work)


def test_a_port_without_a_name_has_an_empty_one_in_its_slice(with_controllers: With) -> None:
    """kubectl describe follows the pointer."""

    async def work(cluster: Cluster) -> None:
        await service(cluster, ports=[{"port": 80, "targetPort": "web"}])
        await deployment(cluster, 1, **PORTED)
        await cluster.settle(4)
        (slice_,) = await slices(cluster)
        assert slice_["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
        (subset,) = (await cluster.kube.get(ENDPOINTS, "s", "default"))["subsets"]
        assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
        writes = cluster.kube.requests["PATCH"]
        await cluster.kube.patch(SERVICES, "s", {"metadata": {"annotations": {"a": "b"}}}, "default")
        await cluster.settle(2)
        assert cluster.kube.requests["PATCH"] == writes + 1, "what is there already is not written again"

    with_controllers(work)


def test_addresses_follow_the_pods_and_go_with_the_service(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await service(cluster)
        await deployment(cluster, 3, **PORTED)
        await cluster.settle(4)
        await cluster.kube.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 1}}, "default")
        await cluster.settle(60)
        assert [len(each["endpoints"]) for each in await slices(cluster)] == [1]
        (name,) = await cluster.names(ENDPOINT_SLICES)
        await cluster.kube.delete(ENDPOINT_SLICES, name, "default")
        await cluster.settle()
        assert [len(each["endpoints"]) for each in await slices(cluster)] == [1]
        await cluster.kube.patch(SERVICES, "s", {"spec": {"selector": {"app": "y"}}}, "default")
        await cluster.settle()
        assert [each.get("endpoints") or [] for each in await slices(cluster)] == [[]]
        await cluster.kube.delete(SERVICES, "s", "default")
        await cluster.settle()
        assert (await cluster.names(ENDPOINT_SLICES), await cluster.names(ENDPOINTS)) == ([], [])

    with_controllers(work)


def test_a_service_without_a_selector_is_left_to_whoever_made_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.make(ENDPOINTS, "Endpoints", "s", {})
        await service(cluster, selector=None)
        await cluster.settle()
        assert await slices(cluster) == []
        assert "subsets" not in await cluster.kube.get(ENDPOINTS, "s", "default")
        await cluster.kube.patch(SERVICES, "s", {"spec": {"selector": {"app": "x"}}}, "default")
        await deployment(cluster, 1, **PORTED)
        await cluster.settle(4)
        assert len((await cluster.kube.get(ENDPOINTS, "s", "default"))["subsets"][0]["addresses"]) == 1

    with_controllers(work)


def pod(number: int, *, ready: bool = True, ending: bool = False, port: int = 8080) -> Json:
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if ending else {}
    containers = [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]
    return {"metadata": {"name": f"p{number:04}", "namespace": "default", "uid": str(number), **gone},
            "spec": {"nodeName": "n", "containers": containers},
            "status": {"podIP": f"10.0.{number // 250}.{number % 250 + 1}", "phase": "Running",
                       "conditions": [{"type": "Ready", "status": str(ready)}]}}


def bare_service(**spec: Any) -> Json:
    return {"metadata": {"name": "s", "namespace": "default", "uid": "s"},
            "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}], **spec}}


def test_a_slice_has_a_hundred_pods_and_pods_of_other_ports_have_their_own() -> None:
    pods = [*(pod(i) for i in range(250)), pod(999, port=9090)]
    made = [action.obj for action in endpoints.reconcile(bare_service(), pods, [], None)]
    assert [(each["ports"][0]["port"], len(each["endpoints"])) for each in made[:-1]] == [
        (8080, 100), (8080, 100), (8080, 50), (9090, 1)]


def test_the_ports_of_a_service_are_looked_at_once_for_all_pods_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand, for each of two hundred pods, nobody else had a turn for seconds."""
    looked, ports = list[Any](), endpoints._ports

    def counted(*given: Any) -> list[Json]:
        looked.append(given)
        return ports(*given)

    monkeypatch.setattr(endpoints, "_ports", counted)
    endpoints.reconcile(bare_service(), [*(pod(i) for i in range(200)), pod(999, port=9090)], [], None)
    assert len(looked) == 2


@pytest.mark.parametrize(("more", "conditions", "listed"), [
    ({}, (True, True, False), "addresses"),
    ({"ready": False}, (False, False, False), "notReadyAddresses"),
    ({"ending": True}, (False, True, True), ""),
])
def test_whoever_is_not_ready_or_ends_is_told_apart(more: Json, conditions: tuple[bool, ...], listed: str) -> None:
    slice_, legacy = (action.obj for action in endpoints.reconcile(bare_service(), [pod(1, **more)], [], None))
    assert tuple(slice_["endpoints"][0]["conditions"].values()) == conditions
    assert [key for subset in legacy["subsets"] for key in subset if key != "ports"] == ([listed] if listed else [])
    tolerant = bare_service(publishNotReadyAddresses=True)
    slice_, legacy = (action.obj for action in endpoints.reconcile(tolerant, [pod(1, **more)], [], None))
    assert slice_["endpoints"][0]["conditions"]["ready"]
    assert list(legacy["subsets"][0]) == ["addresses", "ports"]


async def budget(cluster: Cluster, **spec: Any) -> None:
    await cluster.make(DISRUPTION_BUDGETS, "PodDisruptionBudget", "b", {"selector": SELECTOR, **spec})


async def status(cluster: Cluster) -> Json:
    found: Json = (await cluster.kube.get(DISRUPTION_BUDGETS, "b", "default"))["status"]
    return found


@pytest.mark.parametrize(("spec", "desired"), [
    ({"minAvailable": 3}, 3), ({"minAvailable": "50%"}, 2), ({"maxUnavailable": 1}, 3), ({"maxUnavailable": "30%"}, 2)])
def test_a_budget_counts_what_it_protects(with_controllers: With, spec: Json, desired: int) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 4)
        await budget(cluster, **spec)
        await cluster.settle(4)
        found = await status(cluster)
        assert {key: found[key] for key in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")} == {
            "expectedPods": 4, "currentHealthy": 4, "desiredHealthy": desired, "disruptionsAllowed": 4 - desired}
        assert [(c["type"], c["status"], c["reason"]) for c in found["conditions"]] == [
            ("DisruptionAllowed", "True", "SufficientPods")]

    with_controllers(work)


def test_so_many_pods_are_evicted_at_a_time_as_a_budget_allows(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await deployment(cluster, 3)
        await budget(cluster, maxUnavailable=1)
        await cluster.settle(4)
        names = await cluster.names(PODS)
        await evict(cluster, names[0])
        with pytest.raises(ApiError) as refused:
            await evict(cluster, names[1])
        assert (refused.value.code, refused.value.reason) == (429, "TooManyRequests")
        await cluster.settle(90)
        found = await status(cluster)
        assert (found["disruptionsAllowed"], found.get("disruptedPods")) == (1, None)
        await evict(cluster, names[1])

    with_controllers(work)


async def evict(cluster: Cluster, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    await cluster.kube.create(PODS, body, "default", subresource="eviction", name=name)


def test_a_budget_of_pods_that_nobody_scales_allows_none(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u", "controller": True}
        spec = template()["spec"]
        await cluster.make(PODS, "Pod", "p", spec, labels={"app": "x"}, ownerReferences=[owner])
        await budget(cluster, maxUnavailable=1)
        await cluster.settle(4)
        found = await status(cluster)
        assert found["disruptionsAllowed"] == 0
        assert found["conditions"][0]["reason"] == "SyncFailed"
        assert found["conditions"][0]["message"] == "Thing t, which owns pod p, has no scale"

    with_controllers(work)


def test_random_selectors_keep_whom_they_take() -> None:
    seed = chosen_seed()
    print(f"PUMICE_SEED={seed}")
    rng = random.Random(seed)
    pods: dict[str, Json] = {}
    selectors: dict[str, Json] = {}
    selecting = Selecting(lambda name: [p for p in pods.values() if p["metadata"]["namespace"] == name])
    for _ in range(2000):
        word = rng.choice("abcdef")
        if rng.random() < 0.7:
            labels = {key: rng.choice("12") for key in "xy" if rng.random() < 0.7}
            space = pods[word]["metadata"]["namespace"] if word in pods else rng.choice("mn")
            before = {name for name in selectors if word in selecting.members((SERVICES, name))}
            made = {"metadata": {"uid": word, "namespace": space, "labels": labels}} if rng.random() < 0.8 else None
            pods.pop(word, None) if made is None else pods.update({word: made})
            touched = {key[1] for key in selecting.see(word, space, made)}
            after = {name for name in selectors if word in selecting.members((SERVICES, name))}
            assert before | after <= touched
        else:
            chosen = rng.choice((None, {}, {"matchLabels": {"x": "1"}}, {"matchLabels": {"y": "2", "x": "2"}},
                                  {"matchExpressions": [{"key": "y", "operator": "DoesNotExist"}]}))
            space = selectors[word]["namespace"] if word in selectors else rng.choice("mn")
            selectors[word] = {"namespace": space, "selector": chosen}
            selecting.put((SERVICES, word), space, chosen)
        for name, each in selectors.items():
            wanted = [uid for uid, p in sorted(pods.items()) if p["metadata"]["namespace"] == each["namespace"]
                      and selects(each["selector"], p["metadata"]["labels"])]
            assert selecting.members((SERVICES, name)) == wanted
