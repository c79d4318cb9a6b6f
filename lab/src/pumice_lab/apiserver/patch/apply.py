"""Server-side apply: a client sends the fields that it wants, the server knows who else wants what.

Rules: Kubernetes docs "Server-Side Apply". The object is merged by the list types of its kind; a field that another manager
owns and that would change is a conflict unless forced; fields that this manager applied before and no longer names are removed,
unless somebody else owns them too.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from pumice_lab.apiserver.bodies import check_size
from pumice_lab.apiserver.errors import ApiFailure, bad_request
from pumice_lab.apiserver.names import check_name
from pumice_lab.apiserver.patch.fields import (
    FieldSet,
    Path,
    apply_entry,
    changed,
    fields_of,
    from_fields_v1,
    reachable,
    show,
    step_of,
    to_fields_v1,
)
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.schema.shape import Shape

if TYPE_CHECKING:
    from pumice_lab.apiserver.objects import Objects
from pumice_lab.apiserver.write_options import WriteOptions

Json = dict[str, Any]


def apply(
    objects: Objects,
    kind: Kind,
    namespace: str,
    name: str,
    body: Json,
    options: WriteOptions,
    subresource: str,
    force: bool,
) -> tuple[Json, bool]:
    """The object after the apply, and whether it is new. Raises Conflict with one cause per field."""
    wanted = _wanted(objects, kind, namespace, body, options)
    if subresource:
        wanted = {key: part for key, part in wanted.items() if key in ("apiVersion", "kind", "metadata", subresource)}
    applied = reachable(kind, subresource, fields_of(wanted, kind.shape))
    now = objects.backend.now()
    stored = objects.storage.get(kind.storage, namespace, name)
    if stored is None:
        if subresource:
            objects.stored(kind, namespace, name)  # says that it is not there
        check_name(wanted["metadata"], name)
        entry = apply_entry(kind, options.manager, subresource, now, applied)
        from pumice_lab.apiserver.verbs.context import from_version

        return objects.create(
            kind, namespace, from_version(kind, wanted), replace(options, managed=[entry] if applied else [])
        ), True
    live = options.conversion.to(kind.api_version, kind, stored.value()) if kind.custom else stored.value()
    entries = live["metadata"].pop("managedFields", None)
    if entries is None:  # its managers were never recorded: whatever is there was somebody's wish
        before = apply_entry(kind, "before-first-apply", "", now, fields_of(live, kind.shape))
        entries = [{**before, "operation": "Update"}]
    me = (options.manager, "Apply", subresource)
    others = [entry for entry in entries if _identity(entry) != me]
    mine = [entry for entry in entries if _identity(entry) == me]
    merged = _merge(copy.deepcopy(live), wanted, kind.shape)
    earlier = from_fields_v1(mine[0]["fieldsV1"]) if mine else set()
    foreign: FieldSet = set().union(*(from_fields_v1(entry["fieldsV1"]) for entry in others))
    given_up = _given_up(earlier, applied, foreign, kind.shape)
    if isinstance(body.get("metadata"), dict):
        given_up.discard(_METADATA)  # the name that it holds belongs to nobody
    _remove(merged, given_up, kind.shape)
    free = None if force else _client_applied(kind, live, options.manager)
    others = _settle(others, *changed(live, merged, kind.shape), free)
    entry = apply_entry(kind, options.manager, subresource, now, applied)
    if mine and mine[0]["fieldsV1"] == entry["fieldsV1"] and mine[0].get("apiVersion") == entry["apiVersion"]:
        entry = mine[0]
    managed = _in_order(entries, [*others, *([entry] if applied else [])])
    merged.setdefault("metadata", {})["resourceVersion"] = wanted["metadata"].get("resourceVersion") or str(stored.revision)
    check_size(merged)
    clean = objects.parse(kind, {**merged, "apiVersion": kind.api_version}, replace(options, validation="Ignore"))
    from pumice_lab.apiserver.verbs.context import from_version

    parsed = from_version(kind, clean)
    return objects.update(kind, namespace, name, parsed, replace(options, managed=managed), subresource), False


def _wanted(objects: Objects, kind: Kind, namespace: str, body: Json, options: WriteOptions) -> Json:
    metadata = body.get("metadata")
    if not body.get("apiVersion") or not body.get("kind"):
        raise bad_request("Object 'Kind' is missing: an apply patch names apiVersion and kind")
    if isinstance(metadata, dict) and metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    wanted = objects.parse(kind, body, options, applied=True)  # an empty list that is applied is owned
    if isinstance(metadata, dict) and "name" in metadata:
        wanted["metadata"]["name"] = metadata["name"] or ""  # taken away, not left out
    if kind.namespaced:
        wanted["metadata"].setdefault("namespace", namespace)
    return wanted


def _identity(entry: Json) -> tuple[str, str, str]:
    return entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", "")


def _client_applied(kind: Kind, live: Json, manager: str) -> FieldSet:
    """Fields that kubectl set by client-side apply, as its annotation says: kubectl may take those over without a conflict."""
    text = (live["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/last-applied-configuration")
    if manager != "kubectl" or not text:
        return set()
    try:
        last = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return set()
    return fields_of(last, kind.shape) if isinstance(last, dict) else set()


def _in_order(before: list[Json], now: list[Json]) -> list[Json]:
    """The managers' entries of now: those that were there before in their places, a new one behind them."""
    left, kept = list(now), list[Json]()
    for entry in before:
        at = next((at for at, other in enumerate(left) if _identity(other) == _identity(entry)), None)
        if at is not None:
            kept.append(left.pop(at))
    return kept + left


def _settle(others: list[Json], differ: FieldSet, gone: FieldSet, free: FieldSet | None) -> list[Json]:
    """The other managers' entries, without what they lose. A change of what one of them owns is a Conflict, unless the field is
    among the ``free`` ones (None: all are)."""
    result: list[Json] = []
    causes: list[Json] = []
    for entry in others:
        owned = from_fields_v1(entry.get("fieldsV1") or {})
        disputed = owned & differ
        left = owned - gone - (disputed if free is None else disputed & free)
        if left:
            result.append(entry if len(left) == len(owned) else {**entry, "fieldsV1": to_fields_v1(left)})
        if free is None:
            continue
        who = f'conflict with "{entry.get("manager")}"'
        if entry.get("subresource"):
            who += f' with subresource "{entry["subresource"]}"'
        if entry.get("operation") == "Update":
            who += f" using {entry.get('apiVersion')}"
        causes += [
            {"reason": "FieldManagerConflict", "message": who, "field": show(p)} for p in sorted(disputed - free)
        ]
    if causes:
        count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
        said = ": ".join((causes[0]["message"], causes[0]["field"])) if len(causes) == 1 else "\n".join(_listed(causes))
        raise ApiFailure(409, "Conflict", f"Apply failed with {count}: {said}", {"causes": causes})
    return result


def _listed(causes: list[Json]) -> Iterator[str]:
    """Return the managers in conflict, and the fields below each, as kubectl prints them."""
    for who, those in groupby(sorted(causes, key=itemgetter("message")), key=itemgetter("message")):
        yield f"conflicts {who.removeprefix('conflict ')}:"
        yield from (f"- {cause['field']}" for cause in those)


_METADATA: Path = ("f:metadata",)


def _given_up(earlier: FieldSet, applied: FieldSet, foreign: FieldSet, shape: Shape) -> FieldSet:
    """Return the fields that this manager applied before, wants no longer, and nobody else holds.

    A field that somebody holds something inside of stays; a list item stays only if somebody holds the item itself. A struct of
    which nobody holds anything any more goes with its fields, also those with defaults; a map stays, empty
    (structured-merge-diff, fieldpath.Set.EnsureNamedFieldsAreMembers).
    """
    kept = applied | foreign
    inside = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    given_up = {path for path in earlier - kept if not path[-1].startswith("f:") or path not in inside}
    # A list item goes as a whole, and one that stays keeps its key: without it the rest could not be found.
    items = {path for path in given_up if path[-1].startswith("k:")}
    loose = {path for path in given_up if not any(path[:n] in items for n in range(1, len(path)))}
    structs = {path[:n] for path in loose for n in range(1, len(path)) if path[:n] not in inside and _is_struct(path[:n], shape)}
    return {path for path in loose | structs if not _is_key(path)}


def _is_struct(path: Path, shape: Shape) -> bool:
    for step in path:
        shape = shape.at(step[2:]) if step.startswith("f:") else shape.item
    return path[-1].startswith("f:") and shape.form == "struct"


def _is_key(path: Path) -> bool:
    """Return True if the path is a key field of the list item that it lies in."""
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in msgspec.json.decode(path[-2][2:])


def _merge(live: Any, wanted: Any, shape: Shape) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict) and not shape.atomic:
        result = dict(live)
        for key, part in wanted.items():
            result[key] = _merge(live[key], part, shape.at(key)) if key in live else part
        return result
    if isinstance(live, list) and isinstance(wanted, list) and shape.form == "list" and shape.list_type != "atomic":
        return _merge_lists(live, wanted, shape)
    return wanted


def _merge_lists(live: list[Any], wanted: list[Any], shape: Shape) -> list[Any]:
    """Items of both. Shared ones stand in the order of ``wanted``; one that only ``live`` has stays behind the item before it."""
    theirs = {step_of(item, shape): item for item in live}
    ours = {step_of(item, shape): item for item in wanted}
    result: list[Any] = []
    left, right = deque(theirs), deque(ours)
    shared = deque(step for step in right if step in theirs)
    done: set[str | None] = set()

    def take(step: str | None) -> None:
        mine = ours[step]
        both = step in theirs and shape.list_type == "map"
        result.append(_merge(theirs[step], mine, shape.item) if both else mine)
        done.add(step)
        if shared and shared[0] == step:
            shared.popleft()

    while left or right:
        if left and right and left[0] == right[0]:
            take(right.popleft())
            left.popleft()
        elif left and left[0] in done:
            left.popleft()
        elif left and right and left[0] in ours and shared and shared[0] != left[0]:
            left.popleft()  # its turn comes where ``wanted`` has it
        elif left and left[0] not in ours:
            result.append(theirs[left.popleft()])
        elif right:
            take(right.popleft())
        else:
            left.popleft()
    return result


def _remove(value: Any, paths: FieldSet, shape: Shape) -> None:
    """Takes fields out. A map that they leave empty stays, as far as the kind stores empty ones.

    The deepest go first, and each container is looked through once, however many of its items go."""
    inside: dict[Path, set[str]] = {}
    for path in paths:
        inside.setdefault(path[:-1], set()).add(path[-1])
    known: dict[int, dict[str | None, Any]] = {}
    for parent in sorted(inside, key=len, reverse=True):
        found = _container(value, parent, shape, known)
        if found is not None:
            _drop(*found, inside[parent])


def _container(value: Any, path: Path, shape: Shape, known: dict[int, dict[str | None, Any]]) -> tuple[Any, Shape] | None:
    """Return what lies at the path, and its shape. ``known``: items of lists by their steps."""
    for step in path:
        if step.startswith("f:"):
            if not isinstance(value, dict) or step[2:] not in value:
                return None
            value, shape = value[step[2:]], shape.at(step[2:])
        elif isinstance(value, list):
            if id(value) not in known:
                known[id(value)] = {step_of(item, shape): item for item in reversed(value)}
            if step not in known[id(value)]:
                return None
            value, shape = known[id(value)][step], shape.item
        else:
            return None
    return value, shape


def _drop(container: Any, shape: Shape, steps: set[str]) -> None:
    if isinstance(container, dict):
        for step in steps:
            container.pop(step[2:], None)
    elif isinstance(container, list):
        gone = {f"v:{msgspec.json.encode(msgspec.json.decode(step[2:])).decode()}" if step.startswith("v:") else step
                for step in steps}  # fmt: skip
        container[:] = [item for item in container if step_of(item, shape) not in gone]
