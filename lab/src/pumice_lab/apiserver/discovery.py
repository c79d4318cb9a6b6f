"""Discovery: which groups, versions and kinds are served, aggregated (v2) and one by one."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from pumice_lab.apiserver.bodies import encode
from pumice_lab.apiserver.http_types import Request, Response, reply
from pumice_lab.apiserver.registry import Kind, Registry

Json = dict[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_STATUS_VERBS = ["get", "patch", "update"]
# Subresources that speak of another kind than the resource itself.
_FOREIGN = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    "attach": ("", "v1", "PodAttachOptions", ["create", "get"]),
    "exec": ("", "v1", "PodExecOptions", ["create", "get"]),
    "portforward": ("", "v1", "PodPortForwardOptions", ["create", "get"]),
    "log": ("", "", "", ["get"]),
    "ephemeralcontainers": ("", "", "", _STATUS_VERBS),
    "resize": ("", "", "", _STATUS_VERBS),
    "finalize": ("", "", "", ["update"]),
    "approval": ("", "", "", _STATUS_VERBS),
    "proxy": ("", "v1", "", ["create", "delete", "get", "patch", "update"]),
}


def answer(registry: Registry, request: Request) -> Response | None:
    """The response to a discovery path, or None for any other path."""
    parts = [part for part in request.path.split("/") if part]
    match parts:
        case ["api"]:
            if _aggregated(request):
                return _response([_aggregate(registry, "", ["v1"])])
            return reply({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        case ["apis"]:
            groups = registry.groups()
            if _aggregated(request):
                return _response([_aggregate(registry, group, versions) for group, versions in groups.items()])
            return reply({"kind": "APIGroupList", "apiVersion": "v1",
                          "groups": [_group(group, versions) for group, versions in groups.items()]})  # fmt: skip
        case ["api", version]:
            return _resource_list(registry, "", version)
        case ["apis", group]:
            versions = registry.groups().get(group)
            return reply({"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}) if versions else None
        case ["apis", group, version]:
            return _resource_list(registry, group, version)
    return None


def _aggregated(request: Request) -> bool:
    return any(
        "as=APIGroupDiscoveryList" in part and "v=v2" in part and "v=v2beta1" not in part
        for part in request.headers.get("accept", "").split(",")
    )


def _response(items: list[Json]) -> Response:
    value = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    return Response(200, encode(value), content_type=AGGREGATED, headers={"Vary": "Accept"})


def _group(group: str, versions: list[str]) -> Json:
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _aggregate(registry: Registry, group: str, versions: list[str]) -> Json:
    return {
        "metadata": {**({"name": group} if group else {}), "creationTimestamp": None},
        "versions": [
            {"version": v, "resources": [_aggregate_kind(k) for k in registry.of(group, v)], "freshness": "Current"}
            for v in versions
        ],
    }


def _aggregate_kind(kind: Kind) -> Json:
    value: Json = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        value["shortNames"] = list(kind.short)
    if kind.categories:
        value["categories"] = list(kind.categories)
    subresources = []
    for name, verbs, (group, version, what) in _subresources(kind):
        subresources.append({"subresource": name, "verbs": verbs,
                             "responseKind": {"group": group, "version": version, "kind": what}})  # fmt: skip
    if subresources:
        value["subresources"] = subresources
    return value


def _subresources(kind: Kind) -> list[tuple[str, list[str], tuple[str, str, str]]]:
    own = (kind.group, kind.version, kind.kind)
    found = []
    for name in kind.subresources:
        group, version, what, verbs = _FOREIGN[name]
        found.append((name, verbs, (group, version, what) if what else own))
    if kind.scale:
        found.append(("scale", _STATUS_VERBS, ("autoscaling", "v1", "Scale")))
    if kind.status:
        found.append(("status", _STATUS_VERBS, own))
    return sorted(found)


def _storage_hash(kind: Kind) -> str:
    """By which a migration knows whether what is stored is of another version."""
    stored = kind.custom.storage_version if kind.custom else f"{kind.group}/{kind.version}"
    return base64.b64encode(hashlib.sha256(f"{stored}/{kind.kind}".encode()).digest()[:8]).decode()


def _resource_list(registry: Registry, group: str, version: str) -> Response | None:
    kinds = registry.of(group, version)
    if not kinds:
        return None
    resources: list[Json] = []
    for kind in kinds:
        entry: Json = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
                       "verbs": list(kind.verbs)}  # fmt: skip
        if kind.short:
            entry["shortNames"] = list(kind.short)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        if not kind.virtual:
            entry["storageVersionHash"] = _storage_hash(kind)
        resources.append(entry)
        for name, verbs, (foreign_group, foreign_version, what) in _subresources(kind):
            foreign = {} if (foreign_group, foreign_version) == (group, version) else {
                "group": foreign_group, "version": foreign_version}  # fmt: skip
            resources.append({"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced,
                              "kind": what, "verbs": verbs, **foreign})  # fmt: skip
    group_version = f"{group}/{version}" if group else version
    return reply({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
