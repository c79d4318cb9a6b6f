"""Sets of fields, as server-side apply counts them, and their form in metadata.managedFields (FieldsV1).

A path is a tuple of steps: ``"f:NAME"``, ``'k:{"name":"c"}'`` (an item of a keyed list), ``'v:"x"'`` (an item of a set). A
set of paths holds every leaf; an item of a keyed list, and an object without fields, are leaves of their own (the step ``"."``
of FieldsV1).
Structure: the design of structured-merge-diff (KEP-555).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.schema.shape import Shape

Json = dict[str, Any]
Path = tuple[str, ...]
FieldSet = set[Path]

# Known to the server alone; no manager owns them.
_NOBODYS = frozenset(
    ("f:name", "f:namespace", "f:uid", "f:resourceVersion", "f:creationTimestamp", "f:deletionTimestamp", "f:generation",
     "f:deletionGracePeriodSeconds", "f:managedFields", "f:selfLink", "f:generateName")
)  # fmt: skip


def fields_of(value: Json, shape: Shape, created: bool = False) -> FieldSet:
    """All fields of an object, without identity and without what the server keeps.

    An applier owns the leaves that it names. A creator (``created``) also owns the maps and lists that came with them.
    """
    found: FieldSet = set()
    for key, part in value.items():
        if key not in ("apiVersion", "kind"):
            _collect(part, shape.at(key), (f"f:{key}",), found, created, shape.always_there(key))
    return _owned(found)


def _owned(paths: FieldSet) -> FieldSet:
    return {p for p in paths if not (p[0] == "f:metadata" and (len(p) == 1 or p[1] in _NOBODYS))}


def _collect(value: Any, shape: Shape, path: Path, found: FieldSet, whole: bool, was_there: bool = False) -> None:
    """``whole``: containers that appear are fields too, unless they ``was_there`` as an empty one."""
    if isinstance(value, dict) and not shape.atomic:
        if not value or (whole and not was_there):
            found.add(path)
        for key, part in value.items():
            _collect(part, shape.at(key), (*path, f"f:{key}"), found, whole, was_there and shape.always_there(key))
    elif isinstance(value, list) and shape.form == "list" and shape.list_type != "atomic":
        if whole and not was_there:
            found.add(path)
        for item in value:
            step = step_of(item, shape)
            if step is None:
                found.add(path)
                return
            found.add((*path, step))
            if shape.list_type == "map":
                _collect_item(item, shape.item, (*path, step), found, whole)
    else:
        found.add(path)


def _collect_item(item: Json, shape: Shape, path: Path, found: FieldSet, whole: bool) -> None:
    for key, part in item.items():
        _collect(part, shape.at(key), (*path, f"f:{key}"), found, whole)


def step_of(item: Any, shape: Shape) -> str | None:
    """The step that names an item of a set or keyed list, or None when it has no key."""
    if shape.list_type == "set":
        return "v:" + msgspec.json.encode(item).decode()
    if not isinstance(item, dict):
        return None
    keys = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in shape.keys}
    present = {key: value for key, value in sorted(keys.items()) if value is not None}
    return "k:" + msgspec.json.encode(present).decode() if present else None


_KEY_DEFAULTS = {"protocol": "TCP"}  # the one default among the keys of core lists


def changed(old: Json, new: Json, shape: Shape) -> tuple[FieldSet, FieldSet]:
    """Fields of ``new`` that are new or differ, and fields of ``old`` that are gone."""
    differ: FieldSet = set()
    gone: FieldSet = set()
    for key in old.keys() | new.keys():
        if key not in ("apiVersion", "kind"):
            _compare_field(old, new, key, shape, (), differ, gone)
    return _owned(differ), _owned(gone)


def _compare_field(old: Json, new: Json, key: str, shape: Shape, path: Path, differ: FieldSet, gone: FieldSet) -> None:
    here, child, there = (*path, f"f:{key}"), shape.at(key), shape.always_there(key)
    if key not in new:
        _collect(old[key], child, here, gone, True, there)
    elif key not in old:
        _collect(new[key], child, here, differ, True, there)
    else:
        _compare(old[key], new[key], child, here, differ, gone)


def _compare(old: Any, new: Any, shape: Shape, path: Path, differ: FieldSet, gone: FieldSet) -> None:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and not shape.atomic:
        for key in old.keys() | new.keys():
            _compare_field(old, new, key, shape, path, differ, gone)
    elif isinstance(old, list) and isinstance(new, list) and shape.form == "list" and shape.list_type != "atomic":
        before = {step_of(item, shape): item for item in old}
        after = {step_of(item, shape): item for item in new}
        if None in before or None in after:
            differ.add(path)
            return
        for step in before.keys() | after.keys():
            assert step is not None
            here = (*path, step)
            if step in before and step in after:
                if shape.list_type == "map":
                    _compare(before[step], after[step], shape.item, here, differ, gone)
                continue
            item, side = (before[step], gone) if step in before else (after[step], differ)
            side.add(here)
            if isinstance(item, dict):
                _collect_item(item, shape.item, here, side, True)
    else:
        differ.add(path)


# -- FieldsV1 ----------------------------------------------------------------------------------------------------------


def to_fields_v1(paths: Iterable[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    _mark(tree, (), set(paths))
    return tree


def _mark(node: Json, path: Path, paths: FieldSet) -> None:
    for step, inner in list(node.items()):
        here = (*path, step)
        if inner:
            _mark(inner, here, paths)
            if here in paths:
                node[step] = {".": {}, **inner}  # clients compare the text, in which it stands first


def from_fields_v1(tree: Json) -> FieldSet:
    found: FieldSet = set()
    _unpack(tree, (), found)
    return found


def _unpack(node: Json, path: Path, found: FieldSet) -> None:
    if not node and path:
        found.add(path)
    for step, inner in node.items():
        if step == ".":
            found.add(path)
        else:
            _unpack(inner, (*path, _normal(step)), found)


def _normal(step: str) -> str:
    """Keys in one spelling, whoever wrote them."""
    if step.startswith("k:"):
        return "k:" + msgspec.json.encode(dict(sorted(msgspec.json.decode(step[2:]).items()))).decode()
    return step


def show(path: Path) -> str:
    """``.spec.containers[name="c"].image``, as conflicts name it."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += "." + step[2:]
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text


# -- Field ownership (metadata.managedFields): who set what ---------------------------------------------------------


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
