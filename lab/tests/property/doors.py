"""Random requests at every door of the API server: nearly right ones, for those get furthest in before they are wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import yaml

from pumice_lab.apiserver import Request
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.schema.shape import Shape

Json = dict[str, Any]


def _words(text: str) -> list[str]:
    return text.split()


NAMES = ("a", "b", "kubernetes", "default", "view")
SPACES = ("default", "default", "kube-system", "new")
WRONG = (None, True, -1, 0, 1 << 63, 1e308, "", "x" * 300, "-x", "\x00", "ü", "9" * 30, "a/b/c", "1.5", [], {}, [None],
         {"": None}, [[]], {"a": {"b": {}}})  # fmt: skip
TEXTS = _words("""
    a b x 1 true a.io/b default Always Exists In ClusterIP None TCP Pod Role v1 apps/v1 ^(a+)+$ 10.96.0.9 5% * {.spec.x}
    PriorityClass Webhook string object integer array Namespaced Cluster things example.com things.example.com Thing
    JSONPatch ApplyConfiguration kubernetes.io/metadata.name
""")
TEXTS += ["object.metadata.name == 'a'", "self.a > 1", "has(object.x) ? [] : {}"]
SCALARS: dict[str, tuple[Any, ...]] = {
    "integer": (0, 1, 2, 80, 443, 30000, -1, 1 << 31),
    "number": (0, 1.5, -2),
    "boolean": (True, False),
    "bytes": ("", "YQ==", "?"),
    "time": ("2026-01-01T00:00:00Z", "1901-01-01T00:00:00Z", "soon"),
    "microtime": ("2026-01-01T00:00:00.000000Z", "soon"),
    "quantity": ("1", "500m", "1Gi", 3, "1e3", "-1", "many"),
    "int-or-string": (1, "50%", "web", "200%"),
}
SUBRESOURCES = _words("status scale binding eviction token finalize log ephemeralcontainers resize approval exec nothing")
MEDIA = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "")
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json",
)
ACCEPTS = (
    "application/json",
    "*/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "text/html",
    "",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v9;g=meta.k8s.io",
)
PARAMETERS: dict[str, tuple[str, ...]] = {
    "labelSelector": ("a=b", "a in (b,c)", "!a", "a notin (", ",", "a>1", "=="),
    "fieldSelector": (
        "metadata.name=a",
        "status.phase!=Running",
        "spec.nodeName=",
        "nothing=1",
        "=",
        "involvedObject.name=a",
    ),
    "limit": ("1", "0", "-1", "x"),
    "continue": ("x", "eyJ2IjoxfQ", "eyJ2IjoxLCJydiI6MSwiYWZ0ZXIiOlsiIiwiYSJdfQ"),
    "resourceVersion": ("0", "1", "5", "99999999", "-1", "x"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "watch": ("true", "false", "x"),
    "allowWatchBookmarks": ("true",),
    "sendInitialEvents": ("true", "false"),
    "timeoutSeconds": ("1", "0", "-1", "x"),
    "timeout": ("1s", "x"),
    "dryRun": ("All", "Some"),
    "force": ("true",),
    "fieldManager": ("me", "x" * 200),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "pretty": ("true",),
    "propagationPolicy": ("Foreground", "Orphan", "Background", "x"),
    "gracePeriodSeconds": ("0", "5", "-1", "x"),
    "orphanDependents": ("true",),
    "container": ("c",),
    "command": ("true",),
    "tailLines": ("x",),
    "verbose": ("",),
}
PLAIN = _words("""
    / /api /apis /api/v1 /apis/apps /apis/apps/v1 /apis/nothing/v1 /openapi/v2 /openapi/v3 /version
    /openapi/v3/apis/example.com/v1 /healthz /readyz/ping /livez /metrics /metrics/slis /api/v1/watch/pods
    /apis/example.com/v1 // /api/v1/namespaces//pods /%00
""")


class Doors:
    """``chance`` is how often a part is wrong on purpose."""

    def __init__(self, rng: random.Random, backend: Backend, chance: float = 0.04) -> None:
        self.rng, self.backend, self.registry, self.chance = rng, backend, backend.registry, chance

    def request(self) -> Request:
        rng = self.rng
        if rng.random() < 0.05:
            return Request(rng.choice(("GET", "POST", "DELETE")), rng.choice(PLAIN), self.query(), self.headers(""))
        kind = rng.choice(sorted(self.registry, key=lambda kind: (kind.api_version, kind.plural)))
        method = rng.choice(("GET", "POST", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD"))
        sub = rng.choice(("", "", "", "", "status", *kind.subresources, rng.choice(SUBRESOURCES)))
        name = rng.choice(NAMES) if method in ("PUT", "PATCH") or (method != "POST" and rng.random() < 0.4) else ""
        space = rng.choice(SPACES) if kind.namespaced and rng.random() < 0.95 else ""
        there = list(self.backend.storage.objects(kind.storage)) if (name or sub) and rng.random() < 0.8 else []
        old: Json = {}
        if there:
            chosen = rng.choice(there)
            space, name, old = chosen.namespace, chosen.name, chosen.value()
        elif rng.random() < 0.8:  # there is nothing yet
            method, name, sub = "POST", "", ""
        path = f"/api{'s' if kind.group else ''}/{kind.api_version}" + (f"/namespaces/{space}" if space else "")
        path += f"/{kind.plural}" + (f"/{name}" if name else "") + (f"/{sub}" if name else "")
        media = rng.choice(PATCHES) if method == "PATCH" else rng.choice(MEDIA) if rng.random() < 0.3 else MEDIA[0]
        body = self.body(kind, media, name, old) if method not in ("GET", "HEAD") and rng.random() < 0.97 else b""
        return Request(method, path.rstrip("/") if rng.random() < 0.95 else path, self.query(), self.headers(media), body)

    def query(self) -> dict[str, list[str]]:
        chosen = self.rng.sample(sorted(PARAMETERS), self.rng.choice((0, 0, 1, 1, 2, 4)))
        return {key: [self.rng.choice(PARAMETERS[key])] for key in chosen}

    def headers(self, media: str) -> dict[str, str]:
        accept = self.rng.choice(ACCEPTS) if self.rng.random() < 0.3 else ACCEPTS[0]
        return {"content-type": media, "accept": accept, "user-agent": "doors/1"}

    # -- bodies --------------------------------------------------------------------------------------------------------

    def body(self, kind: Kind, media: str, name: str, old: Json) -> bytes:
        rng = self.rng
        if "protobuf" in media:
            return b"k8s\x00" + self.message(3) if rng.random() < 0.95 else rng.randbytes(20)
        value: Any = self.steps(kind) if media == PATCHES[0] else self.object(kind, name, old)
        text = yaml.safe_dump(value) if "yaml" in media and rng.random() < 0.5 else json.dumps(value)
        data = text.encode()
        if rng.random() < self.chance:
            at = rng.randrange(len(data) + 1)
            data = (
                data[:at]
                + rng.choice((b"", b"{", b"]", b'"', b"\xff", b"&a *a", b"0"))
                + data[at + rng.randrange(3) :]
            )
        return data

    def object(self, kind: Kind, name: str, old: Json) -> Any:
        if self.rng.random() < self.chance:
            return self.rng.choice(WRONG)
        value = self.of(kind.shape, 0) if kind.shape.form != "any" else {"spec": {"a": 1}}
        if isinstance(value, dict) and self.rng.random() < 0.95:
            value = (old if self.rng.random() < 0.7 else {}) | value | {"apiVersion": kind.api_version, "kind": kind.kind}
            metadata = old["metadata"] if old else value["metadata"] if isinstance(value.get("metadata"), dict) else {}
            metadata = {key: part for key, part in metadata.items() if self.rng.random() < 0.2}
            value["metadata"] = {**metadata, "name": name or self.rng.choice(NAMES)}
            if kind.kind == "CustomResourceDefinition":
                self.define(value)
        return value

    def define(self, value: Json) -> None:
        """One that has a chance to be served, with a random schema."""
        schema = self.of(
            self.registry.types.of_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
            .at("spec")
            .at("versions")
            .items.at("schema")
            .at("openAPIV3Schema"),
            3,
        )  # type: ignore[union-attr]
        root = {"type": "object", "properties": {"spec": schema, "a": {"type": "integer"}}}
        value["metadata"]["name"] = "things.example.com"
        value["spec"] = {
            **(value["spec"] if isinstance(value.get("spec"), dict) else {}),
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "conversion": {"strategy": "None"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        }

    def of(self, shape: Shape, depth: int) -> Any:
        """Something of this shape, mostly."""
        rng = self.rng
        if rng.random() < self.chance / 4:
            return rng.choice(WRONG)
        match shape.form:
            case "struct":
                likely = 0.7 if depth < 2 else 0.5 / depth
                return {
                    key: self.of(part, depth + 1)
                    for key, part in shape.fields.items()
                    if (key in shape.required and depth < 12) or rng.random() < likely
                }
            case "list":
                return (
                    [self.of(shape.items, depth + 1) for _ in range(rng.choice((0, 1, 1, 2)))] if shape.items else []
                )
            case "map":
                return (
                    {rng.choice(TEXTS): self.of(shape.items, depth + 1) for _ in range(rng.choice((0, 1, 2)))}
                    if shape.items
                    else {}
                )
            case "scalar":
                return rng.choice(SCALARS.get(shape.name, TEXTS))
        return rng.choice(WRONG)

    def steps(self, kind: Kind) -> list[Json]:
        paths = [
            *self.paths(kind.shape, "", 0),
            "/metadata/labels",
            "/metadata/labels/a",
            "/spec/containers/-",
            "/spec/containers/0",
            "",
            "/",
            "/metadata",
            "/a~1b",
            "/spec/x/0",
        ]
        return [
            {
                "op": self.rng.choice(("add", "remove", "replace", "move", "copy", "test", "grow")),
                "path": self.rng.choice(paths),
                "from": self.rng.choice(paths),
                "value": self.rng.choice(WRONG),
            }
            for _ in range(self.rng.choice((0, 1, 2, 3)))
        ]

    def paths(self, shape: Shape, at: str, depth: int) -> Iterator[str]:
        for key, part in shape.fields.items() if shape.form == "struct" and depth < 2 else ():
            yield f"{at}/{key}"
            yield from self.paths(part, f"{at}/{key}", depth + 1)

    def message(self, depth: int) -> bytes:
        """Fields by numbers that some message has."""
        out = bytearray()
        for _ in range(self.rng.choice((0, 1, 2, 4))):
            number = self.rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 7, 11, 200))
            if self.rng.random() < 0.3:
                out += _varint(number << 3) + _varint(self.rng.choice((0, 1, 80, 1 << 31, (1 << 64) - 1)))
                continue
            inner = self.message(depth - 1) if depth and self.rng.random() < 0.7 else self.rng.choice(TEXTS).encode()
            out += _varint(number << 3 | 2) + _varint(len(inner) + (self.rng.random() < self.chance)) + inner
        return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
