"""Field ownership (metadata.managedFields): who set what.

Every write is recorded, as in Kubernetes: an update owns what it changes and takes it from others. Rules: Kubernetes docs
"Server-Side Apply", "Field management".
"""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver.patch.fields import FieldSet, changed, fields_of, from_fields_v1, to_fields_v1
from pumice_lab.apiserver.registry import Kind

Json = dict[str, Any]
_MOST_UPDATERS = 10


def record_write(kind: Kind, value: Json, old: Json | None, manager: str, subresource: str, now: str) -> None:
    """Sets managedFields of ``value`` after a create (no ``old``) or update by ``manager``."""
    metadata = value["metadata"]
    if old is None:
        set_by = reachable(kind, subresource, fields_of(value, kind.shape, created=True))
        metadata["managedFields"] = [_entry(kind, manager, "Update", subresource, now, set_by)]
        return
    entries = old["metadata"].get("managedFields")
    if metadata.get("managedFields") == [{}] or metadata.get("managedFields") == []:
        metadata.pop("managedFields")  # the documented way to clear them
        return
    if entries is None:
        metadata.pop("managedFields", None)
        return
    differ, gone = (reachable(kind, subresource, paths) for paths in changed(old, value, kind.shape))
    if not differ and not gone:
        metadata["managedFields"] = entries
        return
    metadata["managedFields"] = _merged(kind, entries, differ, gone, manager, subresource, now)


def reachable(kind: Kind, subresource: str, paths: FieldSet) -> FieldSet:
    """The fields that a write through this door can set: status has a door of its own where the kind has that subresource."""
    if subresource == "status":
        return {path for path in paths if path[0] == "f:status" or path[:2] == ("f:metadata", "f:annotations")}
    return {path for path in paths if path[0] != "f:status"} if kind.status and subresource == "" else paths


def _merged(
    kind: Kind, entries: list[Json], differ: FieldSet, gone: FieldSet, manager: str, subresource: str, now: str
) -> list[Json]:
    result: list[Json] = []
    mine: FieldSet = set()
    taken = differ | gone
    for entry in entries:
        own = (entry.get("manager"), entry.get("operation"), entry.get("subresource", ""))
        owned = from_fields_v1(entry.get("fieldsV1") or {})
        if own == (manager, "Update", subresource):
            mine = owned - gone
            continue
        left = owned - taken
        if len(left) == len(owned):
            result.append(entry)
        elif left:
            result.append({**entry, "fieldsV1": to_fields_v1(left)})
    mine |= differ
    if mine:
        result.append(_entry(kind, manager, "Update", subresource, now, mine))
    return _bounded(result)


def _bounded(entries: list[Json]) -> list[Json]:
    """At most ten updaters; the oldest are counted together, so that an object cannot grow with its history."""
    updaters = [e for e in entries if e.get("operation") == "Update"]
    if len(updaters) <= _MOST_UPDATERS:
        return entries
    oldest, second = sorted(updaters, key=lambda e: e.get("time", ""))[:2]
    union = from_fields_v1(oldest["fieldsV1"]) | from_fields_v1(second["fieldsV1"])
    merged = {**second, "manager": "ancient-changes", "fieldsV1": to_fields_v1(union)}
    return [merged if e is second else e for e in entries if e is not oldest]


def _entry(kind: Kind, manager: str, operation: str, subresource: str, now: str, fields: FieldSet) -> Json:
    entry: Json = {
        "manager": manager,
        "operation": operation,
        "apiVersion": kind.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(fields),
    }
    if subresource:
        entry["subresource"] = subresource
    return entry


def apply_entry(kind: Kind, manager: str, subresource: str, now: str, fields: FieldSet) -> Json:
    """The entry of an applier."""
    return _entry(kind, manager, "Apply", subresource, now, fields)
