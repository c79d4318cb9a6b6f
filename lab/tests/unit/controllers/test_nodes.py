"""Nodes that fall silent, come back, or vanish."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.wire.kinds import EVENTS, LEASES, NODES, PODS
from pumice_lab.controllers.nodes import UNREACHABLE, _tolerated_for

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]
GHOST = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost"},
         "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "1"}}}


def ready(node: dict[str, Any]) -> str:
    return str(next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"))


async def ghost_with_pod(cluster: Cluster) -> None:
    """A node object without a kubelet, as after `pumice up` with fewer nodes, and a pod on it."""
    await cluster.kube.create(NODES, GHOST)
    await cluster.kube.patch(NODES, "ghost", {"status": GHOST["status"]}, subresource="status")
    await cluster.kube.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                                       "metadata": {"name": "ghost", "namespace": "kube-node-lease"},
                                       "spec": {"renewTime": "2027-01-15T07:00:00.000000Z"}})
    await cluster.kube.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                                     "spec": template(nodeName="ghost")["spec"]})


def test_a_silent_node_is_tainted_after_forty_seconds_and_its_pods_go_after_five_minutes(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await ghost_with_pod(cluster)
        await cluster.settle(35)
        assert ready(await cluster.kube.get(NODES, "ghost")) == "True"
        await cluster.settle(10)
        node = await cluster.kube.get(NODES, "ghost")
        assert ready(node) == "Unknown"
        assert {(t["key"], t["effect"]) for t in node["spec"]["taints"]} == {
            (UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
        assert ready(await cluster.kube.get(NODES, "n1")) == "True"
        await cluster.settle(250)
        assert not (await cluster.kube.get(PODS, "p", "default"))["metadata"].get("deletionTimestamp")
        await cluster.settle(60)
        assert (await cluster.kube.get(PODS, "p", "default"))["metadata"]["deletionTimestamp"]

    with_controllers(work)


def test_a_node_that_comes_back_loses_its_taints(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await ghost_with_pod(cluster)
        await cluster.settle(50)
        assert ready(await cluster.kube.get(NODES, "ghost")) == "Unknown"
        await cluster.kube.patch(LEASES, "ghost", {"spec": {"renewTime": "2027-01-15T08:01:00.000000Z"}}, "kube-node-lease")
        await cluster.settle(2)
        assert not (await cluster.kube.get(NODES, "ghost"))["spec"].get("taints")

    with_controllers(work)


def test_a_node_without_a_kubelet_of_its_own_is_left_alone(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.kube.create(NODES, GHOST)
        await cluster.kube.patch(NODES, "ghost", {"status": GHOST["status"]}, subresource="status")
        await cluster.settle(200)
        assert ready(await cluster.kube.get(NODES, "ghost")) == "True"

    with_controllers(work)


def test_pods_of_a_deleted_node_are_removed(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await ghost_with_pod(cluster)
        await cluster.kube.delete(NODES, "ghost")
        await cluster.settle(30)
        assert await cluster.get(PODS, "p")
        await cluster.settle(15)
        assert await cluster.get(PODS, "p") is None

    with_controllers(work)


def test_pods_that_name_a_node_that_never_was_are_removed(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
        await cluster.kube.create(PODS, {**made, "spec": template(nodeName="nowhere")["spec"]})
        await cluster.settle(30)
        assert await cluster.get(PODS, "p")
        await cluster.settle(15)
        assert await cluster.get(PODS, "p") is None

    with_controllers(work)


def test_how_long_a_pod_stays_is_its_shortest_toleration() -> None:
    taint = {"key": UNREACHABLE, "effect": "NoExecute"}

    def stays(*tolerations: dict[str, Any]) -> float | None:
        return _tolerated_for({"spec": {"tolerations": list(tolerations)}}, taint)

    assert stays() == 0.0
    assert stays({"operator": "Exists"}) is None
    assert stays({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
                 {"key": "other", "operator": "Exists"}) == 30.0
    assert stays({"key": UNREACHABLE, "value": "other", "effect": "NoExecute"}) == 0.0


def test_a_taint_sends_away_who_does_not_tolerate_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        tolerations = {"stays": [{"key": "sick", "operator": "Equal", "value": "yes"}],
                       "later": [{"key": "sick", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
                       "goes": []}
        for name, each in tolerations.items():
            await cluster.make(PODS, "Pod", name, {**template()["spec"], "tolerations": each})
        await cluster.settle(4)
        taint = {"key": "sick", "value": "yes", "effect": "NoExecute"}
        await cluster.kube.patch(NODES, "n1", {"spec": {"taints": [taint]}})
        await cluster.settle(5)
        assert await leaving(cluster) == {"goes"}
        await cluster.settle(60)
        assert await leaving(cluster) == {"goes", "later"}
        await cluster.make(PODS, "Pod", "new", template()["spec"])
        await cluster.settle(2)
        assert await leaving(cluster) == {"goes", "later", "new"}

    with_controllers(work)


async def leaving(cluster: Cluster) -> set[str]:
    """Those that are gone or go."""
    there = {pod["metadata"]["name"] for pod in await cluster.pods() if not pod["metadata"].get("deletionTimestamp")}
    events = (await cluster.kube.list(EVENTS, "default"))["items"]
    reported = {e["involvedObject"]["name"] for e in events if e["reason"] == "TaintManagerEviction"}
    assert not reported & there
    return reported
