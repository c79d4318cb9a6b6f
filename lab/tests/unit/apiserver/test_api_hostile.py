"""Whatever anybody sends is answered: with a refusal that names what is wrong, within bounds of time and memory."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from kit.virtual_time import run_virtually
from lab.tests.unit.apiserver.conftest import InProcess

from pumice_lab.apiserver import Request, Response
from pumice_lab.apiserver.bodies import DEPTH_LIMIT
from pumice_lab.apiserver.fairness import Seats
from pumice_lab.apiserver.http_types import User

Json = dict[str, Any]
Run = Callable[[Callable[[InProcess], Any]], Any]
MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
YAML, APPLY, PATCH = "application/yaml", "application/apply-patch+yaml", "application/json-patch+json"
GUEST = User("guest", groups=("system:authenticated",))


async def send(api: InProcess, method: str, path: str, body: bytes, media: str, **query: str) -> Response:
    return await api.server.handle(Request(method, path, {k: [v] for k, v in query.items()}, {"content-type": media}, body))


async def asks(api: InProcess, user: User, path: str, **headers: str) -> Response:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return await api.server.handle(Request("GET", path, {}, named, b"", user))


BOMBS = {
    "lists without end": (YAML, b"[" * 50_000),
    "maps without end": (YAML, b"{a: " * 50_000),
    "lists within lists": (YAML, b"- " * 5_000 + b"1"),
    "aliases of aliases": (YAML, b"a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 10))),
    "an alias of itself": (YAML, b"a: &a [*a]\n"),
    "a number to base 60": (YAML, b"metadata: !!int 1" + b":59" * 500_000),
    "python objects": (YAML, b"a: !!python/object/apply:os.system [id]\n"),
    "a binary": (YAML, b"a: !!binary aGk=\n"),
    "deep JSON": ("application/json", b'{"a":' * 200 + b"1" + b"}" * 200),
    "very deep JSON": ("application/json", b"[" * 100_000),
    "a long number": ("application/json", b'{"metadata":{"generation":' + b"9" * 100_000 + b"}}"),
    "half a character": ("application/json", b'{"metadata":{"name":"\xff"}}'),
    "a number without end in protobuf": ("application/vnd.kubernetes.protobuf", b"k8s\0" + b"\xff" * 3_000_000),
    "deep protobuf": ("application/vnd.kubernetes.protobuf", b"k8s\0" + b"\x12\x7f" * 20_000),
}  # fmt: skip


def test_a_body_that_is_a_bomb_is_a_bad_request() -> None:
    """In a process of its own: a stack overflow in C ends that."""
    code = (
        "from pumice_lab.apiserver.http_types import Request\n"
        "from pumice_lab.apiserver.errors import ApiFailure\n"
        "from lab.tests.unit.apiserver.test_api_hostile import BOMBS\n"
        "for name, (media, body) in BOMBS.items():\n"
        "    try: Request('POST', '/', {}, {'content-type': media}, body).value()\n"
        "    except ApiFailure as problem: print(name, problem.code, flush=True)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert child.stdout.splitlines() == [f"{name} 400" for name in BOMBS], child.stderr[-2000:]
    assert child.returncode == 0


def test_an_object_as_deep_as_any_real_one_passes_in_json_and_in_every_form_of_yaml(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        flow = b"{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {a: 'x', b: \"12:30:45\"}}"
        for i, media in enumerate((YAML, APPLY)):
            name = b"flow%d" % i
            method, path = ("POST", MAPS) if media == YAML else ("PATCH", f"{MAPS}/{name.decode()}")
            response = await send(api, method, path, flow % name, media, fieldManager="m")
            assert response.code == 201, response.body
            assert response.json()["data"] == {"a": "x", "b": "12:30:45"}
        crd = definition({"deep": json.loads('{"type":"object","properties":{"a":' * 20 + '{"type":"string"}' + "}}" * 20)})
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)

    with_api(work)
    assert DEPTH_LIMIT >= 64


def definition(properties: Json, kind: str = "Thing") -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    plural = f"{kind.lower()}s"
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}}  # fmt: skip


def test_the_time_of_a_pattern_grows_with_the_text_alone(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await api.create(crds, definition({"a": {"type": "string", "pattern": "^(a+)+$"}}))
        things = "/apis/example.com/v1/namespaces/default/things"
        bad = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "a" * 5000 + "!"}}
        response = await api.call("POST", things, bad)
        assert response.code == 422
        assert "should match '^(a+)+$'" in response.json()["message"]
        assert (await api.call("POST", things, {**bad, "spec": {"a": "a" * 5000}})).code == 201
        for pattern in ("(", r"(?=a)", r"\1", r"\pL{900}", "x?" * 30_000):
            response = await api.call("POST", crds, definition({"a": {"type": "string", "pattern": pattern}}, "Other"))
            assert response.code == 422
            assert "must be a valid regular expression" in response.json()["message"]

    with_api(work)


def test_a_pattern_that_long_texts_lead_astray_is_not_tried_on_them(with_api: Run) -> None:
    """RE2 gives up its table of states then, and goes through every one of them at each letter."""

    async def work(api: InProcess) -> None:
        crds, things = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/things"
        await api.create(crds, definition({"a": {"type": "string", "pattern": "(a|b|ab)*" * 100 + "$"},
                                           "b": {"type": "string", "pattern": "^[a-z]*$"}}))
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
        before = time.thread_time()
        response = await api.call("POST", things, {**thing, "spec": {"a": "ab" * 500_000}})
        assert (response.code, "takes too long" in response.json()["message"]) == (413, True)
        assert (await api.call("POST", things, {**thing, "spec": {"a": "ab" * 300, "b": "b" * 1_000_000}})).code == 201
        assert time.thread_time() - before < 1

    with_api(work)


def test_defaults_of_many_elements_are_refused_before_they_are_filled_in(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        nested: Json = {"type": "string", "default": "x" * 1000}
        for _ in range(8):
            nested = {"type": "object", "default": {}, "properties": {"a": nested, "b": nested}}
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(
            {"many": {"type": "array", "items": nested}}))
        before = time.thread_time()
        for count, code in ((40_000, 413), (1, 201)):
            head = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"generateName": "a"}}
            thing = {**head, "spec": {"many": [{}] * count}}
            response = await api.call("POST", "/apis/example.com/v1/namespaces/default/things", thing)
            assert response.code == code, response.body
        assert time.thread_time() - before < 1

    with_api(work)


def test_a_large_body_of_somebody_without_the_right_is_not_read(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        body = b"[" * 100_000
        for path, code in ((MAPS, 403), ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 400)):
            asked = Request("POST", path, {}, {"content-type": YAML}, body, GUEST)
            assert (await api.server.handle(asked)).code == code

    with_api(work)


def test_an_object_is_updated_by_who_read_it_though_its_managers_names_come_back(with_api: Run) -> None:
    """They are as many as its fields, and not counted."""

    async def work(api: InProcess) -> None:
        made = await api.create(MAPS, {"metadata": {"name": "a"}, "data": {f"k{i}": "" for i in range(40_000)}})
        made["data"]["k0"] = "x"
        assert (await api.call("PUT", f"{MAPS}/a", made)).code == 200
        response = await api.call("PATCH", f"{MAPS}/a", {"data": {"k1": "y"}}, media="application/merge-patch+json")
        assert response.code == 200, response.body
        more = {"data": {f"l{i}": "" for i in range(20_000)}}
        assert (await api.call("PATCH", f"{MAPS}/a", more, media="application/merge-patch+json")).code == 413

    with_api(work)


def test_others_are_served_while_a_collection_is_deleted(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        for i in range(550):
            await api.create(MAPS, {"metadata": {"name": f"m{i}", **({"finalizers": ["a.b/c"]} if i % 50 == 0 else {})}})
        deleting = asyncio.create_task(api.call("DELETE", MAPS))
        left = []
        while not deleting.done():
            response = await api.call("GET", MAPS, limit="1")
            left.append(int(response.json()["metadata"].get("remainingItemCount", 0)))
            await asyncio.sleep(0)
        assert len(set(left)) >= 4, left
        assert len(deleting.result().json()["items"]) == 550
        assert len((await api.call("GET", MAPS)).json()["items"]) == 11, "those that somebody holds"

    with_api(work)


def test_a_namespace_that_is_full_takes_no_more_and_the_others_do(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        await api.create("/api/v1/namespaces", {"metadata": {"name": "greedy"}})
        greedy = "/api/v1/namespaces/greedy/configmaps"
        api.server.storage.namespace_limit = 1_000_000
        answers = [await api.call("POST", greedy, {
            "metadata": {"name": f"m{i}", "finalizers": ["a.b/c"]}, "data": {"a": "x" * 100_000}}) for i in range(12)]
        assert [answer.code for answer in answers] == [201] * 9 + [413] * 3
        assert "the namespace holds" in answers[-1].json()["message"]
        await api.create(MAPS, {"metadata": {"name": "m"}, "data": {"a": "x" * 100_000}})
        assert (await api.call("PATCH", f"{greedy}/m0", {"data": {"a": "y"}}, media="application/merge-patch+json")).code == 200
        assert (await api.call("DELETE", f"{greedy}/m1")).code == 200, "to end takes no room"
        for i in range(9):
            drop = {"metadata": {"finalizers": None}}
            await api.call("PATCH", f"{greedy}/m{i}", drop, media="application/merge-patch+json")
            await api.call("DELETE", f"{greedy}/m{i}")
        assert (await api.call("POST", greedy, {"metadata": {"name": "n"}, "data": {"a": "x" * 100_000}})).code == 201

    with_api(work)
    with_api(lambda api: api.call("GET", MAPS))


def test_of_those_whose_large_bodies_wait_nobody_comes_twice_before_the_others() -> None:
    async def work() -> list[str]:
        line, order = Seats(), list[str]()

        async def one(user: str) -> None:
            async with line.turn(user):
                order.append(user)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(user)) for user in ("a", "a", "a", "a", "b", "c")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(work()) == ["a", "b", "c", "a", "a"]


def test_what_controllers_write_for_one_namespace_leaves_the_loop_seven_times_as_long_and_others_come_between() -> None:
    """So a Deployment of 2^31 pods, or a namespace of thousands that goes, held every other client up for seconds."""

    async def work() -> list[tuple[str, float]]:
        seats, order = Seats(2, rests=7.0), list[tuple[str, float]]()

        async def one(namespace: str) -> None:
            async with seats.turn(namespace):
                order.append((namespace, round(asyncio.get_running_loop().time(), 3)))
                await asyncio.sleep(0.1)

        await asyncio.gather(*(one(namespace) for namespace in ("a", "a", "a", "a", "a", "b")))
        return order

    assert run_virtually(work()) == [("a", 0.0), ("a", 0.0), ("a", 0.8), ("b", 0.8), ("a", 1.6), ("a", 1.6)]


def test_a_json_patch_cannot_grow_beyond_what_a_body_may_hold(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        await api.create(MAPS, {"metadata": {"name": "a"}, "data": {"a": "x" * 1000}})
        double = [{"op": "copy", "from": "/data", "path": f"/data/k{i}"} for i in range(30)]
        response = await api.call("PATCH", f"{MAPS}/a", double, media=PATCH)
        assert response.code == 422
        assert "copies more than" in response.json()["message"]
        small = [{"op": "add", "path": "/data/a", "value": [[]] * 10_000}, *(
            {"op": "copy", "from": "/data/a", "path": f"/data/b{i}"} for i in range(10))]
        response = await api.call("PATCH", f"{MAPS}/a", small, media=PATCH)
        assert (response.code, "copies more than 50000 values" in response.json()["message"]) == (422, True)
        many = [{"op": "test", "path": "/metadata/name", "value": "a"}] * 10_001
        assert (await api.call("PATCH", f"{MAPS}/a", many, media=PATCH)).code == 413
        for odd in ({"op": "copy", "path": "/a"}, {"op": "move", "from": 7, "path": "/a"},
                    {"op": "copy", "from": "/data", "path": "/metadata/finalizers/²"}):  # fmt: skip
            assert (await api.call("PATCH", f"{MAPS}/a", [odd], media=PATCH)).code in (400, 422), odd

    with_api(work)


def test_a_binding_without_a_name_is_refused_and_one_in_the_database_harms_nobody(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        for subject in ({"kind": "User"}, {"kind": "Dog", "name": "a"}, {"kind": "ServiceAccount", "name": "a"}):
            body = {"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]}
            response = await api.call("POST", f"{RBAC}/clusterrolebindings", body)
            assert response.code == 422, subject
        for reference in ({}, {"kind": "Role", "name": "a"}, {"kind": "ClusterRole"}):
            body = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": []}
            assert (await api.call("POST", f"{RBAC}/clusterrolebindings", body)).code == 422, reference
        assert (await api.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": [{}]})).code == 422
        old = {"kind": "ClusterRoleBinding", "metadata": {"name": "old"}, "subjects": [{"kind": "User"}, {}], "roleRef": {}}
        api.server.storage.put("rbac.authorization.k8s.io/clusterrolebindings", "", "old", old)
        assert (await asks(api, GUEST, MAPS)).code == 403
        assert (await asks(api, GUEST, "/apis")).code == 200

    with_api(work)


def test_a_role_of_a_namespace_may_speak_of_the_namespace_itself(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
        await api.create(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "see"}, "rules": [rule]})
        await api.create(f"{RBAC}/namespaces/default/rolebindings", {
            "metadata": {"name": "see"}, "subjects": [{"kind": "User", "name": "guest"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "see"}})  # fmt: skip
        assert (await asks(api, GUEST, "/api/v1/namespaces/default")).code == 200
        assert (await asks(api, GUEST, "/api/v1/namespaces/kube-system")).code == 403
        assert (await asks(api, GUEST, "/api/v1/namespaces")).code == 403

    with_api(work)


def test_a_cluster_role_binding_that_an_earlier_version_let_into_a_namespace_is_gone_after_a_start(with_api: Run) -> None:
    store = "rbac.authorization.k8s.io/clusterrolebindings"

    async def before(api: InProcess) -> None:
        stolen = {"kind": "ClusterRoleBinding", "metadata": {"name": "all", "uid": "u"},
                  "subjects": [{"kind": "User", "name": "guest"}],
                  "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}
        api.server.storage.put(store, "default", "all", stolen)
        await api.server.storage.durable()

    async def after(api: InProcess) -> None:
        assert (await asks(api, GUEST, MAPS)).code == 403
        assert api.server.storage.get(store, "default", "all") is None

    with_api(before)
    with_api(after)


async def token(api: InProcess, spec: Json) -> str:
    return str((await api.create(f"{ACCOUNTS}/robot/token", {"spec": spec}))["status"]["token"])


def test_a_token_lives_no_longer_than_what_it_speaks_for(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        tokens = api.server.tokens
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        pod = await api.create("/api/v1/namespaces/default/pods", {
            "metadata": {"name": "p"},
            "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}})  # fmt: skip
        own = await token(api, {})
        foreign = await token(api, {"audiences": ["vault"]})
        bound = await token(api, {"boundObjectRef": {"kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}})
        users = [tokens.user(f"Bearer {text}") for text in (own, bound)]
        assert [user.name for user in users if user] == ["system:serviceaccount:default:robot"] * 2
        assert users[1]
        assert users[1].extra["authentication.kubernetes.io/pod-name"] == ("p",)
        assert tokens.user(f"Bearer {foreign}") is None
        review = {"spec": {"token": foreign, "audiences": ["vault"]}}
        status = (await api.create("/apis/authentication.k8s.io/v1/tokenreviews", review))["status"]
        assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
        await api.call("DELETE", "/api/v1/namespaces/default/pods/p", gracePeriodSeconds="0")
        assert tokens.user(f"Bearer {bound}") is None
        await api.call("DELETE", f"{ACCOUNTS}/robot")
        assert tokens.user(f"Bearer {own}") is None
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        assert tokens.user(f"Bearer {own}") is None, "another account of the same name"

    with_api(work)


def test_a_token_that_is_garbage_is_nobodys(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        for text in ("a", "a.b.c", "ä.ö.ü", "\udcff.\udcff.x", "..", "x" * 100_000, base64.b64encode(b"{}").decode() + ".x"):
            assert api.server.tokens.user(f"Bearer {text}") is None

    with_api(work)


ODD_TOKENS: list[Json] = [
    {"expirationSeconds": 10**30}, {"expirationSeconds": (1 << 32) + 1}, {"expirationSeconds": True},
    {"expirationSeconds": 1e300}, {"expirationSeconds": "600"}, {"expirationSeconds": -1},
    {"audiences": "a"}, {"audiences": [7]}, {"boundObjectRef": 7}, {"boundObjectRef": {"kind": "Node"}},
]  # fmt: skip
ODD_DELETIONS: list[Json] = [
    {"preconditions": 7}, {"preconditions": {"uid": 7}}, {"preconditions": []}, {"gracePeriodSeconds": "x"},
    {"gracePeriodSeconds": 1e30}, {"gracePeriodSeconds": 1 << 63}, {"propagationPolicy": 7}, {"dryRun": "All"},
    {"orphanDependents": 7},
]  # fmt: skip


def test_odd_requests_are_refused_by_name(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        for spec in ODD_TOKENS:
            response = await api.call("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
            assert response.code in (400, 422), (spec, response.body)
        for options in ODD_DELETIONS:
            response = await api.call("DELETE", f"{ACCOUNTS}/robot", options)
            assert response.code in (400, 422), (options, response.body)
        for kind in ("subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"):
            for spec in ({"groups": 7}, {"resourceAttributes": []}, {"namespace": 7}, 7):
                response = await api.call("POST", f"/apis/authorization.k8s.io/v1/{kind}", {"spec": spec})
                assert response.code in (201, 400, 422), (kind, spec, response.body)
        for query in ({"limit": "9" * 5000}, {"limit": "1" + "0" * 30}, {"timeoutSeconds": "1e9", "watch": "1"}):
            assert (await api.call("GET", MAPS, **query)).code == 400, query

    with_api(work)


def test_odd_objects_are_refused_and_harm_no_others(with_api: Run) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}

    async def work(api: InProcess) -> None:
        await api.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "says-nothing"}})
        await api.create(pods, {"metadata": {"name": "p"}, **pod})
        for field in ("priorityClassName", "serviceAccountName", "runtimeClassName"):
            assert (await api.call("POST", pods, {"spec": {**pod["spec"], field: "no"}})).code == 403, field
        letters = {"metadata": {"name": "s"}, "data": {"a": "\u00fc"}}
        assert (await api.call("POST", "/api/v1/namespaces/default/secrets", letters)).code == 400
        rules = {"a": {"type": "integer", "default": 1, "not": {"x-kubernetes-validations": [{"message": "m"}]}}}
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert (await api.call("POST", crds, definition(rules))).code in (201, 422)

    with_api(work)


def test_secrets_and_objects_have_a_size(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        big = base64.b64encode(b"x" * ((1 << 20) + 1)).decode()
        fits = base64.b64encode(b"x" * (1 << 20)).decode()
        secrets = "/api/v1/namespaces/default/secrets"
        assert (await api.call("POST", secrets, {"metadata": {"name": "big"}, "data": {"a": big}})).code == 422
        assert (await api.call("POST", secrets, {"metadata": {"name": "fits"}, "data": {"a": fits}})).code == 201
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await api.create(crds, definition({"a": {"type": "string"}}))
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "x" * 2_200_000}}
        response = await api.call("POST", "/apis/example.com/v1/namespaces/default/things", thing)
        assert (response.code, response.json()["reason"]) == (413, "RequestEntityTooLarge")

    with_api(work)


def test_nobody_is_somebody_else_without_the_right(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        admin = User("kubernetes-admin", groups=("system:masters",))
        assert (await asks(api, admin, MAPS)).code == 200
        answer = await asks(api, admin, MAPS, impersonate_user="nobody")
        assert (answer.code, 'User "nobody" cannot list' in answer.json()["message"]) == (403, True)
        assert (await asks(api, admin, MAPS, impersonate_user="a", impersonate_group="system:masters\nb")).code == 200
        assert (await asks(api, admin, MAPS, impersonate_group="system:masters")).code == 400
        answer = await asks(api, GUEST, MAPS, impersonate_user="kubernetes-admin", impersonate_group="system:masters")
        assert 'cannot impersonate resource "users"' in answer.json()["message"]
        rule = {"apiGroups": [""], "resources": ["users"], "resourceNames": ["other"], "verbs": ["impersonate"]}
        await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "actor"}, "rules": [rule]})
        await api.create(f"{RBAC}/clusterrolebindings", {
            "metadata": {"name": "actor"}, "subjects": [{"kind": "User", "name": "guest"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "actor"}})  # fmt: skip
        assert 'User "other" cannot list' in (await asks(api, GUEST, MAPS, impersonate_user="other")).json()["message"]
        answer = await asks(api, GUEST, MAPS, impersonate_user="other", impersonate_group="system:masters")
        assert 'cannot impersonate resource "groups"' in answer.json()["message"]

    with_api(work)


def test_events_go_an_hour_after_their_last_write(with_api: Run) -> None:
    events = "/api/v1/namespaces/default/events"

    def event(name: str) -> Json:
        return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "reason": "r", "message": "m"}

    async def named(api: InProcess) -> list[str]:
        return [item["metadata"]["name"] for item in (await api.call("GET", events)).json()["items"]]

    async def before(api: InProcess) -> None:
        for name in ("old", "again"):
            await api.create(events, event(name))
        api.clock.time += 3000
        assert (await api.call("PATCH", f"{events}/again", {"count": 2}, media="application/merge-patch+json")).code == 200
        await api.create(events, event("young"))
        assert await named(api) == ["again", "old", "young"]
        api.clock.time += 601
        assert await named(api) == ["again", "young"]

    async def after(api: InProcess) -> None:
        api.clock.time += 3599
        assert await named(api) == ["again", "young"], "an event of the future is one of now"
        api.clock.time += 2
        assert await named(api) == []

    with_api(before)
    with_api(after)


def test_a_timeout_that_is_none_is_refused_and_health_tells_its_checks(with_api: Run) -> None:
    async def work(api: InProcess) -> None:
        answer = await api.call("GET", MAPS, timeout="invalid")
        assert (answer.code, answer.json()["message"]) == (
            400, 'invalid timeout specified in the request URL: time: invalid duration "invalid"')  # fmt: skip
        for good in ("10s", "1m30s", "1.5h", "0"):
            assert (await api.call("GET", MAPS, timeout=good)).code == 200
        reported = (await api.call("GET", "/readyz", verbose="")).whole().decode()
        assert reported.splitlines()[:4] == ["[+]ping ok", "[+]log ok", "[+]etcd ok", "[+]informer-sync ok"]
        assert reported.splitlines()[-1] == "readyz check passed"
        indicators = (await api.call("GET", "/metrics/slis")).whole().decode()
        assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 1' in indicators.splitlines()
        assert (await api.call("GET", "/livez/ping")).whole() == b"ok"
        assert (await api.call("GET", "/livez/other")).code == 404

    with_api(work)


def test_a_change_wakes_the_watches_of_one_user_one_after_the_other_where_he_has_very_many(with_api: Run) -> None:
    """And those of others, who have a few, all at once."""

    async def act(api: InProcess) -> None:
        heard: Counter[str] = Counter()

        async def follow(user: User) -> None:
            response = await api.server.handle(Request("GET", MAPS, {"watch": ["true"]}, {}, b"", user))
            assert response.stream is not None, response.body
            async for _ in response.stream:
                heard[user.name] += 1

        many, few = User("many", groups=("system:masters",)), User("few", groups=("system:masters",))
        watches = [asyncio.create_task(follow(user)) for user, number in ((many, 500), (few, 50)) for _ in range(number)]
        for _ in range(20):
            await asyncio.sleep(0)
        body = b'{"metadata": {"name": "seen"}}'
        made = asyncio.create_task(send(api, "POST", MAPS, body, "application/json"))
        most: Counter[str] = Counter()
        while heard.total() < len(watches):
            before = heard.copy()
            await asyncio.sleep(0)
            most |= heard - before
        assert (await made).code == 201
        assert most["few"] == 50
        assert most["many"] <= 2
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    with_api(act)


def test_the_certificates_of_the_system_are_read_once_however_many_writes_a_webhook_without_any_is_asked_about(
    with_api: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    load = ssl.SSLContext.load_default_certs

    def counted(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        read.append(1)
        load(context, purpose)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", counted)

    async def act(api: InProcess) -> None:
        hook = {"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]}  # fmt: skip
        body = json.dumps({"metadata": {"name": "none"}, "webhooks": [hook]}).encode()
        where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        assert (await send(api, "POST", where, body, "application/json")).code == 201
        writes = [send(api, "POST", MAPS, b'{"metadata": {"generateName": "m-"}}', "application/json") for _ in range(20)]
        assert {answer.code for answer in await asyncio.gather(*writes)} == {500}

    with_api(act)
    assert len(read) <= 1
