"""Requests that make much of little: bodies that multiply themselves, sizes at their bounds, texts that cost their square.

Each row draws one request of the editor of a namespace (or of somebody without any right) from the random generator, of a size
that is
spread log-wide. ``served`` runs an API server over HTTP and tells how long it kept all others waiting.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import random
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlencode, urlsplit

from pumice_lab.apiserver import ADMIN, ApiServer, open_storage, serve
from pumice_lab.apiserver.bodies import NODES_LIMIT
from pumice_lab.apiserver.http_types import User
from pumice_lab.first_objects import volcano_kinds

Json = dict[str, Any]
SPACE = "team"
HOME = f"/api/v1/namespaces/{SPACE}"
MAPS, PODS, THINGS = f"{HOME}/configmaps", f"{HOME}/pods", f"/apis/example.com/v1/namespaces/{SPACE}/things"
BATCH, APPS = f"/apis/batch/v1/namespaces/{SPACE}", f"/apis/apps/v1/namespaces/{SPACE}"
VOLCANO, FLOWS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{SPACE}", f"/apis/flow.volcano.sh/v1alpha1/namespaces/{SPACE}"
GROUPS, COMMANDS = "/apis/scheduling.volcano.sh/v1beta1", f"/apis/bus.volcano.sh/v1alpha1/namespaces/{SPACE}/commands"
VOLCANO_GROUPS = [f"{group}.volcano.sh" for group in ("batch", "flow", "bus", "scheduling")]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
YAML, APPLY, JSON_PATCH = "application/yaml", "application/apply-patch+yaml", "application/json-patch+json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MOST = 3 * 1024 * 1024 - 4096
"""Bytes of a body that is still read."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """A request. ``user`` "editor" has the role admin in his namespace, "guest" no role."""

    method: str
    path: str
    body: bytes = b""
    media: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    user: str = "editor"


def drawn(rng: Random, most: int, least: int = 10) -> int:
    """A size: the largest, one that the server's bound on the values of a body just lets in (of items of one to five values
    each), or any, as often in each power of ten."""
    match rng.randrange(3):
        case 0:
            return most
        case 1:
            return min(most, (NODES_LIMIT - 100) // rng.choice((1, 2, 3, 4, 5)))
    return int(least * (most / least) ** rng.random())


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _keys(rng: Random, most: int) -> dict[str, str]:
    return {f"k{i}": "v" for i in range(drawn(rng, most))}


def _pod(**spec: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}  # fmt: skip


def _thing(**spec: Any) -> Json:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"generateName": "t-"}, "spec": spec}


def _post(path: str, value: Any, media: str = "application/json", **more: Any) -> Hostile:
    return Hostile("POST", path, value if isinstance(value, bytes) else _json(value), media, **more)


def _patch(name: str, value: Any, media: str, **query: str) -> Hostile:
    body = value if isinstance(value, bytes) else _json(value)
    return Hostile("PATCH", f"{MAPS}/{name}", body, media, query)


def _doubling(rng: Random) -> list[Json]:
    """Copies of a document into itself."""
    seed = {"op": "add", "path": "/data/a", "value": rng.choice(["x", [], {}, [[]] * 10, ["x" * 1000]])}
    return [seed, *({"op": "copy", "from": "/data", "path": f"/data/b{i}"} for i in range(drawn(rng, 60, 4)))]


def _many_copies(rng: Random) -> list[Json]:
    items = [[] for _ in range(drawn(rng, 200_000))]
    return [{"op": "add", "path": "/data/a", "value": items}, *(
        {"op": "copy", "from": "/data/a", "path": f"/data/b{i}"} for i in range(drawn(rng, 2000, 1)))]


def _front(rng: Random) -> list[Json]:
    """Insertions before and moves within a long list, each of which shifts it."""
    items = [0] * drawn(rng, 500_000)
    step: Json = rng.choice([
        {"op": "add", "path": "/data/a/0", "value": 1}, {"op": "move", "from": "/data/a/0", "path": "/data/a/-"},
        {"op": "test", "path": "/data/a", "value": items[:1000]}, {"op": "remove", "path": "/data/a/0"}])  # fmt: skip
    return [{"op": "add", "path": "/data/a", "value": items}, *([step] * drawn(rng, 10_000))]


def _yaml_aliases(rng: Random) -> bytes:
    wide, deep = drawn(rng, 1000, 2), drawn(rng, 12, 2)
    rows = [b"a0: &a0 [" + b",".join([b"1"] * wide) + b"]"]
    rows += [b"a%d: &a%d [%s]" % (i, i, b",".join([b"*a%d" % (i - 1)] * wide)) for i in range(1, deep)]
    return b"\n".join(rows)[:MOST]


def _spaces(rng: Random) -> str:
    size = drawn(rng, 7000)
    return rng.choice(["a" + " " * size + "b", " " * size, "a=" + " " * size + "(", "a in (" + "b," * (size // 2) + ")",
                        "a" * size + "!", ",".join(f"a{i}!=b" for i in range(size // 8)), "x notin (" + "(" * size])


def _zip_bomb(rng: Random, encoding: str) -> Hostile:
    body = _json(_map("z")) + b" " * drawn(rng, 2_000_000_000 // 40, 1000)
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    return _post(MAPS, packed, headers={"Content-Encoding": encoding})


def _pattern(rng: Random) -> str:
    size = drawn(rng, 900, 3)
    times = f"{{{size}}}"
    return rng.choice([f"(x{times}){times}", rf"(\pL{times}|\pN{times})", "(.*a" + "." * size + ")+$", "(a|b|ab)*" * size,
                        f"[^x]*x.{times}y", "(?i)" + "é?" * size, f"({'|'.join(map(str, range(size)))})*$"])  # fmt: skip


def _keyed(rng: Random) -> Hostile:
    """Items of a list with keys, others each time: what was applied before is given up."""
    items = [{"name": str(i), "value": "v"} for i in rng.sample(range(10**6), drawn(rng, 60_000))]
    return Hostile("PATCH", f"{THINGS}/k", _json({**_thing(keyed=items), "metadata": {"name": "k"}}), APPLY,
                   {"fieldManager": "m", "force": "true"})  # fmt: skip


def _containers(rng: Random) -> list[Json]:
    many = drawn(rng, 20_000)
    return [{"name": f"c{i}", "image": "i", "env": [{"name": "A", "value": "b"}] * rng.choice([0, 1])} for i in range(many)]


def _selector(rng: Random) -> Json:
    return {"matchExpressions": [{"key": f"k{i}", "operator": "NotIn", "values": ["v"]} for i in range(drawn(rng, 30_000))]}


def _workload(rng: Random, kind: str) -> Hostile:
    number = rng.choice([2**31 - 1, 2**31, 2**63, 10**30, 1e30, -1, 1e308, 0])
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    template: Json = {"metadata": {"labels": {"app": "x"}}, "spec": pod}
    match kind:
        case "Job":
            fields = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
            spec = {rng.choice(fields): number, "template": template}
            return _post(f"{BATCH}/jobs", {"metadata": {"generateName": "j-"}, "spec": spec})
        case "StatefulSet":
            template["spec"] = {"containers": [{"name": "c", "image": "i"}]}
            spec = {"replicas": number, "podManagementPolicy": "Parallel", "template": template,
                    "selector": {"matchLabels": {"app": "x"}}}  # fmt: skip
            return _post(f"{APPS}/statefulsets", {"metadata": {"generateName": "s-"}, "spec": spec})
    zone = rng.choice(["../../etc/passwd", "/etc/shadow", "UTC", "A" * 100_000])
    schedule = rng.choice(["* * * * *", "0-59/1 " * 5, ",".join(["1"] * 100_000) + " * * * *", "0 0 31 2 *", "@every 1ns"])
    return _post(f"{BATCH}/cronjobs", {"metadata": {"generateName": "c-"}, "spec": {
        "schedule": schedule, "timeZone": zone, "startingDeadlineSeconds": number,
        "jobTemplate": {"spec": {"template": template}}}})  # fmt: skip


NUMBERS = (2**31 - 1, 2**31, 2**63, 10**30, 1e30, -1, 1e308, 0)


def _task(**more: Any) -> Json:
    return {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}, **more}


def _volcano_job(**spec: Any) -> Hostile:
    return _post(f"{VOLCANO}/jobs", {"metadata": {"generateName": "v-"}, "spec": {"minAvailable": 1, **spec}})


def _at_the_door(rng: Random) -> Hostile:
    """Requests for exec, attach, port-forward, logs and proxy of pods that run nowhere: long commands, many ports, odd logs."""
    many = drawn(rng, 1000, 1)
    what, asked = rng.choice([
        ("exec", "&".join(["stdout=1", *(["command=" + "x" * rng.choice((1, 7))] * many)])),
        ("attach", "stdin=1&stdout=1&tty=" + "1" * many), ("portforward", "&".join(f"ports={i}" for i in range(many))),
        ("log", f"tailLines={rng.choice(NUMBERS)}&limitBytes={rng.choice(NUMBERS)}&sinceSeconds={2**62}&follow=1"),
        ("log", "sinceTime=" + "2" * many), ("proxy/" + "../" * many, "")])  # fmt: skip
    pod = rng.choice(["homeless", "none"])
    return Hostile(rng.choice(["GET", "POST"]), f"{PODS}/{pod}/{what}?{asked}", headers=rng.choice([
        {}, {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"},
        {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * many}]))


CROWDS: tuple[Callable[[Random], Hostile], ...] = (
    _at_the_door, lambda _: Hostile("GET", MAPS), lambda _: _post(MAPS, {"metadata": {"generateName": "c-"}}),
    lambda d: Hostile("GET", f"{PODS}?watch=true&timeoutSeconds={d.choice((0, 1))}"),
)  # fmt: skip
"""Small requests of which hundreds come at one moment."""
CROWD = 2000
ROWS: dict[str, Callable[[Random], Hostile]] = {
    "a Volcano job of many tasks": lambda d: _volcano_job(tasks=[_task(name=f"t{i}") for i in range(drawn(d, 20_000))]),
    "a Volcano job of any number": lambda d: _volcano_job(minAvailable=d.choice(NUMBERS), maxRetry=d.choice(NUMBERS), tasks=[
        _task(replicas=d.choice(NUMBERS), minAvailable=d.choice(NUMBERS))]),
    "a Volcano job of many policies": lambda d: _volcano_job(tasks=[_task(policies=[
        {"event": "PodFailed", "action": "RestartJob", "timeout": "1h"} for _ in range(drawn(d, 50_000))])]),
    "a Volcano job of many plugins": lambda d: _volcano_job(tasks=[_task()], plugins={
        f"p{i}": ["--a"] * d.choice((0, 3)) for i in range(drawn(d, 50_000))}),
    "a Volcano job that depends on many": lambda d: _volcano_job(tasks=[_task(dependsOn={
        "name": [f"t{i}" for i in range(drawn(d, 100_000))], "iteration": "all"})]),
    "a Volcano cron job": lambda d: _post(f"{VOLCANO}/cronjobs", {"metadata": {"generateName": "w-"}, "spec": {
        "schedule": d.choice(["* * * * *", ",".join(["1"] * drawn(d, 100_000)) + " * * * *", "@every 1ns"]),
        "timeZone": d.choice(["../../etc/passwd", "A" * 1000]), "startingDeadlineSeconds": d.choice(NUMBERS),
        "jobTemplate": {"spec": {"minAvailable": 1, "tasks": [_task()]}}}}),
    "a PodGroup of many roles": lambda d: _post(f"{GROUPS}/namespaces/{SPACE}/podgroups", {
        "metadata": {"generateName": "g-"}, "spec": {"minMember": d.choice(NUMBERS), "minTaskMember": {
            f"t{i}": 1 for i in range(drawn(d, 100_000))}, "minResources": {"cpu": "9" * drawn(d, 100_000)}}}),
    "a queue": lambda d: _post(f"{GROUPS}/queues", {"metadata": {"generateName": "q-"}, "spec": {
        "weight": d.choice(NUMBERS), "capability": {f"a.b/c{i}": "1" for i in range(drawn(d, 50_000))}}}),
    "a command of the bus": lambda d: _post(COMMANDS, {"metadata": {"generateName": "c-"}, "action": d.choice(
        ["AbortJob", "x" * drawn(d, 1_000_000)]), "target": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "u"}, "x": _keys(d, 50_000)}),
    "a flow of many jobs": lambda d: _post(f"{FLOWS}/jobflows", {"metadata": {"generateName": "f-"}, "spec": {"flows": [
        {"name": f"j{i}", "dependsOn": {"targets": [f"j{i + 1}", f"j{i - 1}"]}} for i in range(drawn(d, 30_000))]}}),
    "a template of a job": lambda d: _post(f"{FLOWS}/jobtemplates", {"metadata": {"generateName": "t-"}, "spec": {
        "minAvailable": d.choice(NUMBERS), "tasks": [_task(name=f"t{i}") for i in range(drawn(d, 10_000))]}}),
    "the status of a Volcano job": lambda d: Hostile("PATCH", f"{VOLCANO}/jobs/none/status", _json(
        {"status": {"taskStatusCount": {f"t{i}": {"phase": {"Running": 1}} for i in range(drawn(d, 50_000))}}}), MERGE),
    "the status of a pod": lambda d: Hostile("PATCH", f"{PODS}/homeless/status", _json({"status": {"conditions": [
        {"type": f"c{i}", "status": "True"} for i in range(drawn(d, 50_000))]}}), STRATEGIC),
    "the door of a pod": _at_the_door,
    "more at the door of a pod": _at_the_door,
    "an ephemeral container": lambda d: Hostile("PATCH", f"{PODS}/homeless/ephemeralcontainers", _json({"spec": {
        "ephemeralContainers": [{"name": f"e{i}", "image": "i"} for i in range(drawn(d, 20_000))]}}), STRATEGIC),
    "copies of all into itself": lambda d: _patch("a", _doubling(d), JSON_PATCH),
    "copies of a list of lists": lambda d: _patch("a", _many_copies(d), JSON_PATCH),
    "insertions at the front": lambda d: _patch("a", _front(d), JSON_PATCH),
    "copies into a thing": lambda d: Hostile("PATCH", f"{THINGS}/t", _json(
        [{"op": "add", "path": "/spec/free", "value": [{}] * drawn(d, 300)}, *(
            {"op": "copy", "from": "/spec/free", "path": f"/spec/free/{d.randrange(9)}"} for _ in range(drawn(d, 40, 4)))]),
        JSON_PATCH),
    "many keys applied": lambda d: _patch("a", _map("a", **_keys(d, 200_000)), APPLY, fieldManager="m", force="true"),
    "many keys applied by many": lambda d: _patch("m", _map("m", **_keys(d, 60_000)), APPLY, fieldManager=f"m{d.randrange(20)}",
                                                  force="true"),
    "many keys made": lambda d: _post(MAPS, {**_map(""), "metadata": {"generateName": "g-"}, "data": _keys(d, 200_000)}),
    "many keys merged": lambda d: _patch("a", {"data": _keys(d, 200_000)}, MERGE),
    "many keys merged by kind": lambda d: _patch("a", {"data": _keys(d, 200_000)}, STRATEGIC),
    "many labels": lambda d: _post(MAPS, {"metadata": {"generateName": "g-", "labels": _keys(d, 200_000)}}),
    "many notes": lambda d: _post(MAPS, {"metadata": {"generateName": "g-", "annotations": _keys(d, 100_000)}}),
    "many finalizers": lambda d: _post(MAPS, {"metadata": {
        "generateName": "g-", "finalizers": [f"a.b/{i}" for i in range(drawn(d, 100_000))]}}),
    "many owners": lambda d: _post(MAPS, {"metadata": {"generateName": "g-", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"u{i}"} for i in range(drawn(d, 30_000))]}}),
    "managed fields of others": lambda d: _post(MAPS, {"metadata": {"generateName": "g-", "managedFields": [
        {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
            "f:data": {f"f:k{i}": {} for i in range(drawn(d, 50_000))}}}]}}),
    "lists of nothing": lambda d: _post(THINGS, _thing(free=[[] for _ in range(drawn(d, 1_000_000))])),
    "objects with nested defaults": lambda d: _post(THINGS, _thing(many=[{} for _ in range(drawn(d, 1_000_000))])),
    "texts for a hard pattern": lambda d: _post(THINGS, _thing(hard=d.choice(["a", "ab", "xé", "y"]) * drawn(d, 1_000_000))),
    "items for a hard pattern": lambda d: _post(THINGS, _thing(hards=["ab" * 100 for _ in range(drawn(d, 10_000))])),
    "items for a rule": lambda d: _post(THINGS, _thing(ruled=[{"a": "b"} for _ in range(drawn(d, 200_000))])),
    "patterns for a rule": lambda d: _post(THINGS, _thing(patterns=[_pattern(d) + str(i) for i in range(drawn(d, 3000))])),
    "a set of equal items": lambda d: _post(THINGS, _thing(set=[str(i) for i in range(drawn(d, 200_000))])),
    "a set of objects": lambda d: _post(THINGS, _thing(keyed=[{"name": str(i)} for i in range(drawn(d, 100_000))])),
    "keyed items applied": lambda d: _keyed(d),
    "other keyed items applied": lambda d: _keyed(d),
    "keyed items merged by kind": lambda d: Hostile("PATCH", f"{HOME}/services/s", _json({"spec": {"ports": [
        {"port": i, "name": f"p{i}"} for i in range(1, drawn(d, 40_000))]}}), STRATEGIC),
    "other keyed items merged by kind": lambda d: Hostile("PATCH", f"{HOME}/services/s", _json({"spec": {"ports": [
        {"port": i, "$patch": d.choice(["delete", "merge"])} for i in range(1, drawn(d, 40_000))]}}), STRATEGIC),
    "items of a set merged by kind": lambda d: Hostile("PATCH", f"{MAPS}/a", _json({"metadata": {
        "finalizers": [f"a.b/{i}" for i in range(drawn(d, 50_000))]}}), STRATEGIC),
    "items of a set taken out": lambda d: Hostile("PATCH", f"{MAPS}/a", _json({"metadata": {
        "$deleteFromPrimitiveList/finalizers": [f"a.b/{i}" for i in range(drawn(d, 50_000))]}}), STRATEGIC),
    "codes that a job fails by": lambda d: _post(f"{BATCH}/jobs", {"metadata": {"generateName": "j-"}, "spec": {
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {
            "operator": "In", "values": list(range(1, drawn(d, 200_000)))}}]},
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    "a word of none": lambda d: _post(THINGS, _thing(words=["no"] * drawn(d, 100_000))),
    "aliases of aliases": lambda d: _post(MAPS, _yaml_aliases(d), YAML),
    "yaml of many keys": lambda d: _post(MAPS, b"data:\n" + b"".join(b"  k%d: v\n" % i for i in range(drawn(d, 200_000))), YAML),
    "yaml of spaces": lambda d: _post(MAPS, b"a:" + b" \n" * drawn(d, MOST // 2) + b"b", YAML),
    "yaml of a long text": lambda d: _post(MAPS, b"data: {a: \"" + b"\\x41" * drawn(d, MOST // 4) + b"\"}", YAML),
    "yaml of dashes": lambda d: _post(MAPS, b"a:\n" + b"- \n" * drawn(d, MOST // 3), YAML),
    "yaml of comments": lambda d: _post(MAPS, b"#\n" * drawn(d, MOST // 2) + b"a: b", YAML),
    "yaml of anchors": lambda d: _post(MAPS, b"a: [" + b"&a b," * drawn(d, MOST // 5) + b"]", YAML),
    "yaml of questions": lambda d: _post(MAPS, b"? " * drawn(d, 90) + b"{" + b"? a, " * drawn(d, MOST // 5) + b"}", YAML),
    "a guest's yaml": lambda d: _post(REVIEWS, b"a: [" + b"[]," * drawn(d, MOST // 3) + b"]", YAML, user="guest"),
    "a guest's json": lambda d: _post(REVIEWS, b'{"a":[' + b"[]," * drawn(d, MOST // 3) + b"[]]}", user="guest"),
    "a guest's keys that stand twice": lambda d: _post(REVIEWS, b'{"a":[' + b'{"a":1,"a":2},' * drawn(d, MOST // 14) + b"1]}",
                                                       user="guest"),
    "a guest's blanks": lambda d: _post(REVIEWS, b'{"a":[' + b"1 , " * drawn(d, MOST // 4) + b"1]}", user="guest"),
    "a guest's numbers": lambda d: _post(REVIEWS, b'{"a":[' + b"1e5," * drawn(d, MOST // 4) + b"1]}", user="guest"),
    "a guest's protobuf": lambda d: _post(REVIEWS, b"k8s\0" + b"\x0a\x04\x0a\x02v1\x12\x00" * drawn(d, MOST // 10), PROTOBUF,
                                          user="guest"),
    "a guest's protobuf of groups": lambda d: _post(
        REVIEWS, b"k8s\0\x12" + b"\xff\x0f" + b"\x0a\x00" * drawn(d, MOST // 2), PROTOBUF, user="guest"),
    "a guest's numbers without end": lambda d: _post(REVIEWS, b"k8s\0" + b"\xff" * drawn(d, MOST), PROTOBUF, user="guest"),
    "a guest's groups": lambda d: _post(REVIEWS, {
        "spec": {"resourceAttributes": {"verb": "get"}}, "x": ["a"] * drawn(d, 500_000)}, user="guest"),
    "a body that is packed": lambda d: _zip_bomb(d, "gzip"),
    "a body that is deflated": lambda d: _zip_bomb(d, "deflate"),
    "a body that is no gzip": lambda d: _post(MAPS, b"{}" * drawn(d, 1000), headers={"Content-Encoding": d.choice(
        ["gzip", "deflate", "br", "zstd", "identity", "x"])}),
    "fields to select by": lambda d: Hostile("GET", MAPS, query={"fieldSelector": _spaces(d)}),
    "labels to select by": lambda d: Hostile("GET", MAPS, query={"labelSelector": _spaces(d)}),
    "many labels to select by": lambda d: Hostile("GET", MAPS, query={"labelSelector": ",".join(
        f"!a{i}" for i in range(drawn(d, 1000)))}),
    "all at once, deleted": lambda d: Hostile("DELETE", f"{HOME}/secrets", query={"labelSelector": _spaces(d)}),
    "many containers": lambda d: _post(PODS, _pod(containers=_containers(d))),
    "many variables": lambda d: _post(PODS, _pod(containers=[{"name": "c", "image": "i", "env": [
        {"name": f"A{i}", "value": "$(A0)"} for i in range(drawn(d, 60_000))]}])),
    "many volumes": lambda d: _post(PODS, _pod(volumes=[{"name": f"v{i}", "emptyDir": {}} for i in range(drawn(d, 50_000))])),
    "many ports": lambda d: _post(PODS, _pod(containers=[{"name": "c", "image": "i", "ports": [
        {"containerPort": 1 + i % 65535, "name": f"p{i}"} for i in range(drawn(d, 50_000))]}])),
    "many tolerations": lambda d: _post(PODS, _pod(tolerations=[
        {"key": f"k{i}", "operator": "Exists"} for i in range(drawn(d, 50_000))])),
    "many constraints": lambda d: _post(PODS, _pod(topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "DoNotSchedule"} for i in range(drawn(d, 20_000))])),
    "claims of a container that the pod has not": lambda d: _post(PODS, _pod(containers=[{
        "name": "c", "image": "i", "resources": {"claims": [{"name": f"c{i}"} for i in range(drawn(d, 25_000))]}}],
        resourceClaims=[{"name": f"d{i}" + "x" * d.choice((1, 50)), "resourceClaimName": "c"} for i in range(drawn(d, 16_000))])),
    "many gates": lambda d: _post(PODS, _pod(schedulingGates=[{"name": f"g{i}"} for i in range(drawn(d, 50_000))])),
    "quantities without end": lambda d: _post(PODS, _pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {
        "cpu": d.choice(["1e", "1E", "9" * 9, "0." + "1" * 9]) + "9" * drawn(d, 1_000_000)}}}])),
    "many resources": lambda d: _post(PODS, _pod(containers=[{"name": "c", "image": "i", "resources": {"limits": {
        f"a.b/c{i}": "1" for i in range(drawn(d, 50_000))}}}])),
    "a service of many labels": lambda d: _post(f"{HOME}/services", {"metadata": {"generateName": "s-"}, "spec": {
        "ports": [{"port": 1 + i % 60_000, "name": f"p{i}"} for i in range(drawn(d, 40_000))], "selector": _keys(d, 40_000)}}),
    "a set with a long selector": lambda d: _post(f"{APPS}/replicasets", {"metadata": {"generateName": "r-"}, "spec": {
        "replicas": 0, "selector": _selector(d), "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "i"}]}}}}),
    "a job of any number": lambda d: _workload(d, "Job"),
    "a stateful set of any number": lambda d: _workload(d, "StatefulSet"),
    "a schedule": lambda d: _workload(d, "CronJob"),
    "a role of many rules": lambda d: _post(f"{RBAC}/namespaces/{SPACE}/roles", {"metadata": {"generateName": "r-"}, "rules": [
        {"apiGroups": [""], "resources": [f"r{i}" for i in range(d.choice([1, 10, 100]))], "verbs": ["get", "list"]}
        for _ in range(drawn(d, 10_000))]}),
    "a binding of many subjects": lambda d: _post(f"{RBAC}/namespaces/{SPACE}/rolebindings", {
        "metadata": {"generateName": "b-"}, "roleRef": {**ROLE, "name": "view"},
        "subjects": [{"kind": "User", "name": f"u{i}"} for i in range(drawn(d, 30_000))]}),
    "a quota of many": lambda d: _post(f"{HOME}/resourcequotas", {"metadata": {"generateName": "q-"}, "spec": {"hard": {
        f"count/a{i}": "1" for i in range(drawn(d, 50_000))}}}),
    "a grace without end": lambda d: Hostile("DELETE", f"{PODS}/none", _json({"gracePeriodSeconds": d.choice(
        [2**31, 2**62, 2**63, 1e30, -1])})),
    "preconditions": lambda d: Hostile("DELETE", f"{MAPS}/none", _json({"preconditions": {"uid": "u" * drawn(d, 1_000_000)}})),
    "a long name": lambda d: _post(MAPS, _map("a" * drawn(d, 2_000_000))),
    "a long path": lambda d: Hostile("GET", f"{MAPS}/" + "a/" * drawn(d, 3500)),
    "a token for ever": lambda d: _post(f"{HOME}/serviceaccounts/robot/token", {"spec": {
        "expirationSeconds": d.choice([2**31, 2**62, 10**30, -1]), "audiences": ["a" * 100] * drawn(d, 10_000)}}),
    "deep json": lambda d: _post(MAPS, b'{"a":' * drawn(d, 200_000) + b"1"),
    "an eviction": lambda d: _post(f"{PODS}/none/eviction", {
        "deleteOptions": {"gracePeriodSeconds": 2**62}, "x": _keys(d, 1000)}),
    "a scale": lambda d: Hostile("PUT", f"{APPS}/deployments/none/scale", _json({"spec": {"replicas": 10**30}})),
    "a condition with expressions": lambda d: _post(f"{BATCH}/jobs", {"metadata": {"generateName": "j-"}, "spec": {
        "completionMode": "Indexed", "completions": 2**31 - 1, "parallelism": 5,
        "backoffLimitPerIndex": 1, "maxFailedIndexes": 10,
        "successPolicy": {"rules": [{"succeededIndexes": ",".join(map(str, range(0, drawn(d, 30_000), 2)))}] * 20},
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
}  # fmt: skip


def definition() -> Json:
    """Return what an operator may have brought: defaults within defaults, patterns, rules."""
    text = {"type": "string"}
    nested: Json = {"type": "object", "properties": {"z": {"type": "string", "default": "z" * 100}}, "default": {}}
    for _ in range(6):
        nested = {"type": "object", "properties": {"a": nested, "b": nested}, "default": {}}
    free = {"x-kubernetes-preserve-unknown-fields": True}
    spec: Json = {"type": "object", "properties": {
        "free": free, "many": {"type": "array", "items": nested},
        "hard": {"type": "string", "pattern": "(a|b|ab|[^x]*x.{100}y)*$"},
        "hards": {"type": "array", "items": {"type": "string", "pattern": "(.*a.{200}b)*c$"}},
        "ruled": {"type": "array", "maxItems": 1_000_000, "items": {
            "type": "object", "properties": {"a": {**text, "maxLength": 10}},
            "x-kubernetes-validations": [{"rule": "self.a.matches('^[a-z]+$')"}]}},
        "patterns": {"type": "array", "maxItems": 5000, "items": {**text, "maxLength": 10000, "x-kubernetes-validations": [
            {"rule": "!''.matches(self) || true"}]}},
        "words": {"type": "array", "items": {**text, "enum": [f"word{i}" for i in range(500)]}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
            "type": "object", "required": ["name"], "properties": {"name": text, "value": text}}},
    }}  # fmt: skip
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}}  # fmt: skip


@dataclass(slots=True)
class Served:
    """A server that is attacked, and the longest stretch of its loop's own work since ``longest`` was set to nothing."""

    api: ApiServer
    url: str
    longest: float = 0.0

    async def watch_loop(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - before)
            before = now

    async def send(self, asked: Hostile) -> tuple[int, bytes]:
        """The code and the answer's first bytes; 0 where the connection was closed."""
        return await asyncio.to_thread(_send, self.url, asked)


    async def crowd(self, asked: Hostile, number: int) -> list[int]:
        """So many of that request on as many connections at one moment. Returns the codes."""
        return await asyncio.to_thread(_crowd, self.url, asked, number)


def _crowd(url: str, asked: Hostile, number: int) -> list[int]:
    parts = urlsplit(url)
    lines = [f"{asked.method} {asked.path} HTTP/1.1", "Host: a", f"Authorization: Bearer {asked.user}",
             f"Content-Length: {len(asked.body)}", f"Content-Type: {asked.media}",
             *(f"{name}: {value}" for name, value in asked.headers.items()), "", ""]  # fmt: skip
    said = "\r\n".join(lines).encode() + asked.body
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(number)]
        for each in sockets:
            each.sendall(said)
        return [int(each.recv(16).split()[1]) for each in sockets]


def _send(url: str, asked: Hostile) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=300)
    path = asked.path + (f"?{urlencode(asked.query)}" if asked.query else "")
    headers = {"Authorization": f"Bearer {asked.user}", "Content-Type": asked.media, "User-Agent": "hostile", **asked.headers}
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # an answer may come before the body is sent
            connection.request(asked.method, path, asked.body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(2000)
    except (http.client.HTTPException, ConnectionError):
        return 0, b""
    finally:
        connection.close()


@asynccontextmanager
async def attacked(seed: int) -> Any:
    """A server with an editor in a namespace, an operator's definition and a few objects."""
    storage = open_storage(":memory:")
    api = ApiServer(storage, rng=random.Random(seed))
    tokens = {"admin": ADMIN, "editor": User("editor", groups=("system:authenticated",)),
              "guest": User("guest", groups=("system:authenticated",))}  # fmt: skip
    listening = await serve(api, tokens=tokens)
    here = Served(api, listening.url)
    watching = asyncio.create_task(here.watch_loop())
    try:
        for asked in _before():
            code, said = await here.send(asked)
            assert code in (200, 201), (asked.path, said)
        yield here
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await listening.close()
        storage.close()


def _before() -> Iterator[Hostile]:
    things = [{"apiGroups": ["example.com", *VOLCANO_GROUPS], "resources": ["*"], "verbs": ["*"]},
              {"apiGroups": [""], "resources": ["pods/status", "pods/ephemeralcontainers"], "verbs": ["*"]}]  # fmt: skip
    bound = {"metadata": {"name": "e"}, "subjects": [{"kind": "User", "name": "editor"}]}
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": SPACE}}),
        (f"{RBAC}/clusterroles", {"metadata": {"name": "t", "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
                                  "rules": things}),
        (f"{RBAC}/namespaces/{SPACE}/roles", {"metadata": {"name": "t"}, "rules": things}),
        (f"{RBAC}/namespaces/{SPACE}/rolebindings", {**bound, "roleRef": {**ROLE, "name": "admin"}}),
        (f"{RBAC}/namespaces/{SPACE}/rolebindings", {
            **bound, "metadata": {"name": "t"}, "roleRef": {**ROLE, "kind": "Role", "name": "t"}}),
        *(("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each) for each in (definition(), *volcano_kinds())),
        (PODS, {**_pod(), "metadata": {"name": "homeless"}}),
        (MAPS, _map("a", a="b")), (MAPS, _map("m", a="b")), (f"{HOME}/serviceaccounts", {"metadata": {"name": "robot"}}),
        (f"{HOME}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "selector": {"a": "b"}}}),
        (THINGS, {**_thing(free=[{}]), "metadata": {"name": "t"}}),
        *((MAPS, {**_map(f"x{i}"), "metadata": {"name": f"x{i}", "labels": {"a": "b"}}}) for i in range(300)),
    ):
        yield _post(path, body, user="admin")
