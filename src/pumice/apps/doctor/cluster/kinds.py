"""Are the stored definitions of kinds the ones that our code knows? A field that a definition lacks is dropped in silence by the
API server, a value that it does not list is refused; status has its own door or has none (volcano.sh/apis batch/v1alpha1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pumice.apps.doctor.cluster.facts import ClusterFacts, unread
from pumice.node.findings import Finding, State
from pumice.ports.cluster import Json

PRESERVED: Final = "x-kubernetes-preserve-unknown-fields"
SHOWN: Final = 5
Schema = Mapping[str, Any]


def kinds(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "customresourcedefinitions")
    if "customresourcedefinitions" in facts.unread:
        return
    if missing := [name for name in facts.wanted if name not in facts.definitions]:
        yield Finding(State.BAD, f"not defined: {', '.join(sorted(missing))}", "kubectl create -f deploy/manifests/crds")
    for name, ours in sorted(facts.wanted.items()):
        if (theirs := facts.definitions.get(name)) is not None:
            yield from _kind(name, ours, theirs)


def _kind(name: str, ours: Json, theirs: Json) -> Iterator[Finding]:
    mend = f"kubectl replace -f deploy/manifests/crds/{name.partition('.')[0]}.yaml (its objects stay)"
    conditions = {c.get("type"): c for c in (theirs.get("status") or {}).get("conditions") or () if isinstance(c, dict)}
    if (established := conditions.get("Established")) is not None and established.get("status") != "True":
        yield Finding(State.BAD, f"{name} is not served: {established.get('message') or established.get('reason')}", mend)
    there = versions_of(theirs)
    for version in ours["spec"]["versions"]:
        found = next((v for v in there if v.get("name") == version["name"] and v.get("served")), None)
        if found is None:
            served = ", ".join(v.get("name", "") for v in there if v.get("served"))
            yield Finding(State.BAD, f"{name} is not served as {version['name']}, only as {served or 'nothing'}", mend)
            continue
        if (wanted := _has_status(version)) != _has_status(found):
            door = "lacks a" if wanted else "has a"
            yield Finding(State.BAD, f"{name} {door} subresource for its status, against Volcano's: its status is not kept", mend)
        known, stored = schema_of(version), schema_of(found)
        if lost := list(unknown_fields(known, stored)):
            text = f"{name} is an older version: the API server drops {_several(lost)}"
            yield Finding(State.WARNING, text, mend)
        if refused := list(refused_values(known, stored)):
            yield Finding(State.WARNING, f"{name} is an older version: it refuses {_several(refused)}", mend)
        if more := list(unknown_fields(stored, known)):
            text = f"{name} is another version than ours: {_several(more)} are stored, and nobody here reads them"
            yield Finding(State.WARNING, text, f"take these fields out of the objects, or {mend}")


def versions_of(definition: Json) -> list[Json]:
    found: list[Json] = definition.get("spec", {}).get("versions", [])
    return found


def schema_of(version: Schema) -> Schema:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def unknown_fields(ours: Schema, theirs: Schema, path: str = "") -> Iterator[str]:
    """Fields that ``ours`` describes and that are dropped under ``theirs``."""
    if theirs.get(PRESERVED) or isinstance(theirs.get("additionalProperties"), bool):
        return
    known = theirs.get("properties") or {}
    free = theirs.get("additionalProperties")
    for key, below in (ours.get("properties") or {}).items():
        if not path and key in ("apiVersion", "kind", "metadata"):
            continue
        if key in known:
            yield from unknown_fields(below, known[key], f"{path}.{key}")
        elif free is None:
            yield f"{path}.{key}"[1:]
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(ours.get(key), Mapping) and isinstance(theirs.get(key), Mapping):
            yield from unknown_fields(ours[key], theirs[key], path + mark)


def refused_values(ours: Schema, theirs: Schema, path: str = "") -> Iterator[str]:
    """Values that ``ours`` lists and ``theirs``, which lists some, does not."""
    if ours.get("enum") and theirs.get("enum"):
        yield from (f"{path[1:]}: {value}" for value in ours["enum"] if value not in theirs["enum"])
    for key, below in (ours.get("properties") or {}).items():
        if key in (theirs.get("properties") or {}):
            yield from refused_values(below, theirs["properties"][key], f"{path}.{key}")
    if isinstance(ours.get("items"), Mapping) and isinstance(theirs.get("items"), Mapping):
        yield from refused_values(ours["items"], theirs["items"], f"{path}[]")


def _has_status(version: Schema) -> bool:
    return "status" in (version.get("subresources") or {})


def _several(words: list[str]) -> str:
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more
