"""The values of expressions. JSON's values are themselves; these are the kinds that Python has no own type for."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final


class CelError(Exception):
    """An expression that cannot be evaluated, or compiled; the text is for whoever wrote it."""


Spend = Callable[[int], None]
"""Raises CelError once more has been spent than an expression may cost."""


class Uint(int):
    """An unsigned integer of 64 bits."""


@dataclass(frozen=True, slots=True)
class CelType:
    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing (``optional.of(x)``, ``optional.none()``, ``x.?field``)."""

    there: bool
    value: Any = None


@dataclass(frozen=True, slots=True)
class Metered:
    """A function whose work the lengths of its arguments do not tell: it spends by itself, through its first argument."""

    compute: Callable[..., Any]


class OfItsKind:
    """A value that is compared with its own kind alone: anything else beside it is an error, where other values are unequal."""

    __slots__ = ()


@dataclass(slots=True)
class Message:
    """An object that a mutation makes: ``Object{spec: …}`` and ``JSONPatch{op: …}``."""

    type: str
    fields: dict[str, Any]


class Host:
    """A value of whoever runs the expression, which answers for itself."""

    def asked(self, method: str, *given: Any) -> Any:
        """Raises TypeError for a method that it does not have."""
        raise TypeError


HOST_METHODS: Final = frozenset(
    ("path", "group", "resource", "subresource", "namespace", "name", "check", "allowed", "reason", "errored", "serviceAccount")
)
"""The methods of all of them (Kubernetes' authorizer)."""
NOTHING: Final = Optional(False)
INT_LEAST, INT_MOST, UINT_MOST = -(2**63), 2**63 - 1, 2**64 - 1


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null_type"
        case bool():
            return "bool"
        case Uint():
            return "uint"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case list():
            return "list"
        case Mapping():
            return "map"
        case datetime():
            return "google.protobuf.Timestamp"
        case timedelta():
            return "google.protobuf.Duration"
        case CelType():
            return "type"
        case Optional():
            return "optional_type"
        case Message():
            return value.type
    return type(value).__name__


def of(value: Any, *types: type) -> Any:
    """The value. Raises TypeError where it is of none of these types; a bool is no number."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError
    return value


def length(value: Any) -> int:
    """Steps that it takes to look through a value."""
    return len(value) // 10 if isinstance(value, str | bytes) else len(value) if isinstance(value, list | Mapping) else 0


def as_json(value: Any) -> Any:
    """The value as an object may hold it. Raises CelError for what JSON has no word for."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return value
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():.9f}".rstrip("0").rstrip(".") + "s"
        case Message():
            return as_json(value.fields)
        case Mapping():
            return {str(key): as_json(inner) for key, inner in value.items()}
        case list():
            return [as_json(inner) for inner in value]
    raise CelError(f"{type_of(value)} cannot stand in an object")


def check_names(value: Any, expected: str) -> None:
    """Return whether the objects in a mutation's value bear the names of their places: that of ``Object{spec: …}`` is
    ``Object.spec``.
    Raises CelError."""
    match value:
        case Message():
            if value.type != expected:
                raise CelError(f'unexpected type name "{value.type}", expected "{expected}", which matches field name path from '
                               "root Object type")
            for name, inner in value.fields.items():
                check_names(inner, f"{expected}.{name}")
        case Mapping():
            for inner in value.values():
                check_names(inner, expected)
        case list():
            for inner in value:
                check_names(inner, expected)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(spend: Spend, left: Any, right: Any) -> bool:
    """Numbers compare by what they are, whatever their type; other values of unlike types are unequal."""
    spend(3 + length(left))
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(partial(equal, spend), left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(equal(spend, value, right[key]) for key, value in left.items())
    if isinstance(left, Message) and isinstance(right, Message):
        return left.type == right.type and equal(spend, left.fields, right.fields)
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.there == right.there and equal(spend, left.value, right.value)
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, OfItsKind) and type(left) is not type(right):
        raise CelError("no such overload")
    return type_of(left) == type_of(right) and bool(left == right)


def ordered(left: Any, right: Any) -> int:
    """-1, 0 or 1. Raises CelError for what has no order."""
    comparable = (is_number(left) and is_number(right)) or (
        type_of(left) == type_of(right) and isinstance(left, bool | str | bytes | datetime | timedelta)
    )
    if not comparable:
        raise CelError(f"no such overload: {type_of(left)} < {type_of(right)}")
    return int(left > right) - int(left < right)


def whole(value: int, like: Any = 0) -> int:
    """The integer, in the type of the other. Raises CelError where it has no room."""
    if isinstance(like, Uint):
        if not 0 <= value <= UINT_MOST:
            raise CelError("unsigned integer overflow")
        return Uint(value)
    if not INT_LEAST <= value <= INT_MOST:
        raise CelError("integer overflow")
    return value
