"""OpenAPI v3 (one document per group version, made at first request) and a small v2.

kubectl reads from it which fields lists merge by (apply), that the server validates fields itself (create, apply), and the fields
that ``explain`` shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from pumice_lab.apiserver import openapi_protobuf
from pumice_lab.apiserver.bodies import encode
from pumice_lab.apiserver.http_types import Request, Response, reply
from pumice_lab.apiserver.registry import Kind, Registry
from pumice_lab.apiserver.schema.shape import Types

Json = dict[str, Any]

_SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "int-or-string": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "object": {"type": "object"},
    "any": {},
}
_PREFIX = {"meta.": "io.k8s.apimachinery.pkg.apis.", "apiextensions.": "io.k8s.apiextensions-apiserver.pkg.apis."}
_PATCHES = ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]


class OpenApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, bytes] = {}
        self._generation = -1

    def answer(self, request: Request) -> Response | None:
        path = request.path.rstrip("/")
        if path == "/openapi/v2":
            return self._v2(request)
        if path == "/openapi/v3":
            return reply(
                {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash={self._hash(p)}"} for p in self._paths()}}
            )
        if path.startswith("/openapi/v3/"):
            wanted = path.removeprefix("/openapi/v3/")
            if wanted in self._paths():
                etag = f'"{self._hash(wanted)}"'
                if request.headers.get("if-none-match") == etag:
                    return Response(304)
                headers = {"Etag": etag, "Cache-Control": "public, immutable", "Vary": "Accept"}
                return Response(200, self._document(wanted), headers=headers)
        return None

    def _paths(self) -> dict[str, tuple[str, str]]:
        groups = {"": ["v1"], **self._registry.groups()}
        return {
            (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
            for group, versions in groups.items()
            for version in versions
        }

    def _hash(self, path: str) -> str:
        """Of what the document says without making it, as kubectl asks for the hashes of all."""
        group, version = self._paths()[path]
        facts = [(k.kind, k.plural, k.custom.digest if k.custom else "") for k in self._registry.of(group, version)]
        return hashlib.sha256(encode([path, *facts])).hexdigest()[:32].upper()

    def _forget_old(self) -> None:
        if self._generation != self._registry.generation:
            self._made.clear()
            self._generation = self._registry.generation

    def _document(self, path: str) -> bytes:
        self._forget_old()
        if path not in self._made:
            group, version = self._paths()[path]
            self._made[path] = encode(document(self._registry, group, version))
        return self._made[path]

    def _v2(self, request: Request) -> Response:
        as_protobuf = "proto-openapi.spec.v2" in request.headers.get("accept", "")
        form = "v2 as protobuf" if as_protobuf else "v2"
        self._forget_old()
        if form not in self._made:
            definitions: Json = {}
            for kind in self._registry:
                _schemas_of(self._registry.types, kind, definitions, "#/definitions/")
            made = {"swagger": "2.0", "info": {"title": "Pumice", "version": "v1.36.0"}, "paths": {}, "definitions": definitions}
            self._made[form] = openapi_protobuf.document(made) if as_protobuf else encode(made)
        return Response(200, self._made[form], content_type=openapi_protobuf.MEDIA if as_protobuf else "application/json")


def document(registry: Registry, group: str, version: str) -> Json:
    paths: Json = {}
    schemas: Json = {}
    for kind in registry.of(group, version):
        _schemas_of(registry.types, kind, schemas, "#/components/schemas/")
        paths.update(_paths_of(kind))
    for extra in ("DeleteOptions", "Status", "WatchEvent"):
        _builtin(registry.types, f"meta.v1.{extra}", schemas, "#/components/schemas/")
    return {"openapi": "3.0.0", "info": {"title": "Pumice", "version": "v1.36.0"}, "paths": paths,
            "components": {"schemas": schemas}}  # fmt: skip


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _paths_of(kind: Kind) -> Json:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    schema = {"$ref": f"#/components/schemas/{schema_name(kind)}"}
    content = {"application/json": {"schema": schema}}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]

    def operation(action: str, body: list[str] | None = None) -> Json:
        result: Json = {
            "operationId": f"{action}{kind.kind}",
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(kind),
        }
        if body:
            result["parameters"] = parameters
            result["requestBody"] = {"content": {media: {"schema": schema} for media in body}}
        return result

    patches = [*_PATCHES, *([] if kind.custom else ["application/strategic-merge-patch+json"])]
    paths: Json = {}
    if "create" in kind.verbs:
        paths[collection] = {"post": operation("post", ["application/json"])}
    if "get" in kind.verbs:
        paths.setdefault(collection, {})["get"] = operation("list")
        paths[f"{collection}/{{name}}"] = {"get": operation("get")}
    if "patch" in kind.verbs:
        one = paths.setdefault(f"{collection}/{{name}}", {})
        one |= {
            "put": operation("put", ["application/json"]),
            "patch": operation("patch", patches),
            "delete": operation("delete"),
        }
    return paths


def schema_name(kind: Kind) -> str:
    if kind.custom is None and kind.shape.name:
        return _full(kind.shape.name)
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _full(name: str) -> str:
    return next((full + name for start, full in _PREFIX.items() if name.startswith(start)), f"io.k8s.api.{name}")


def _schemas_of(types: Types, kind: Kind, into: Json, root: str) -> None:
    if kind.custom is not None:
        schema = dict(kind.custom.published)
        if schema.get("x-kubernetes-preserve-unknown-fields") and "components" not in root:
            schema = {"type": "object"}  # readers of v2 take any property that is named for all that there are
        else:
            schema["properties"] = schema.get("properties", {}) | {
                key: {"type": "string", "description": text} for key, text in TYPE.items()} | {
                "metadata": _typed("meta.v1.ObjectMeta", root, []) | {"description": METADATA}}  # fmt: skip
        schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        into[schema_name(kind)] = schema
        _builtin(types, "meta.v1.ObjectMeta", into, root)
    elif kind.shape.name:
        _builtin(types, kind.shape.name, into, root)
        into[schema_name(kind)]["x-kubernetes-group-version-kind"] = [_gvk(kind)]


def _builtin(types: Types, name: str, into: Json, root: str) -> None:
    todo = [name]
    while todo:
        current = todo.pop()
        if _full(current) in into or current not in types.raw:
            continue
        properties: Json = {}
        needed = []
        for field, line in types.raw[current].items():
            type_name, *marks = line.split()
            if type_name.endswith("!"):
                needed.append(field)
            properties[field] = _typed(type_name.removesuffix("!"), root, todo) | _marks(marks)
            if current == "meta.v1.ObjectMeta" and field in OBJECT_META:
                properties[field]["description"] = OBJECT_META[field]
        into[_full(current)] = {"type": "object", "properties": properties, **({"required": needed} if needed else {})}


def _typed(name: str, root: str, todo: list[str]) -> Json:
    if name.startswith("["):
        return {"type": "array", "items": _typed(name[1:-1], root, todo)}
    if name.startswith("{"):
        return {"type": "object", "additionalProperties": _typed(name[1:-1], root, todo)}
    if name in _SCALARS:
        return dict(_SCALARS[name])
    todo.append(name)
    return {"allOf": [{"$ref": root + _full(name)}]} if "components" in root else {"$ref": root + _full(name)}


def _marks(marks: list[str]) -> Json:
    result: Json = {}
    strategies = []
    for mark in marks:
        word, _, value = mark.partition("=")
        match word:
            case "map":
                result |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": value.split(",")}
            case "set":
                result["x-kubernetes-list-type"] = "set"
            case "merge":
                strategies.append("merge")
                if value:
                    result["x-kubernetes-patch-merge-key"] = value
            case "retainKeys" | "replace":
                strategies.append(word)
    if strategies:
        result["x-kubernetes-patch-strategy"] = ",".join(strategies)
    return result


# -- Texts of ``kubectl explain`` for the fields that every object has ------------------------------------------------


METADATA: Final = "Standard object's metadata: its name, its labels, who owns it."
TYPE: Final[Mapping[str, str]] = {
    "apiVersion": "APIVersion defines by which version of the schema the object is written.",
    "kind": "Kind names the schema of the object, in CamelCase.",
}
OBJECT_META: Final[Mapping[str, str]] = {
    "annotations": "Annotations are notes for tools; nobody selects by them.",
    "creationTimestamp": "CreationTimestamp is a timestamp of the server: when the object was made. Read-only.",
    "deletionGracePeriodSeconds": "Seconds that the object had from its deletion on to end well. Read-only.",
    "deletionTimestamp": "When the object goes, once somebody has asked for that. Read-only.",
    "finalizers": "Who has to agree before the object goes; each takes its own entry off.",
    "generateName": "What the server makes a name of where none is given.",
    "generation": "Counts the changes of what is wanted. Read-only.",
    "labels": "Labels are keys and values to select by.",
    "managedFields": "Which manager set which fields.",
    "name": "Name of the object, unique for its kind in its namespace. Cannot be changed.",
    "namespace": "Namespace within which the name is unique. Cannot be changed.",
    "ownerReferences": "The objects without which this one goes; one of them may be its controller.",
    "resourceVersion": "Changes with each write, and is compared for equality alone. Read-only.",
    "uid": "Tells the object from all others of any time. Read-only.",
}
