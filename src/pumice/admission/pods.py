"""Pods (spec volcano-core 20.6): only when these webhooks are switched on, which they are not by default."""

from __future__ import annotations

import re
from typing import Any

from pumice.admission.review import Answer, Json, Patch, Request, ResourceGroup, Settings, View, put
from pumice.wire.names import JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, RESOURCE_GROUP

_AMOUNT = re.compile(r"[1-9][0-9]{0,8}|[1-9][0-9]?%")


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    """A pod of a resource group gets its scheduler, node labels, tolerations and affinity."""
    group = next((group for group in settings.groups if _of(group, request)), None)
    if group is None:
        return Answer()
    spec, patch = request.object.get("spec") or {}, Patch()
    if group.labels:
        put(patch, "/spec/nodeSelector", {**(spec.get("nodeSelector") or {}), **group.labels})
    if group.tolerations:
        put(patch, "/spec/tolerations", [*(spec.get("tolerations") or ()), *group.tolerations])
    if group.affinity is not None:
        put(patch, "/spec/affinity", group.affinity)
    if group.scheduler:
        put(patch, "/spec/schedulerName", group.scheduler)
    return Answer(patch=patch)


def _of(group: ResourceGroup, request: Request) -> bool:
    notes = _notes(request.object)
    if group.key == "namespace":
        return request.namespace in group.values
    if group.key == "annotation":
        return any(notes.get(key.strip()) == value.strip() for key, _, value in (text.partition(":") for text in group.values))
    return bool(notes.get(RESOURCE_GROUP) == group.name)


def validate(request: Request, view: View, settings: Settings) -> Answer:
    notes = {key: value for key, value in _notes(request.object).items() if key in (JDB_MIN_AVAILABLE, JDB_MAX_UNAVAILABLE)}
    if len(notes) > 1:
        return Answer(f"not allow configure multiple annotations <[{JDB_MIN_AVAILABLE} {JDB_MAX_UNAVAILABLE}]> at same time")
    for key, value in notes.items():
        if not _AMOUNT.fullmatch(str(value)):
            return Answer(f"invalid value <{value}> for {key}, it must be a positive integer or a percentage from 1% to 99%")
    return Answer()


def _notes(pod: Json) -> dict[str, Any]:
    return pod.get("metadata", {}).get("annotations") or {}


def groups_of(listed: Any) -> tuple[ResourceGroup, ...]:
    """``resourceGroups`` of the admission's configuration file. Raises ValueError with what is wrong."""
    if not isinstance(listed, list):
        raise ValueError(f"resourceGroups: expected a list, not {listed!r}")
    found = []
    for number, entry in enumerate(listed):
        name = entry.get("resourceGroup") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            raise ValueError(f"resourceGroups[{number}]: no resourceGroup, which is its name")
        where = entry.get("object") or {}
        if where and where.get("key") not in ("namespace", "annotation"):
            raise ValueError(f"resourceGroups[{number}].object.key: {where.get('key')!r} is neither namespace nor annotation")
        found.append(
            ResourceGroup(
                name, where.get("key", ""), tuple(map(str, where.get("value") or ())), entry.get("schedulerName") or "",
                entry.get("labels") or {}, tuple(entry.get("tolerations") or ()), entry.get("affinity"),
            )
        )
    return tuple(found)
