"""Server-side apply: a client sends the fields that it wants, the server knows who else wants what.

Rules: Kubernetes docs "Server-Side Apply". The object is merged by the list types of its kind; a field that another manager
owns and that would change is a conflict unless forced; fields that this manager applied before and no longer names are removed,
unless somebody else owns them too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from pumice.cluster.apiserver.errors import ApiFailure, bad_request
from pumice.cluster.apiserver.patch.fields import FieldSet, Path, fields_of, from_fields_v1, show, step_of, to_fields_v1
from pumice.cluster.apiserver.patch.managed import apply_entry
from pumice.cluster.apiserver.registry import Kind
from pumice.cluster.apiserver.schema.shape import Shape

if TYPE_CHECKING:
    from pumice.cluster.apiserver.objects import Objects, WriteOptions

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
    wanted = _wanted(objects, kind, namespace, name, body, options)
    if subresource:
        wanted = {key: part for key, part in wanted.items() if key in ("apiVersion", "kind", "metadata", subresource)}
    applied = fields_of(wanted, kind.shape)
    now = objects.backend.now()
    stored = objects.storage.get(kind.storage, namespace, name)
    if stored is None:
        if subresource:
            objects.stored(kind, namespace, name)  # says that it is not there
        entry = apply_entry(kind, options.manager, subresource, now, applied)
        from pumice.cluster.apiserver.verbs.context import from_version

        return objects.create(kind, namespace, from_version(kind, wanted), replace(options, managed=[entry])), True
    live = stored.value()
    entries = live["metadata"].pop("managedFields", None)
    if entries is None:  # its managers were never recorded: whatever is there was somebody's wish
        before = apply_entry(kind, "before-first-apply", "", now, fields_of(live, kind.shape))
        entries = [{**before, "operation": "Update"}]
    me = (options.manager, "Apply", subresource)
    others = [entry for entry in entries if _identity(entry) != me]
    mine = [entry for entry in entries if _identity(entry) == me]
    allowed = applied if force else _client_applied(kind, live, options.manager)
    others = _settle(kind, others, applied, live, wanted, allowed)
    merged = _merge(live, wanted, kind.shape)
    earlier = from_fields_v1(mine[0]["fieldsV1"]) if mine else set()
    foreign: FieldSet = set().union(*(from_fields_v1(entry["fieldsV1"]) for entry in others))
    for path in sorted(_given_up(earlier, applied, foreign), key=len, reverse=True):
        _remove(merged, path, kind.shape, applied)
    entry = apply_entry(kind, options.manager, subresource, now, applied)
    if mine and mine[0]["fieldsV1"] == entry["fieldsV1"] and mine[0].get("apiVersion") == entry["apiVersion"]:
        entry = mine[0]
    managed = [entry if _identity(e) == me else next(o for o in others if _identity(o) == _identity(e))
               for e in entries if _identity(e) == me or any(_identity(o) == _identity(e) for o in others)]  # fmt: skip
    if not mine:
        managed.append(entry)
    merged["metadata"]["resourceVersion"] = wanted["metadata"].get("resourceVersion") or str(stored.revision)
    clean = objects.parse(kind, {**merged, "apiVersion": kind.api_version}, replace(options, validation="Ignore"))
    from pumice.cluster.apiserver.verbs.context import from_version

    parsed = from_version(kind, clean)
    return objects.update(kind, namespace, name, parsed, replace(options, managed=managed), subresource), False


def _wanted(objects: Objects, kind: Kind, namespace: str, name: str, body: Json, options: WriteOptions) -> Json:
    metadata = body.get("metadata")
    if not body.get("apiVersion") or not body.get("kind"):
        raise bad_request("Object 'Kind' is missing: an apply patch names apiVersion and kind")
    if isinstance(metadata, dict) and metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    wanted = objects.parse(kind, body, options)
    own = wanted["metadata"].setdefault("name", name)
    if own != name:
        raise bad_request(f"name in the patch ({own}) does not match the name on the URL ({name})")
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


def _settle(kind: Kind, others: list[Json], applied: FieldSet, live: Json, wanted: Json, free: FieldSet) -> list[Json]:
    """The other managers' entries, without the ``free`` fields that change hands. Raises Conflict for any other dispute."""
    result, causes = [], []
    for entry in others:
        owned = from_fields_v1(entry.get("fieldsV1") or {})
        disputed = {p for p in owned & applied if _at(live, p, kind.shape) != _at(wanted, p, kind.shape)}
        disputed = {p for p in disputed if not p[-1].startswith("k:")}  # an item's existence is shared
        if left := owned - (disputed & free):
            result.append(entry if len(left) == len(owned) else {**entry, "fieldsV1": to_fields_v1(left)})
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
        said = ": ".join((causes[0]["message"], causes[0]["field"])) if len(causes) == 1 else "conflicts " + ", ".join(
            f"{c['message'].removeprefix('conflict ')}: {c['field']}" for c in causes)  # fmt: skip
        raise ApiFailure(409, "Conflict", f"Apply failed with {count}: {said}", {"causes": causes})
    return result


def _given_up(earlier: FieldSet, applied: FieldSet, foreign: FieldSet) -> FieldSet:
    """What this manager applied before, wants no longer, and nobody else holds (or holds something inside of)."""
    kept = applied | foreign
    inside = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    given_up = {path for path in earlier - applied if path not in inside}
    # A list item goes as a whole: without its key the rest of it could not be found.
    items = {path for path in given_up if path[-1].startswith("k:")}
    return {path for path in given_up if not any(path[:n] in items for n in range(1, len(path)))}


_NOTHING: Any = object()


def _at(value: Any, path: Path, shape: Shape) -> Any:
    for step in path:
        if step.startswith("f:"):
            if not isinstance(value, dict) or step[2:] not in value:
                return _NOTHING
            value, shape = value[step[2:]], shape.at(step[2:])
        elif isinstance(value, list):
            found = [item for item in value if step_of(item, shape) == step]
            if not found:
                return _NOTHING
            value, shape = found[0], shape.item
        else:
            return _NOTHING
    return value


def _merge(live: Any, wanted: Any, shape: Shape) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict) and not shape.atomic:
        result = dict(live)
        for key, part in wanted.items():
            result[key] = _merge(live[key], part, shape.at(key)) if key in live else part
        return result
    if isinstance(live, list) and isinstance(wanted, list) and shape.form == "list" and shape.list_type != "atomic":
        have = {step_of(item, shape): i for i, item in enumerate(live)}
        items = list(live)
        for item in wanted:
            place = have.get(step_of(item, shape))
            if place is None:
                items.append(item)
            elif shape.list_type == "map":
                items[place] = _merge(items[place], item, shape.item)
        return items
    return wanted


def _remove(value: Any, path: Path, shape: Shape, applied: FieldSet) -> None:
    """Takes one field out, and then parents that it leaves empty."""
    parents: list[Any] = []
    here = value
    for step in path[:-1]:
        parents.append(here)
        if step.startswith("f:"):
            if not isinstance(here, dict) or step[2:] not in here:
                return
            here, shape = here[step[2:]], shape.at(step[2:])
        else:
            matching = [item for item in here if step_of(item, shape) == step] if isinstance(here, list) else []
            if not matching:
                return
            here, shape = matching[0], shape.item
    parents.append(here)
    _drop(here, path[-1], shape)
    for length in range(len(path) - 1, 1, -1):
        if parents[length] or path[:length] in applied or not path[length - 1].startswith("f:"):
            return
        _drop(parents[length - 1], path[length - 1], shape)


def _drop(container: Any, step: str, shape: Shape) -> None:
    if step.startswith("f:") and isinstance(container, dict):
        container.pop(step[2:], None)
    elif isinstance(container, list):
        if step.startswith("v:"):
            wanted = msgspec.json.decode(step[2:])
            container[:] = [item for item in container if item != wanted]
        else:
            container[:] = [item for item in container if step_of(item, shape) != step]
