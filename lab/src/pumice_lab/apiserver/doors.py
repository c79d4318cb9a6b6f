"""How far the way reaches by which an object is written: through its status, through a narrow subresource, or whole."""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver.registry import Kind

Json = dict[str, Any]


def take(value: Json, source: Json, key: str) -> None:
    """The key as the source has it, or not at all."""
    if key in source:
        value[key] = source[key]
    else:
        value.pop(key, None)


def within(kind: Kind, subresource: str, value: Json, sent: Json, old: Json) -> Json:
    """An update as policies and webhooks changed it, no further than the way by which it came reaches."""
    if subresource in ("status", "approval"):
        changed = ("status",) if kind.custom else ("status", "metadata")
        kept = {key: part for key, part in sent.items() if key not in changed}
        return kept | {key: value[key] for key in changed if key in value}
    if kind.status:
        take(value, sent, "status")
    return narrowed(subresource, value, old)


def desired(kind: Kind, value: Json) -> Json:
    """Return the part of an object whose change is a new generation: all of a custom kind without the status subresource."""
    left_out = ("metadata",) if kind.custom and not kind.status else ("metadata", "status")
    return {key: part for key, part in value.items() if key not in left_out}


def narrowed(subresource: str, value: Json, old: Json) -> Json:
    """Return the object with what an update of a subresource may change; everything else is as it was."""
    if subresource == "ephemeralcontainers":
        return {**old, "metadata": value["metadata"], "spec": {
            **old["spec"], "ephemeralContainers": value["spec"].get("ephemeralContainers") or []}}  # fmt: skip
    if subresource == "resize":
        wanted = {c.get("name"): c.get("resources") or {} for c in value["spec"].get("containers") or []}
        kept = [{**c, "resources": wanted.get(c["name"], c.get("resources") or {})} for c in old["spec"]["containers"]]
        return {**old, "metadata": value["metadata"], "spec": {**old["spec"], "containers": kept}}
    return value
