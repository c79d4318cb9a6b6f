"""Strategic merge patch: a merge patch that knows which lists have keys.

Rules: Kubernetes "Update API Objects in Place Using kubectl patch" and the design note on strategic merge patch. Directives:
``$patch: replace|delete|merge``, ``$deleteFromPrimitiveList/FIELD``, ``$setElementOrder/FIELD``, ``$retainKeys``.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pumice_lab.apiserver.errors import bad_request
from pumice_lab.apiserver.schema.shape import Shape

Json = dict[str, Any]


def apply_strategic_patch(document: Json, patch: Json, shape: Shape) -> Json:
    """The patched object; neither argument is changed. Raises BadRequest on a directive or merge key that is missing."""
    return _struct(document, patch, shape)


def _struct(document: Json, patch: Json, shape: Shape) -> Json:
    match patch.get("$patch"):
        case "replace":
            return {key: _clean(value) for key, value in patch.items() if key != "$patch" and value is not None}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise bad_request(f"unknown $patch directive {other!r}")
    result = dict(document)
    if "$retainKeys" in patch:
        kept = set(patch["$retainKeys"])
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") or key in ("$retainKeys", "$patch"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            if isinstance(result.get(field), list):
                gone = set(map(_hashable, value if isinstance(value, list) else ()))
                result[field] = [item for item in result[field] if _hashable(item) not in gone]
            continue
        if value is None:
            result.pop(key, None)
            continue
        result[key] = _field(result.get(key), value, shape.at(key), key)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            field = key.partition("/")[2]
            if isinstance(result.get(field), list):
                before = document.get(field)
                key_of = shape.at(field).merge_key
                result[field] = _arranged(result[field], order, before if isinstance(before, list) else [], key_of)
    return result


def _field(current: Any, value: Any, shape: Shape, name: str) -> Any:
    if isinstance(value, dict):
        base = current if isinstance(current, dict) else {}
        return _struct(base, value, shape)
    if isinstance(value, list) and shape.merge:
        base_list = current if isinstance(current, list) else []
        if shape.merge_key and shape.item.form in ("struct", "any"):
            return _keyed_list(base_list, value, shape, name)
        there = set(map(_hashable, base_list))
        merged = base_list + [item for item in value if _hashable(item) not in there]
        return _arranged(merged, value, base_list, "")
    return _clean(value)


def _keyed_list(current: list[Any], patch: list[Any], shape: Shape, name: str) -> list[Any]:
    key = shape.merge_key
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_clean(item) for item in patch if item.get("$patch") != "replace"]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key} (list {name})")
    deleted = {_hashable(item[key]) for item in patch if item.get("$patch") == "delete"}
    wanted = [item for item in patch if item.get("$patch") != "delete"]
    left = [have for have in current if not (isinstance(have, dict) and _hashable(have.get(key)) in deleted)]
    result = list(left)
    places = {_hashable(have.get(key)): i for i, have in reversed(list(enumerate(result))) if isinstance(have, dict)}
    for item in wanted:
        place = places.setdefault(_hashable(item[key]), len(result))
        if place < len(result):
            result[place] = _struct(result[place], item, shape.item)
        else:
            result.append(_struct({}, item, shape.item))
    return _arranged(result, wanted, left, key)


def _arranged(items: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """Items named in ``order`` stand in that order; each other one goes before the first that it stood before until now."""

    def identity(item: Any) -> Any:
        return _hashable(item.get(key) if key and isinstance(item, dict) else item)

    rank = {identity(item): i for i, item in reversed(list(enumerate(order)))}
    was = {identity(item): i for i, item in reversed(list(enumerate(before)))}
    named = sorted((item for item in items if identity(item) in rank), key=lambda item: rank[identity(item)])
    others = deque(sorted(
        (item for item in items if identity(item) not in rank), key=lambda item: was.get(identity(item), len(was))
    ))  # fmt: skip
    result: list[Any] = []
    for item in named:
        while others and identity(item) in was and was.get(identity(others[0]), len(was)) < was[identity(item)]:
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _clean(value: Any) -> Any:
    """A new value as it is stored: without directives and nulls."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if v is not None and not k.startswith("$")}
    if isinstance(value, list):
        return [_clean(v) for v in value if not (isinstance(v, dict) and v.get("$patch") == "delete")]
    return value
