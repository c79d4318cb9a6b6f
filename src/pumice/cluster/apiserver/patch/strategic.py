"""Strategic merge patch: a merge patch that knows which lists have keys.

Rules: Kubernetes "Update API Objects in Place Using kubectl patch" and the design note on strategic merge patch. Directives:
``$patch: replace|delete|merge``, ``$deleteFromPrimitiveList/FIELD``, ``$setElementOrder/FIELD``, ``$retainKeys``.
"""

from __future__ import annotations

from typing import Any

from pumice.cluster.apiserver.errors import bad_request
from pumice.cluster.apiserver.schema.shape import Shape

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
                result[field] = [item for item in result[field] if item not in value]
            continue
        if value is None:
            result.pop(key, None)
            continue
        result[key] = _field(result.get(key), value, shape.at(key), key)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            field = key.partition("/")[2]
            if isinstance(result.get(field), list):
                result[field] = _ordered(result[field], order, shape.at(field), patch.get(field))
    return result


def _field(current: Any, value: Any, shape: Shape, name: str) -> Any:
    if isinstance(value, dict):
        base = current if isinstance(current, dict) else {}
        return _struct(base, value, shape)
    if isinstance(value, list) and shape.merge:
        base_list = current if isinstance(current, list) else []
        if shape.merge_key and shape.item.form in ("struct", "any"):
            return _keyed_list(base_list, value, shape, name)
        return base_list + [item for item in value if item not in base_list]
    return _clean(value)


def _keyed_list(current: list[Any], patch: list[Any], shape: Shape, name: str) -> list[Any]:
    key = shape.merge_key
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_clean(item) for item in patch if item.get("$patch") != "replace"]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key} (list {name})")
        matching = [i for i, have in enumerate(result) if isinstance(have, dict) and have.get(key) == item[key]]
        if item.get("$patch") == "delete":
            result = [have for i, have in enumerate(result) if i not in matching]
        elif matching:
            result[matching[0]] = _struct(result[matching[0]], item, shape.item)
        else:
            result.append(_struct({}, item, shape.item))
    return result


def _ordered(items: list[Any], order: list[Any], shape: Shape, patched: Any) -> list[Any]:
    """Items named in ``order`` in that order; the others keep their place relative to what stands before them."""
    key = shape.merge_key

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    rank = {_hashable(identity(wanted)): i for i, wanted in enumerate(order)}
    named = sorted((i for i in items if _hashable(identity(i)) in rank), key=lambda i: rank[_hashable(identity(i))])
    result: list[Any] = []
    remaining = iter(named)
    for item in items:
        result.append(next(remaining) if _hashable(identity(item)) in rank else item)
    return result


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _clean(value: Any) -> Any:
    """A new value as it is stored: without directives and nulls."""
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if v is not None and not k.startswith("$")}
    if isinstance(value, list):
        return [_clean(v) for v in value if not (isinstance(v, dict) and v.get("$patch") == "delete")]
    return value
