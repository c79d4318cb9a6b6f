"""The server in one process without sockets, in virtual time and with given random generator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from lab.tests.unit.apiserver.conftest import InProcess

Json = dict[str, Any]
Run = Callable[[Callable[[InProcess], Any]], Any]
MAPS = "/api/v1/namespaces/default/configmaps"


async def next_event(stream: AsyncIterator[bytes]) -> Json:
    return json.loads((await anext(stream)).splitlines()[0])


def test_uids_names_and_times_come_from_the_arguments(with_api: Run, tmp_path: Any) -> None:
    async def work(api: InProcess) -> Json:
        return await api.create(MAPS, {"metadata": {"generateName": "x-"}})

    made = with_api(work)
    assert made["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    (tmp_path / "state.db").unlink()
    again = with_api(work)
    assert {k: again["metadata"][k] for k in ("uid", "name")} == {k: made["metadata"][k] for k in ("uid", "name")}


def test_a_half_hour_watch_takes_no_time(with_api: Run) -> None:
    async def work(api: InProcess) -> list[str]:
        response = await api.call(
            "GET", MAPS, watch="true", allowWatchBookmarks="true", timeoutSeconds="1800", resourceVersion="1"
        )
        assert response.stream is not None
        types = [json.loads(line)["type"] async for chunk in response.stream for line in chunk.splitlines()]
        assert api.clock.time >= 1_700_000_000 + 1800
        return types

    types = with_api(work)
    assert set(types) == {"BOOKMARK"}
    assert 25 <= len(types) <= 31


def test_a_write_is_seen_by_a_watch_that_waits(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        revision = str(api.server.storage.revision)
        response = await api.call("GET", MAPS, watch="true", resourceVersion=revision)
        assert response.stream is not None
        waiting = asyncio.ensure_future(next_event(response.stream))
        await asyncio.sleep(0)
        await api.create(MAPS, {"metadata": {"name": "a"}})
        event = await waiting
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        await response.stream.aclose()  # type: ignore[attr-defined]

    with_api(work)


def test_a_watch_from_a_forgotten_revision_gets_410(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        api.server.storage._window = 10
        for i in range(30):
            await api.create(MAPS, {"metadata": {"name": f"a{i}"}})
        response = await api.call("GET", MAPS, watch="true", resourceVersion="12")
        assert response.stream is not None
        event = await next_event(response.stream)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        stale = await api.call("GET", MAPS, limit="2")
        token = stale.json()["metadata"]["continue"]
        for i in range(30, 60):
            await api.create(MAPS, {"metadata": {"name": f"a{i}"}})
        response = await api.call("GET", MAPS, limit="2", **{"continue": token})
        assert (response.code, response.json()["reason"]) == (410, "Expired")

    with_api(work)


def test_a_slow_watcher_falls_out_of_the_window_instead_of_filling_memory(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        response = await api.call("GET", MAPS, watch="true", resourceVersion=str(api.server.storage.revision))
        assert response.stream is not None
        await api.create(MAPS, {"metadata": {"name": "first"}})
        assert (await next_event(response.stream))["type"] == "ADDED"
        api.server.storage._window = 10
        for i in range(30):
            await api.create(MAPS, {"metadata": {"name": f"a{i}"}})
        assert (await next_event(response.stream))["type"] == "ERROR"

    with_api(work)


def toys(scope: str, versions: list[Json]) -> Json:
    names = {"plural": "toys", "kind": "Toy"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.example.com"},
        "spec": {"group": "example.com", "scope": scope, "names": names, "versions": versions},
    }


def test_everything_is_there_after_a_restart(with_api: Run) -> None:
    async def fill(api: InProcess) -> tuple[str, Json]:
        versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]
        crd = toys("Cluster", versions)
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        await api.create(
            "/apis/example.com/v1/toys", {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"}}
        )
        await api.create(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
        return str(api.server.storage.revision), (await api.call("GET", MAPS)).json()

    async def look(api: InProcess) -> tuple[str, Json, int]:
        toy = await api.call("GET", "/apis/example.com/v1/toys/t")
        return str(api.server.storage.revision), (await api.call("GET", MAPS)).json(), toy.code

    revision, maps = with_api(fill)
    assert with_api(look) == (revision, maps, 200)


def test_two_versions_of_a_custom_kind_show_one_object(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        versions = [{"name": "v1", "served": True, "storage": True, "schema": schema},
                    {"name": "v1beta1", "served": True, "storage": False, "schema": schema}]  # fmt: skip
        crd = toys("Namespaced", versions)
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        path = "/apis/example.com/{}/namespaces/default/toys"
        old = await api.create(
            path.format("v1beta1"),
            {"apiVersion": "example.com/v1beta1", "kind": "Toy", "metadata": {"name": "t"}, "a": 1},
        )
        assert old["apiVersion"] == "example.com/v1beta1"
        new = (await api.call("GET", path.format("v1") + "/t")).json()
        assert (new["apiVersion"], new["a"]) == ("example.com/v1", 1)
        listed = (await api.call("GET", path.format("v1beta1"))).json()
        assert [item["apiVersion"] for item in listed["items"]] == ["example.com/v1beta1"]
        merged = await api.call("PATCH", path.format("v1beta1") + "/t", {"a": 2}, media="application/merge-patch+json")
        assert (merged.json()["apiVersion"], merged.json()["a"]) == ("example.com/v1beta1", 2)

    with_api(work)


def test_a_service_account_token_is_known_until_it_expires(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "bob"}})
        made = await api.create(
            "/api/v1/namespaces/default/serviceaccounts/bob/token", {"spec": {"expirationSeconds": 600}}
        )
        token = made["status"]["token"]
        user = api.server.tokens.user(f"Bearer {token}")
        assert user is not None
        assert user.name == "system:serviceaccount:default:bob"
        assert api.server.tokens.user(f"Bearer {token[:-2]}xx") is None
        assert api.server.tokens.user("Bearer nonsense") is None
        api.clock.time += 601
        assert api.server.tokens.user(f"Bearer {token}") is None

    with_api(work)


def test_bad_bodies_are_refused_and_never_crash(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        bodies: list[Any] = [
            [], "text", 7, {"metadata": "no"}, {"metadata": {"name": 7}}, {"metadata": {"labels": []}}, {"kind": "Pod"},
            {"metadata": {"name": "a", "ownerReferences": [{}]}}, {"data": {"a": {"b": 1}}},
        ]  # fmt: skip
        for body in bodies:
            for path in (MAPS, "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/deployments"):
                response = await api.call("POST", path, body)
                assert response.code in (400, 422), (path, body, response.body)
        await api.create(MAPS, {"metadata": {"name": "a"}})
        for media in ("merge-patch", "strategic-merge-patch", "json-patch", "apply-patch"):
            kind = f"application/{media}+{'yaml' if media == 'apply-patch' else 'json'}"
            for body in [
                [],
                "text",
                {"metadata": []},
                [{"op": "fly"}],
                [{"op": "remove", "path": "/x/y"}],
                {"metadata": None},
            ]:
                response = await api.call("PATCH", f"{MAPS}/a", body, media=kind, fieldManager="m")
                assert response.code in (200, 400, 415, 422), (media, body, response.body)

    with_api(work)


def test_a_new_cluster_has_the_service_by_which_pods_find_its_api(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        service = (await api.call("GET", "/api/v1/namespaces/default/services/kubernetes")).json()
        assert service["spec"]["clusterIPs"] == ["10.96.0.1"]
        assert service["spec"]["ports"][0]["port"] == 443

    with_api(work)
