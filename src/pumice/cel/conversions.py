"""From one type to another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pumice.cel import kubernetes
from pumice.cel.times import EPOCH
from pumice.cel.values import CelError, CelType, Spend, Uint, as_json, length, of, type_of, whole


def _int(value: Any) -> int:
    if isinstance(value, datetime):
        return int((value - EPOCH).total_seconds())
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value):
        raise CelError(f"cannot convert {value!r} to int")
    if isinstance(value, float) and abs(value) >= 2.0**63:
        raise CelError("integer overflow")
    return whole(int(of(value, int, float, str)))


def _uint(value: Any) -> Uint:
    found: Uint = whole(int(of(value, int, float, str)), Uint())  # type: ignore[assignment]
    return found


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | timedelta):
        return str(as_json(value))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return f"{value:g}"
    return str(of(value, str, int, kubernetes.Quantity, kubernetes.Url, *kubernetes.ADDRESSES))


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "True": True, "TRUE": True, "t": True, "1": True,
             "false": False, "False": False, "FALSE": False, "f": False, "0": False}  # fmt: skip
    if value not in words:
        raise CelError(f"cannot convert {value!r} to bool")
    return words[of(value, str)]


def shown(spend: Spend, value: Any) -> str:
    """Any value as text, as ``%s`` has it."""
    spend(1 + length(value))
    if isinstance(value, list):
        return f"[{', '.join(shown(spend, item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{shown(spend, key)}: {shown(spend, item)}" for key, item in value.items())) + "}"
    return "null" if value is None else value.name if isinstance(value, CelType) else _string(value)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "int": _int, "uint": _uint, "string": _string, "bool": _bool,
    "double": lambda value: float(of(value, int, float, str)), "dyn": lambda value: value,
    "bytes": lambda value: value if isinstance(value, bytes) else of(value, str).encode(),
    "type": lambda value: CelType(type_of(value)),
}  # fmt: skip
