"""Owner garbage collection in its three ways, and the end of namespaces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from kit.direct_cluster import memory_cluster
from kit.virtual_time import VirtualClock, run_virtually
from lab.tests.unit.controllers.conftest import Cluster, template

from pumice.effects.vocabulary import Delete, Patch
from pumice.ports.cluster import ApiError, Json, Resource
from pumice.wire.kinds import CONFIGMAPS, CRDS, DEPLOYMENTS, NAMESPACES, PODS, REPLICA_SETS, SERVICE_ACCOUNTS
from pumice_lab.controllers import manager, namespaces
from pumice_lab.controllers.garbage import Meta, Vertex

With = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]


async def owned_tree(cluster: Cluster) -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template()}
    await cluster.make(DEPLOYMENTS, "Deployment", "d", spec)
    await cluster.settle()


async def config_map(cluster: Cluster, name: str, *owners: Json) -> Json:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
                  for o in owners]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default",
                                                                 "ownerReferences": references}}
    return await cluster.kube.create(CONFIGMAPS, body)


def test_background_deletion_takes_the_owner_first_and_everything_after_it(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await owned_tree(cluster)
        await cluster.kube.delete(DEPLOYMENTS, "d", "default", propagation="Background")
        assert await cluster.get(DEPLOYMENTS, "d") is None
        await cluster.settle(5)
        assert (await cluster.names(REPLICA_SETS), await cluster.names(PODS)) == ([], [])

    with_controllers(work)


def test_owners_in_a_circle_end_in_the_foreground_too(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        ring = [await config_map(cluster, name) for name in "abc"]
        for made, owner in zip(ring, ring[1:] + ring[:1], strict=True):
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                         "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
            owned = {"metadata": {"ownerReferences": [reference]}}
            await cluster.kube.patch(CONFIGMAPS, made["metadata"]["name"], owned, "default")
        await cluster.kube.delete(CONFIGMAPS, "a", "default", propagation="Foreground")
        await cluster.settle(20)
        assert await cluster.names(CONFIGMAPS) == []

    with_controllers(work)


def test_foreground_deletion_keeps_the_owner_until_its_dependents_are_gone(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await owned_tree(cluster)
        signal = cluster.runtime.signal

        async def slowly(ident: str, number: int) -> None:
            await cluster.clock.sleep(5)
            await signal(ident, number)

        cluster.runtime.signal = slowly  # type: ignore[method-assign]
        await cluster.kube.delete(DEPLOYMENTS, "d", "default", propagation="Foreground")
        await cluster.settle(2)
        owner = await cluster.get(DEPLOYMENTS, "d")
        assert owner
        assert owner["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert len(await cluster.names(REPLICA_SETS)) == 1
        await cluster.settle(20)
        assert await cluster.get(DEPLOYMENTS, "d") is None
        assert await cluster.names(PODS) == []

    with_controllers(work)


def test_orphaned_dependents_stay_without_their_owner(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await owned_tree(cluster)
        await cluster.kube.delete(DEPLOYMENTS, "d", "default", propagation="Orphan")
        await cluster.settle(5)
        assert await cluster.get(DEPLOYMENTS, "d") is None
        (left,) = (await cluster.kube.list(REPLICA_SETS, "default"))["items"]
        assert not left["metadata"].get("ownerReferences")
        assert len(await cluster.pods("Running")) == 2

    with_controllers(work)


def test_an_object_with_another_living_owner_only_loses_the_reference(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        one, two = await config_map(cluster, "one"), await config_map(cluster, "two")
        await config_map(cluster, "child", one, two)
        await cluster.settle()
        await cluster.kube.delete(CONFIGMAPS, "one", "default")
        await cluster.settle()
        child = await cluster.get(CONFIGMAPS, "child")
        assert child
        assert [o["name"] for o in child["metadata"]["ownerReferences"]] == ["two"]
        await cluster.kube.delete(CONFIGMAPS, "two", "default")
        await cluster.settle()
        assert await cluster.get(CONFIGMAPS, "child") is None

    with_controllers(work)


def test_an_object_made_for_an_owner_that_never_was_is_collected(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
        await config_map(cluster, "child", ghost)
        await cluster.settle()
        assert await cluster.get(CONFIGMAPS, "child") is None

    with_controllers(work)


def test_an_owner_of_an_unknown_kind_keeps_its_objects(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "11111111-2222-3333-4444-555555555555"}
        await cluster.kube.create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "child", "namespace": "default", "ownerReferences": [reference]}})
        await cluster.settle(30)
        assert await cluster.get(CONFIGMAPS, "child")

    with_controllers(work)


def test_a_deleted_namespace_is_emptied_and_goes(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await cluster.settle()
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": template()["spec"]}
        await cluster.kube.create(PODS, pod)
        await cluster.settle()
        await cluster.kube.delete(NAMESPACES, "team")
        await cluster.settle(10)
        assert await cluster.get(NAMESPACES, "team") is None
        assert await cluster.names(PODS, "team") == []
        assert not cluster.runtime.running()

    with_controllers(work)


def test_every_namespace_has_a_default_service_account(with_controllers: With) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await cluster.settle()
        for name in ("default", "kube-system", "team"):
            assert await cluster.names(SERVICE_ACCOUNTS, name) == ["default"]
        await cluster.kube.delete(SERVICE_ACCOUNTS, "default", "team")
        await cluster.settle()
        assert await cluster.names(SERVICE_ACCOUNTS, "team") == ["default"]

    with_controllers(work)


def test_a_kind_that_was_removed_and_comes_again_is_followed_again(with_controllers: With) -> None:
    pearls = Resource("sea.example", "v1", "pearls")
    kind = {
        "metadata": {"name": "pearls.sea.example"},
        "spec": {
            "group": "sea.example", "scope": "Namespaced", "names": {"kind": "Pearl", "plural": "pearls"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
        },
    }  # fmt: skip

    async def work(cluster: Cluster) -> None:
        for _ in range(2):
            await cluster.kube.create(CRDS, kind)
            await cluster.settle()
            owner = await config_map(cluster, "shell")
            await cluster.make(pearls, "Pearl", "p", {}, ownerReferences=[
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "shell", "uid": owner["metadata"]["uid"]}])  # fmt: skip
            await cluster.settle()
            await cluster.kube.delete(CONFIGMAPS, "shell", "default")
            await cluster.settle(5)
            assert await cluster.names(pearls) == []
            await cluster.kube.delete(CRDS, "pearls.sea.example")
            await cluster.settle(700)  # the watch ends, and is told that there is no such kind

    with_controllers(work)


def test_a_watch_that_ends_for_good_ends_the_controllers_too() -> None:
    """Else they would decide by what was long ago, and nobody would start them again."""

    class Refused(ValueError):
        pass

    async def story() -> None:
        clock = VirtualClock()
        kube, ready = await memory_cluster(clock), asyncio.Event()
        stream = kube.stream

        async def refuse_secrets(path: str, *more: Any, **options: Any) -> Any:
            if path.endswith("/secrets") and ready.is_set():
                raise Refused
            return await stream(path, *more, **options)

        kube.stream = refuse_secrets  # type: ignore[method-assign]
        running = manager.run(manager.ControllersSettings(), cluster=kube, clock=clock, rng=random.Random(1),
                            stop=asyncio.Event(), ready=ready)  # fmt: skip
        with pytest.raises(Refused):
            await asyncio.wait_for(running, 3600)

    run_virtually(story())


def test_what_came_and_went_between_two_lists_makes_no_pods_and_keeps_none() -> None:
    """Only the answer to its creation told of the ReplicaSet: the watch was away, and nothing says that it was deleted."""

    async def story() -> None:
        clock = VirtualClock()
        cluster = Cluster(await memory_cluster(clock), clock)
        kube, back, stop, ready = cluster.kube, asyncio.Event(), asyncio.Event(), asyncio.Event()
        stream = kube.stream

        async def away(path: str, *more: Any, **options: Any) -> Any:
            if path.endswith("/replicasets") and not back.is_set():
                await back.wait()
                raise ApiError(410, "Expired", "too old resource version")
            return await stream(path, *more, **options)

        kube.stream = away  # type: ignore[method-assign]
        running = asyncio.create_task(manager.run(manager.ControllersSettings(), cluster=kube, clock=clock, rng=random.Random(1),
                                                stop=stop, ready=ready))  # fmt: skip
        await ready.wait()
        await owned_tree(cluster)
        assert len(await cluster.pods()) == 2
        await kube.delete(DEPLOYMENTS, "d", "default")
        await cluster.settle()
        assert await cluster.names(REPLICA_SETS) == []
        back.set()
        await cluster.settle(60)
        assert await cluster.names(PODS) == []
        stop.set()
        await running

    run_virtually(story())


def test_a_namespace_ends_its_pods_before_what_they_use_and_says_what_is_left() -> None:
    namespace = {"metadata": {"name": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                 "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}}
    used = Vertex(CONFIGMAPS, Meta(name="used", namespace="n", uid="1"))
    pod = Vertex(PODS, Meta(name="p", namespace="n", uid="2", finalizers=["example.com/mine"]))
    first = namespaces.reconcile(namespace, [used, pod], "", 7.0)
    assert [action.name for action in first if isinstance(action, Delete)] == ["p"]
    (reported,) = [action.body["status"]["conditions"] for action in first if isinstance(action, Patch)]
    assert {c["type"]: c["message"] for c in reported if c["status"] == "True"} == {
        "NamespaceContentRemaining":
            "Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances",
        "NamespaceFinalizersRemaining":
            "Some content in the namespace has finalizers remaining: example.com/mine in 1 resource instances"}
    namespace["status"] = {"phase": "Terminating", "conditions": reported}
    again = namespaces.reconcile(namespace, [used, pod], "", 9.0)
    assert not any(isinstance(action, Patch) for action in again)
    last = namespaces.reconcile(namespace, [used], "", 9.0)
    assert [action.name for action in last if isinstance(action, Delete)] == ["used"]


def test_the_clusters_certificate_in_a_namespace_is_as_it_was_whoever_changes_it(tmp_path: Path) -> None:
    async def work() -> None:
        clock, stop, ready = VirtualClock(), asyncio.Event(), asyncio.Event()
        kube, ca = await memory_cluster(clock), tmp_path / "ca.crt"
        ca.write_text("PEM")
        settings = manager.ControllersSettings(ca)
        running = asyncio.create_task(manager.run(settings, cluster=kube, clock=clock, rng=random.Random(1),
                                                  stop=stop, ready=ready))  # fmt: skip
        await ready.wait()
        await clock.sleep(1)
        for wrong in ({"ca.crt": "mine"}, {"ca.crt": None}):
            await kube.patch(CONFIGMAPS, "kube-root-ca.crt", {"data": wrong}, "default")
            await clock.sleep(1)
            assert (await kube.get(CONFIGMAPS, "kube-root-ca.crt", "default"))["data"] == {"ca.crt": "PEM"}
        writes = kube.requests["PATCH"]
        await clock.sleep(10)
        assert kube.requests["PATCH"] == writes
        stop.set()
        await running

    run_virtually(work())


def test_a_namespace_of_any_size_is_emptied_in_bursts() -> None:
    many = [Vertex(CONFIGMAPS, Meta(name=f"m{i}", namespace="n", uid=f"u{i}")) for i in range(100_000)]
    space = {"metadata": {"name": "n", "uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"},
             "spec": {"finalizers": ["kubernetes"]}}
    actions = namespaces.reconcile(space, many, "", 0.0)
    assert sum(isinstance(action, Delete) for action in actions) == 500
