"""The contract of ``kit.fake_cluster``: each promise is kept by the real API servers too."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from kit.control_plane import Api
from kit.fake_cluster import FakeCluster

from pumice.adapters.kube import Access, KubeClient
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.wire.kinds import CONFIGMAPS, NODES, PODS

READY = {"type": "Ready", "status": "False", "reason": "Early"}
Promise = Callable[[Cluster, str], Awaitable[None]]
PROMISES: list[Promise] = []


def promise(act: Promise) -> Promise:
    PROMISES.append(act)
    return act


def a_pod(name: str, **spec: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "any"}], **spec}}  # fmt: skip


def a_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def binding(pod: Json, node: str, **annotations: str) -> bytes:
    meta = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "annotations": annotations}
    return json.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": meta,
                       "target": {"apiVersion": "v1", "kind": "Node", "name": node}}).encode()  # fmt: skip


async def refused(work: Awaitable[Any]) -> tuple[int, str]:
    with pytest.raises(ApiError) as reported:
        await work
    return reported.value.code, reported.value.reason


@promise
async def a_new_object_gets_an_identity_and_its_name_is_taken(cluster: Cluster, space: str) -> None:
    first = await cluster.create(CONFIGMAPS, a_map("a", x="1"), space)
    assert first["data"] == {"x": "1"}
    assert all(first["metadata"][field] for field in ("uid", "resourceVersion", "creationTimestamp"))
    assert await refused(cluster.create(CONFIGMAPS, a_map("a"), space)) == (409, "AlreadyExists")
    assert (await cluster.get(CONFIGMAPS, "a", space))["metadata"]["uid"] == first["metadata"]["uid"]
    await cluster.delete(CONFIGMAPS, "a", space)
    assert await refused(cluster.get(CONFIGMAPS, "a", space)) == (404, "NotFound")
    again = await cluster.create(CONFIGMAPS, a_map("a"), space)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


@promise
async def what_is_not_there_is_not_found(cluster: Cluster, space: str) -> None:
    assert await refused(cluster.get(PODS, "a", space)) == (404, "NotFound")
    assert await refused(cluster.patch(PODS, "a", {"metadata": {"labels": {"a": "b"}}}, space)) == (404, "NotFound")
    assert await refused(cluster.delete(PODS, "a", space)) == (404, "NotFound")
    nobody = {"metadata": {"name": "a", "uid": ""}}
    assert await refused(cluster.bind(space, "a", binding(nobody, "n"))) == (404, "NotFound")


@promise
async def a_merge_patch_adds_replaces_and_takes_away(cluster: Cluster, space: str) -> None:
    before = await cluster.create(CONFIGMAPS, a_map("a", x="1", y="2"), space)
    after = await cluster.patch(CONFIGMAPS, "a", {"data": {"y": None, "z": "3"}}, space)
    assert after["data"] == {"x": "1", "z": "3"}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    same = await cluster.patch(CONFIGMAPS, "a", {"data": {"z": "3"}}, space)
    assert same["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


@promise
async def a_change_meant_for_another_object_or_moment_is_refused(cluster: Cluster, space: str) -> None:
    made = await cluster.create(PODS, a_pod("a"), space)
    another = {"metadata": {"uid": "another", "labels": {"x": "0"}}}
    assert await refused(cluster.patch(PODS, "a", another, space)) == (422, "Invalid")
    await cluster.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}}, space)
    late = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"x": "2"}}}
    assert await refused(cluster.patch(PODS, "a", late, space)) == (409, "Conflict")
    assert await refused(cluster.delete(PODS, "a", space, uid="another")) == (409, "Conflict")
    assert (await cluster.get(PODS, "a", space))["metadata"]["labels"] == {"x": "1"}


@promise
async def a_status_goes_through_its_own_door_and_takes_annotations_along(cluster: Cluster, space: str) -> None:
    name = f"{space}-status"
    await cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                                 "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}})  # fmt: skip
    assert (await cluster.get(NODES, name))["status"]["allocatable"] == {"cpu": "4"}
    past = await cluster.patch(NODES, name, {"status": {"allocatable": {"cpu": "2"}}})
    assert past["status"]["allocatable"] == {"cpu": "4"}
    body = {"metadata": {"annotations": {"a": "b"}}, "spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "1"}}}
    after = await cluster.patch(NODES, name, body, subresource="status")
    assert after["status"]["allocatable"] == {"cpu": "1"}
    assert after["metadata"]["annotations"]["a"] == "b"
    assert "unschedulable" not in after.get("spec", {})


@promise
async def conditions_are_merged_by_their_type(cluster: Cluster, space: str) -> None:
    await cluster.create(PODS, a_pod("a", schedulingGates=[{"name": "example.com/wait"}]), space)
    for reported in ({"type": "Other", "status": "True"}, READY, {"type": "Ready", "status": "True"}):
        await cluster.patch(PODS, "a", {"status": {"conditions": [reported]}}, space, subresource="status", kind="strategic")
    found = {c["type"]: c for c in (await cluster.get(PODS, "a", space))["status"]["conditions"]}
    assert found["Other"]["status"] == "True"
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("True", "Early")


@promise
async def a_binding_writes_node_and_annotations_at_once_and_only_once(cluster: Cluster, space: str) -> None:
    pod = await cluster.create(PODS, a_pod("a"), space)
    another = {"metadata": {**pod["metadata"], "uid": "another"}}
    assert await refused(cluster.bind(space, "a", binding(another, "n1"))) == (409, "Conflict")
    await cluster.bind(space, "a", binding(pod, "n1", cards="0"))
    bound = await cluster.get(PODS, "a", space)
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]["cards"]) == ("n1", "0")
    assert await refused(cluster.bind(space, "a", binding(pod, "n1"))) == (409, "Conflict")
    gated = await cluster.create(PODS, a_pod("gated", schedulingGates=[{"name": "example.com/wait"}]), space)
    assert await refused(cluster.bind(space, "gated", binding(gated, "n1"))) == (409, "Conflict")


@promise
async def a_list_keeps_to_its_namespace_and_its_selector(cluster: Cluster, space: str) -> None:
    for name in ("a", "b"):
        await cluster.create(PODS, a_pod(name), space)
    pod = await cluster.create(PODS, a_pod("c"), space)
    await cluster.bind(space, "c", binding(pod, f"{space}-n"))
    listed = await cluster.list(PODS, space)
    assert {obj["metadata"]["name"] for obj in listed["items"]} == {"a", "b", "c"}
    assert int(listed["metadata"]["resourceVersion"]) >= int(pod["metadata"]["resourceVersion"])
    everywhere = await cluster.list(PODS, field_selector=f"spec.nodeName={space}-n")
    assert [obj["metadata"]["name"] for obj in everywhere["items"]] == ["c"]
    assert (await cluster.list(PODS, f"{space}-elsewhere"))["items"] == []


class Heard:
    """The events of a watch, one by one."""

    def __init__(self, events: AsyncIterator[Any]) -> None:
        self._events = events

    async def next(self) -> tuple[str, str]:
        while True:
            event = await asyncio.wait_for(anext(self._events), 30)
            if event.type != "BOOKMARK":
                return event.type, json.loads(event.raw)["metadata"]["name"] if event.raw else ""


@promise
async def a_watch_begins_with_what_is_there_and_goes_on_with_what_happens(cluster: Cluster, space: str) -> None:
    await cluster.create(CONFIGMAPS, a_map("a"), space)
    async with aclosing(cluster.watch(CONFIGMAPS, space)) as events:  # type: ignore[type-var]
        heard = Heard(events)
        assert [await heard.next(), await heard.next()] == [("ADDED", "a"), ("SYNCED", "")]
        await cluster.create(CONFIGMAPS, a_map("b"), space)
        await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, space)
        await cluster.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, space)  # nothing has changed
        await cluster.delete(CONFIGMAPS, "b", space)
        assert [await heard.next() for _ in range(3)] == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


@promise
async def a_selective_watch_hears_of_whoever_comes_to_be_selected(cluster: Cluster, space: str) -> None:
    pods = [await cluster.create(PODS, a_pod(name), space) for name in ("a", "b", "c")]
    async with aclosing(cluster.watch(PODS, field_selector=f"spec.nodeName={space}-n")) as events:  # type: ignore[type-var]
        heard = Heard(events)
        assert await heard.next() == ("SYNCED", "")
        await cluster.bind(space, "a", binding(pods[0], f"{space}-other"))
        await cluster.bind(space, "b", binding(pods[1], f"{space}-n"))
        await cluster.patch(PODS, "c", {"metadata": {"labels": {"a": "b"}}}, space)
        await cluster.patch(PODS, "b", {"metadata": {"labels": {"a": "b"}}}, space)
        assert [await heard.next(), await heard.next()] == [("ADDED", "b"), ("MODIFIED", "b")]
        await cluster.delete(PODS, "b", space, grace=0)
        while (reported := await heard.next()) == ("MODIFIED", "b"):
            """A pod of a node may be marked first."""
        assert reported == ("DELETED", "b")


@pytest.mark.parametrize("kept", PROMISES, ids=lambda act: act.__name__)
def test_the_fake_keeps_it(kept: Promise) -> None:
    asyncio.run(asyncio.wait_for(kept(FakeCluster(), "default"), 60))  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", PROMISES, ids=lambda act: act.__name__)
def test_the_api_server_keeps_it(kept: Promise, api: Api, namespace: str) -> None:
    async def play() -> None:
        tls = ssl.create_default_context(cafile=str(api.ca))
        async with KubeClient(Access(api.url, tls, lambda: api.token)) as cluster:
            await asyncio.wait_for(kept(cluster, namespace), 60)

    asyncio.run(play())
