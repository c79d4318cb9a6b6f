"""JSON Patch (RFC 6902)."""

from __future__ import annotations

import copy
from typing import Any

from pumice_lab.apiserver.bodies import NODES_LIMIT, encode, nodes_of
from pumice_lab.apiserver.errors import ApiFailure, bad_request

# Bounds of kube-apiserver: without the second, thirty copies of a list into itself make a billion entries of one.
OPERATIONS_LIMIT = 10_000
COPIED_LIMIT = 3 * 1024 * 1024
SHIFTED_LIMIT = 50_000_000
"""Entries of lists that make room, all operations together: each is a word that is moved."""


def apply_json_patch(document: Any, operations: Any) -> Any:
    """The patched copy. Raises BadRequest when the patch is malformed, Invalid (422) when it does not fit the document."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > OPERATIONS_LIMIT:
        why = f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(operations)}"
        raise ApiFailure(413, "RequestEntityTooLarge", why)
    result, copied, nodes, shifted = copy.deepcopy(document), 0, 0, 0
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request(f"a JSON patch operation needs op and path: {operation!r}")
        if operation.get("op") == "copy":
            source = _get(result, _pointer(operation.get("from")))
            copied, nodes = copied + len(encode(source)), nodes + nodes_of(source)
            if copied > COPIED_LIMIT:
                raise _fit_error(f"the patch copies more than {COPIED_LIMIT} bytes")
            if nodes > NODES_LIMIT:
                raise _fit_error(f"the patch copies more than {NODES_LIMIT} values")
        shifted += _longest_list(result, operation)
        if shifted > SHIFTED_LIMIT:
            raise _fit_error("the patch inserts into or removes from long lists too often")
        result = _apply(result, operation)
    return result


def _longest_list(document: Any, operation: dict[str, Any]) -> int:
    """The entries that the operation may shift."""
    if operation.get("op") not in ("add", "remove", "move", "copy"):
        return 0
    parents = (_pointer(operation[key])[:-1] for key in ("path", "from") if isinstance(operation.get(key), str))
    return max((len(found) for path in parents if isinstance(found := _look(document, path), list)), default=0)


def _look(document: Any, path: list[str]) -> Any:
    """Return what is there, or None; the operation itself says what is wrong."""
    try:
        return _get(document, path)
    except ApiFailure:
        return None


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    match op:
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            _remove(document, path)
            return document
        case "replace":
            if not path:
                return _value(operation)
            parent = _get(document, path[:-1])
            if not isinstance(parent, (dict, list)):
                raise _fit_error(f"/{'/'.join(path[:-1])} is neither an object nor a list")
            # A missing key is set, as by kube-apiserver; RFC 6902 would refuse it.
            if isinstance(parent, list):
                parent[_index(parent, path[-1])] = _value(operation)
            else:
                parent[path[-1]] = _value(operation)
            return document
        case "move":
            source = _pointer(operation.get("from"))
            value = _get(document, source)
            _remove(document, source)
            return _add(document, path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation.get("from")))))
        case "test":
            if _get(document, path) != operation.get("value"):
                raise _fit_error(f"testing value {operation['path']} failed: test failed")
            return document
    raise _fit_error(f"unexpected JSON patch operation {op!r}")


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise bad_request(f"the JSON patch operation on {operation['path']!r} has no value")
    return copy.deepcopy(operation["value"])


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str):
        raise bad_request("a JSON patch operation that moves or copies needs from")
    if text and not text.startswith("/"):
        raise bad_request(f"the JSON pointer {text!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise _fit_error(f"doc is missing path: /{'/'.join(path)}: missing value")
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], len(parent)), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise _fit_error(f"/{'/'.join(path[:-1])} is neither an object nor a list")
    return document


def _remove(document: Any, path: list[str]) -> None:
    if not path:
        raise _fit_error("the whole document cannot be removed")
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1])]
    elif isinstance(parent, dict) and path[-1] in parent:
        del parent[path[-1]]
    else:
        raise _fit_error(f"unable to remove nonexistent key: {path[-1]}: missing value")


def _index(items: list[Any], text: str, last: int | None = None) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) > (len(items) - 1 if last is None else last):
        raise _fit_error(f"{text} is no index of a list of {len(items)}")
    return int(text)


def _fit_error(message: str) -> ApiFailure:
    return ApiFailure(422, "Invalid", f"the server rejected our request due to an error in our request: {message}")


# -- JSON Merge Patch (RFC 7396) -------------------------------------------------------------------------------------


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """The patched value; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result
