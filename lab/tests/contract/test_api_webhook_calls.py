"""Webhooks that people bring along: conversion of custom objects between versions, and mutations that others look at again."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kit.control_plane import Api, Json, until

from pumice_lab.pki import ensure_pki

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MERGE = "application/merge-patch+json"


class Server:
    """An HTTPS server whose paths are answered by functions of the request of a review."""

    def __init__(self, directory: Path) -> None:
        self.paths: dict[str, Callable[[Json], Json]] = {}
        self.asked: list[tuple[str, Json]] = []
        pki = ensure_pki(directory, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
        self.bundle = base64.b64encode(pki.ca.read_bytes()).decode()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pki.server_cert, pki.server_key)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, name="webhook", daemon=True)
        self.thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.partition("?")[0]
                outer.asked.append((path, review["request"]))
                answer = {"uid": review["request"]["uid"], **outer.paths[path](review["request"])}
                body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler

    def client(self, path: str) -> Json:
        return {"url": f"https://127.0.0.1:{self.http.server_port}{path}", "caBundle": self.bundle}

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join(10)
        self.http.server_close()


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


# -- conversion -------------------------------------------------------------------------------------------------------

BETA, STABLE = "/apis/example.com/v1beta1/things", "/apis/example.com/v1/things"


def convert(request: Json) -> Json:
    """v1beta1 has ``host: name:port``, v1 has ``name`` and ``port``."""
    converted = []
    for value in request["objects"]:
        new = {**value, "apiVersion": request["desiredAPIVersion"]}
        if new["apiVersion"].endswith("beta1"):
            new["host"] = f"{new.pop('name', '')}:{new.pop('port', 0)}"
        else:
            name, _, port = new.pop("host", ":0").partition(":")
            new |= {"name": name, "port": int(port)}
        new["metadata"] = {**new["metadata"], "labels": {"came-from": value["apiVersion"].rpartition("/")[2]}}
        converted.append(new)
    return {"convertedObjects": converted, "result": {"status": "Success"}}


def definition(conversion: Json, storage: str = "v1") -> Json:
    texts, numbers = {"type": "string"}, {"type": "integer"}
    shapes = {"v1": {"name": texts, "port": {**numbers, "maximum": 65535}}, "v1beta1": {"host": {**texts, "maxLength": 40}}}
    versions = [{"name": name, "served": True, "storage": name == storage,
                 "schema": {"openAPIV3Schema": {"type": "object", "properties": shape}}} for name, shape in shapes.items()]
    return {"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
        "versions": versions, "conversion": conversion}}  # fmt: skip


@pytest.fixture
def things(api: Api, hooks: Server) -> Iterator[Server]:
    hooks.paths["/convert"] = convert
    webhook = {"clientConfig": hooks.client("/convert"), "conversionReviewVersions": ["v1"]}
    api.create(CRDS, definition({"strategy": "Webhook", "webhook": webhook}))
    api.until_served(STABLE, BETA)
    yield hooks
    api.delete(f"{CRDS}/things.example.com")
    until(lambda: api.call("GET", f"{CRDS}/things.example.com").code == 404)


def beta(name: str, host: str) -> Json:
    return {"apiVersion": "example.com/v1beta1", "kind": "Thing", "metadata": {"name": name}, "host": host}


def test_an_object_is_written_and_read_in_either_version(api: Api, things: Server) -> None:
    made = api.create(BETA, beta("t", "a:80"))
    assert (made["apiVersion"], made["host"], "name" in made) == ("example.com/v1beta1", "a:80", False)
    stable = api.get(f"{STABLE}/t")
    assert (stable["apiVersion"], stable["name"], stable["port"]) == ("example.com/v1", "a", 80)
    assert stable["metadata"]["labels"] == {"came-from": "v1beta1"}
    assert stable["metadata"]["uid"] == made["metadata"]["uid"]
    assert api.get(f"{BETA}/t")["host"] == "a:80"
    changed = api.merge(f"{BETA}/t", {"host": "b:81"})
    assert (changed["host"], changed["metadata"]["generation"]) == ("b:81", 2)
    assert api.get(f"{STABLE}/t")["port"] == 81
    api.merge(f"{STABLE}/t", {"name": "c"})
    applied = api.apply(f"{BETA}/t", beta("t", "d:82"), "me", force=True)
    assert (applied.code, applied.json["host"]) == (200, "d:82")
    put = api.update(f"{BETA}/t", {**api.get(f"{BETA}/t"), "host": "e:83"})
    assert put["host"] == "e:83"
    assert {request["desiredAPIVersion"] for _, request in things.asked} == {"example.com/v1", "example.com/v1beta1"}


def test_lists_and_watches_and_deletions_speak_the_version_asked_for(api: Api, things: Server) -> None:
    for number in range(3):
        api.create(BETA, beta(f"t{number}", f"a:{number}"))
    assert [item["port"] for item in api.get(STABLE)["items"]] == [0, 1, 2]
    assert [item["host"] for item in api.get(BETA)["items"]] == ["a:0", "a:1", "a:2"]
    assert [item["host"] for item in api.get(BETA, limit=2)["items"]] == ["a:0", "a:1"]
    with api.watch(BETA) as events:
        assert [next(events)["object"]["host"] for _ in range(3)] == ["a:0", "a:1", "a:2"]
        api.merge(f"{STABLE}/t1", {"port": 9})
        assert next(events)["object"]["host"] == "a:9"
    api.merge(f"{STABLE}/t1", {"metadata": {"finalizers": ["mine"]}})
    assert api.delete(f"{BETA}/t1")["host"] == "a:9"
    api.merge(f"{BETA}/t1", {"metadata": {"finalizers": None}})
    assert [item["host"] for item in api.delete(BETA)["items"]] == ["a:0", "a:2"]
    assert api.get(STABLE)["items"] == []


def test_a_version_is_held_to_its_own_schema(api: Api, things: Server) -> None:
    assert api.call("POST", BETA, beta("t", "x" * 41)).code == 422
    assert api.call("POST", STABLE, {**beta("t", "a:1"), "apiVersion": "example.com/v1", "port": 70000}).code == 422


@pytest.mark.parametrize(("answer", "why"), [
    (lambda request: {"convertedObjects": [], "result": {"status": "Failed", "message": "not today"}}, "failed: not today"),
    (lambda request: {"convertedObjects": [], "result": {"status": "Success"}}, "returned 0 objects, expected 1"),
    (lambda request: {"convertedObjects": request["objects"], "result": {"status": "Success"}}, "invalid groupVersion"),
    (lambda request: convert({**request, "objects": [{**value, "metadata": {**value["metadata"], "uid": "other"}}
                                                     for value in request["objects"]]}), "must have the same UID: "),
])  # fmt: skip
def test_a_converter_that_fails_fails_the_request_with_its_reason(api: Api, things: Server, answer: Callable[[Json], Json],
                                                                  why: str) -> None:  # fmt: skip
    api.create(STABLE, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "name": "a", "port": 1})
    things.paths["/convert"] = answer
    refused = api.call("GET", f"{BETA}/t")
    assert refused.code == 500
    assert refused.json["message"].startswith("conversion webhook for example.com/v1, Kind=Thing ")
    assert why in refused.json["message"]
    assert api.get(f"{STABLE}/t")["port"] == 1


def test_objects_of_an_earlier_storage_version_are_converted_too(api: Api, things: Server) -> None:
    api.create(STABLE, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "name": "a", "port": 1})
    moved = definition(api.get(f"{CRDS}/things.example.com")["spec"]["conversion"], "v1beta1")
    api.merge(f"{CRDS}/things.example.com", {"spec": moved["spec"]})
    until(lambda: api.get(f"{BETA}/t")["host"] == "a:1")
    assert api.get(f"{STABLE}/t")["port"] == 1
    assert api.merge(f"{STABLE}/t", {"port": 2})["port"] == 2
    assert api.get(f"{BETA}/t")["host"] == "a:2"


@pytest.mark.parametrize("conversion", [
    {"strategy": "Magic"}, {"strategy": "Webhook"}, {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}},
    {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}},
    {"strategy": "Webhook", "webhook": {"conversionReviewVersions": [], "clientConfig": {"url": "https://127.0.0.1:1"}}},
])  # fmt: skip
def test_a_conversion_that_cannot_be_is_refused(api: Api, conversion: Json) -> None:
    assert api.call("POST", CRDS, definition(conversion), dryRun="All").code == 422


# -- mutations --------------------------------------------------------------------------------------------------------


def adding(key: str, seen: str = "") -> Callable[[Json], Json]:
    """Sets a key of a ConfigMap, to what it finds at ``seen``."""

    def answer(request: Json) -> Json:
        data = request["object"].get("data") or {}
        value = data.get(seen, "not yet") if seen else "yes"
        if data.get(key) == value:
            return {"allowed": True}
        patch = [{"op": "add", "path": f"/data/{key}", "value": value}]
        return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}

    return answer


@pytest.mark.parametrize(("policy", "first", "calls"), [("IfNeeded", "yes", 2), ("Never", "not yet", 1)])
def test_a_webhook_that_wants_to_sees_what_later_ones_made_of_it(api: Api, namespace: str, hooks: Server, policy: str, first: str,
                                                                 calls: int) -> None:  # fmt: skip
    hooks.paths |= {"/first": adding("first", "second"), "/second": adding("second")}
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    name = f"hooks-of-{namespace}"
    api.create(HOOKS, {"metadata": {"name": name}, "webhooks": [
        {"name": f"{path}.example.com", "clientConfig": hooks.client(f"/{path}"), "rules": rules, "sideEffects": "None",
         "admissionReviewVersions": ["v1"], "reinvocationPolicy": policy,
         "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}} for path in ("first", "second")]})
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"metadata": {"name": "a"}, "data": {"own": "1"}}
    try:
        until(lambda: "second" in api.create(maps, body, dryRun="All")["data"])
        hooks.asked.clear()
        assert api.create(maps, body)["data"] == {"own": "1", "first": first, "second": "yes"}
        assert [path for path, _ in hooks.asked] == ["/first", "/second"] * calls
    finally:
        api.delete(f"{HOOKS}/{name}")


@pytest.mark.parametrize("patch", ["null", "[]"])
def test_a_webhook_that_has_nothing_to_change_may_say_so_by_an_empty_patch(api: Api, namespace: str, hooks: Server,
                                                                           patch: str) -> None:  # fmt: skip
    said = {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
    hooks.paths["/mutating"] = lambda request: said
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    api.create(HOOKS, {"metadata": {"name": f"hooks-of-{namespace}"}, "webhooks": [{
        "name": "mutating.example.com", "clientConfig": hooks.client("/mutating"), "rules": rules, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]})
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    try:
        until(lambda: api.create(maps, {"metadata": {"generateName": "a-"}, "data": {"own": "1"}}) and hooks.asked)
    finally:
        api.delete(f"{HOOKS}/hooks-of-{namespace}")


def mending(request: Json) -> Json:
    """Takes a key away that no ConfigMap may have, where it is asked to."""
    if "mend" not in request["object"]["metadata"].get("labels", {}):
        return {"allowed": True}
    patch = base64.b64encode(json.dumps([{"op": "remove", "path": "/data/no key"}]).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@contextlib.contextmanager
def both_kinds(api: Api, hooks: Server, namespace: str, *operations: str) -> Iterator[None]:
    """A mutating and a validating webhook for the namespace's ConfigMaps."""
    rules = [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    made = []
    try:
        for kind in ("mutating", "validating"):
            made.append(f"{HOOKS.replace('mutating', kind)}/hooks-of-{namespace}")
            api.create(HOOKS.replace("mutating", kind), {"metadata": {"name": f"hooks-of-{namespace}"}, "webhooks": [{
                "name": f"{kind}.example.com", "clientConfig": hooks.client(f"/{kind}"), "rules": rules, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]})
        yield
    finally:
        for path in made:
            api.delete(path)


def test_an_object_is_found_valid_after_webhooks_have_changed_it_and_before_others_judge_it(api: Api, namespace: str,
                                                                                            hooks: Server) -> None:  # fmt: skip
    """Kubernetes "Dynamic Admission Control": object validation lies between the two kinds of webhooks."""
    hooks.paths |= {"/mutating": mending, "/validating": lambda request: {"allowed": request["object"]["data"]["own"] != "no"}}
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    with both_kinds(api, hooks, namespace, "CREATE", "UPDATE"):
        until(lambda: api.call("POST", maps, {"metadata": {"name": "a"}, "data": {"own": "no"}}).code == 400)
        api.create(maps, {"metadata": {"name": "a"}, "data": {"own": "1"}})
        ill = {"metadata": {"name": "a"}, "data": {"own": "1", "no key": "1"}}
        for method, path, body in (("POST", maps, {**ill, "metadata": {"generateName": "b-"}}), ("PUT", f"{maps}/a", ill)):
            hooks.asked.clear()
            assert api.call(method, path, body).code == 422
            assert [asked for asked, _ in hooks.asked] == ["/mutating"]
            hooks.asked.clear()
            found = api.call(method, path, {**body, "metadata": {**body["metadata"], "labels": {"mend": ""}}}).json
            assert found["data"] == {"own": "1"}
            assert [asked for asked, _ in hooks.asked] == ["/mutating", "/validating"]
            seen = hooks.asked[-1][1]["object"]
            assert (seen["data"], seen["metadata"]["name"]) == (found["data"], found["metadata"]["name"])


UPDATES: dict[str, Callable[[Api, str], Json]] = {
    "PUT": lambda api, path: api.update(path, {"metadata": {"name": "a"}, "data": {"own": "2"}}),
    "merge patch": lambda api, path: api.merge(path, {"data": {"own": "2"}}),
    "apply": lambda api, path: api.apply(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                                                "data": {"own": "2"}}, "me", force=True).json,
}  # fmt: skip


@pytest.mark.parametrize("way", UPDATES)
def test_what_a_webhook_makes_of_an_update_is_what_others_judge_and_what_is_stored(api: Api, namespace: str, hooks: Server,
                                                                                   way: str) -> None:  # fmt: skip
    hooks.paths |= {"/mutating": adding("theirs"), "/validating": lambda request: {"allowed": True}}
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(maps, {"metadata": {"name": "a"}, "data": {"own": "1"}})
    api.create(maps, {"metadata": {"name": "probe"}, "data": {"own": "1"}})
    with both_kinds(api, hooks, namespace, "UPDATE"):
        until(lambda: api.merge(f"{maps}/probe", {"metadata": {"labels": {"n": str(len(hooks.asked))}}}) and len(hooks.asked) > 1)
        hooks.asked.clear()
        wanted = {"own": "2", "theirs": "yes"}
        assert UPDATES[way](api, f"{maps}/a")["data"] == wanted
        assert api.get(f"{maps}/a")["data"] == wanted
        assert [(path, request["object"]["data"]) for path, request in hooks.asked] == [
            ("/mutating", {"own": "2"}), ("/validating", wanted)]  # fmt: skip
