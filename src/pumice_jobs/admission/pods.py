"""Admission of pods: only when these webhooks are switched on, which they are not by default."""

from __future__ import annotations

import re
from typing import Any

from pumice.wire.names import JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, QUEUE_GATE, RESOURCE_GROUP
from pumice_jobs.admission.review import Answer, Json, Patch, Request, ResourceGroup, Settings, View, put

_NUMBER = re.compile(r"-?[0-9]+")
_POSITIVE = re.compile(r"[1-9][0-9]{0,8}")
_PERCENTAGE = re.compile(r"[1-9][0-9]?%")


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    """A pod of a resource group gets its scheduler, node labels, tolerations and affinity; one that shall wait for its queue
    out of sight, the gate that its queue opens."""
    patch = _gate(request.object)
    group = next((group for group in settings.groups if _of(group, request)), None)
    if group is None:
        return Answer(patch=patch)
    spec = request.object.get("spec") or {}
    if group.labels:
        put(patch, "/spec/nodeSelector", {**(spec.get("nodeSelector") or {}), **group.labels})
    if group.tolerations:
        put(patch, "/spec/tolerations", [*(spec.get("tolerations") or ()), *group.tolerations])
    if group.affinity is not None:
        put(patch, "/spec/affinity", group.affinity)
    if group.scheduler:
        put(patch, "/spec/schedulerName", group.scheduler)
    return Answer(patch=patch)


def _gate(pod: Json) -> Patch:
    gates = (pod.get("spec") or {}).get("schedulingGates") or []
    patch = Patch()
    if _notes(pod).get(QUEUE_GATE) == "true" and not any(gate.get("name") == QUEUE_GATE for gate in gates):
        put(patch, "/spec/schedulingGates", [*gates, {"name": QUEUE_GATE}])
    return patch


def _of(group: ResourceGroup, request: Request) -> bool:
    notes = _notes(request.object)
    if group.key == "namespace":
        return request.namespace in group.values
    if group.key == "annotation":
        return any(notes.get(key.strip()) == value.strip() for key, _, value in (text.partition(":") for text in group.values))
    return bool(notes.get(RESOURCE_GROUP) == group.name)


def validate(request: Request, view: View, settings: Settings) -> Answer:
    """Of our pods: others may mean something else by the annotations."""
    if (request.object.get("spec") or {}).get("schedulerName") != settings.scheduler_name:
        return Answer()
    notes = {key: str(value) for key, value in _notes(request.object).items() if key in (JDB_MIN_AVAILABLE, JDB_MAX_UNAVAILABLE)}
    for key, value in notes.items():
        if _POSITIVE.fullmatch(value) or _PERCENTAGE.fullmatch(value):
            continue
        must = "a positive integer" if _NUMBER.fullmatch(value) else "a valid percentage which between 1% ~ 99%"
        return Answer(f'invalid value <"{value}"> for {key}, it must be {must}')
    if len(notes) > 1:
        return Answer(f"not allow configure multiple annotations <[{JDB_MIN_AVAILABLE} {JDB_MAX_UNAVAILABLE}]> at same time")
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
