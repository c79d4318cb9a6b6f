"""Reads a client's object into the form that is stored: types checked, unknown fields dropped and named, nulls and
meaningless zeros dropped, quantities in canonical form (``0.5`` cpu is read back as ``500m``).
"""

from __future__ import annotations

import base64
import re
from typing import Any

from pumice_lab.apiserver.errors import bad_request
from pumice_lab.apiserver.schema.quantity import canonical
from pumice_lab.apiserver.schema.shape import Shape

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_BEYOND = {"int32": 1 << 31, "int64": 1 << 63}
_EMPTIES = ("scalar", "list", "map")
_GO_NAMES = {"dict": "object", "list": "array", "str": "string", "int": "number", "float": "number", "bool": "bool"}


def decode(
    shape: Shape, value: dict[str, Any], unknown: list[str], kind: str = "", keep_zeros: bool = False
) -> dict[str, Any]:
    """A clean copy of ``value``; the paths of unknown fields are appended to ``unknown``. Raises BadRequest on a wrong type."""
    result = _walk(shape, value, "", unknown, kind, keep_zeros)
    assert isinstance(result, dict)
    return result


def _walk(shape: Shape, value: Any, path: str, unknown: list[str], kind: str, keep: bool) -> Any:
    form = shape.form
    if form == "scalar":
        return _scalar(shape.name, value, path, kind)
    if form == "struct":
        if type(value) is not dict:
            if shape.lenient and path:
                return value
            raise _mismatch(value, shape.name or "object", path, kind)
        fields, omits = shape.fields, shape.omits
        result = {}
        for key, inner in value.items():
            child = fields.get(key)
            if child is None:
                if shape.open:
                    result[key] = inner
                else:
                    unknown.append(f"{path}.{key}" if path else key)
            elif inner is not None:
                part = _walk(child, inner, f"{path}.{key}" if path else key, unknown, kind, keep)
                if part or keep or key not in omits or child.form not in _EMPTIES:
                    result[key] = part
        return result
    if form == "list":
        if type(value) is not list:
            if shape.lenient and path:
                return value
            raise _mismatch(value, "list", path, kind)
        item = shape.item
        return [_walk(item, inner, f"{path}[{i}]", unknown, kind, keep) for i, inner in enumerate(value)]
    if form == "map":
        if type(value) is not dict:
            if shape.lenient and path:
                return value
            raise _mismatch(value, "map", path, kind)
        item = shape.item
        return {
            key: _walk(item, inner, f"{path}.{key}", unknown, kind, keep)
            for key, inner in value.items()
            if inner is not None
        }
    return value


def _scalar(name: str, value: Any, path: str, kind: str) -> Any:
    match name:
        case "string":
            if type(value) is str:
                return value
        case "int32" | "int64":
            number = int(value) if type(value) is float and value.is_integer() else value
            if type(number) is int and -_BEYOND[name] <= number < _BEYOND[name]:
                return number
        case "boolean":
            if type(value) is bool:
                return value
        case "number":
            if type(value) in (int, float):
                return value
        case "quantity":
            if type(value) in (str, int, float):
                try:
                    return canonical(value)
                except ValueError as problem:
                    message = f'{kind} in version "v1" cannot be handled as a {kind}: {path}: {problem}'
                    raise bad_request(message) from None
        case "int-or-string":
            if type(value) is str or (type(value) is int and -_BEYOND["int32"] <= value < _BEYOND["int32"]):
                return value
        case "time" | "microtime":
            if type(value) is str and _TIME.fullmatch(value):
                return value
        case "bytes":
            if type(value) is str:
                try:
                    base64.b64decode(value, validate=True)
                except ValueError:  # of base64, or of letters that are none
                    raise bad_request(f"{path}: illegal base64 data") from None
                return value
    raise _mismatch(value, name, path, kind)


def _mismatch(value: Any, wanted: str, path: str, kind: str) -> Exception:
    got = _GO_NAMES.get(type(value).__name__, "null")
    if got == "number" and (wanted in _BEYOND or wanted == "int-or-string"):  # one that does not fit
        got += f" {value}"[:40]
    return bad_request(
        f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal {got} into Go struct field '
        f"{kind}.{path} of type {wanted}"
    )
