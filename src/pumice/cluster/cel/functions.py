"""The functions of expressions: the language's own, those of its extensions for strings, lists and sets, and Kubernetes'.

A function is called by its name with its arguments, a method with what it is called on before them. They raise TypeError where
the arguments are of other types, and CelError, ValueError or OverflowError where their values will not do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import re2

from pumice.cluster.cel import kubernetes
from pumice.cluster.cel.values import (
    NOTHING,
    CelError,
    CelType,
    Optional,
    Uint,
    equal,
    is_number,
    ordered,
    type_of,
    whole,
)

_QUIET = re2.Options()
_QUIET.log_errors = False
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|us|µs|ns|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DAY_ONE = datetime(1970, 1, 1, tzinfo=UTC)


def _of(value: Any, *types: type) -> Any:
    """The value, which must be of one of these types; a bool is no number."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError
    return value


# -- conversions ----------------------------------------------------------------------------------------------------------


def _int(value: Any) -> int:
    if isinstance(value, datetime):
        return int((value - _DAY_ONE).total_seconds())
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value):
        raise CelError(f"cannot convert {value!r} to int")
    if isinstance(value, float) and abs(value) >= 2.0**63:
        raise CelError("integer overflow")
    return whole(int(_of(value, int, float, str)))


def _uint(value: Any) -> Uint:
    found: Uint = whole(int(_of(value, int, float, str)), Uint())  # type: ignore[assignment]
    return found


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.9f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return f"{value:g}"
    return str(_of(value, str, int, kubernetes.Quantity, kubernetes.Url, *kubernetes.ADDRESSES))


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "True": True, "TRUE": True, "t": True, "1": True,
             "false": False, "False": False, "FALSE": False, "f": False, "0": False}  # fmt: skip
    if value not in words:
        raise CelError(f"cannot convert {value!r} to bool")
    return words[_of(value, str)]


def duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    body = _of(value, str).lstrip("+-")
    parts = _DURATION.findall(body)
    if body != "0" and (not parts or "".join(n + u for n, u in parts) != body):
        raise CelError(f"cannot convert {value!r} to duration")
    found = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    return -found if value.startswith("-") else found


def timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _DAY_ONE + timedelta(seconds=value)
    try:
        found = datetime.fromisoformat(_of(value, str))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise CelError(f"cannot convert {value!r} to timestamp")
    return found


def _size(value: Any) -> int:
    return len(_of(value, str, bytes, list, Mapping))


# -- strings --------------------------------------------------------------------------------------------------------------


def _matches(value: Any, pattern: Any) -> bool:
    return bool(_pattern(pattern).search(_of(value, str)))


def _pattern(text: Any) -> Any:
    try:
        return re2.compile(_of(text, str), _QUIET)
    except re2.error:
        raise CelError(f"{text!r} is no regular expression") from None


def _find_all(value: Any, pattern: Any, most: int = -1) -> list[str]:
    found = [match.group(0) for match in _pattern(pattern).finditer(_of(value, str))]
    return found if most < 0 else found[:most]


def _index_of(value: Any, part: Any, start: int = 0) -> int:
    if isinstance(value, list):
        return next((place for place, item in enumerate(value) if equal(item, part)), -1)
    return int(_of(value, str).find(_of(part, str), start))


def _last_index_of(value: Any, part: Any, begin: int | None = None) -> int:
    if isinstance(value, list):
        return next((place for place in reversed(range(len(value))) if equal(value[place], part)), -1)
    end = None if begin is None else begin + len(_of(part, str))
    return int(_of(value, str).rfind(_of(part, str), 0, end))


def _substring(value: Any, begin: int, end: int | None = None) -> str:
    text = _of(value, str)
    last = len(text) if end is None else end
    if not 0 <= begin <= last <= len(text):
        raise CelError(f"index out of range: {begin}")
    return str(text[begin:last])


def _replace(value: Any, old: Any, new: Any, most: int = -1) -> str:
    found = _of(value, str).count(_of(old, str))
    if len(value) + found * len(_of(new, str)) > 1 << 20:
        raise CelError("the string would be too long")
    return str(value.replace(old, new, most))


def _split(value: Any, by: Any, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not _of(by, str):
        return list(_of(value, str))
    return list(_of(value, str).split(by, most - 1 if most > 0 else -1))


def _join(value: Any, by: Any = "") -> str:
    return str(_of(by, str).join(_of(item, str) for item in _of(value, list)))


def _char_at(value: Any, place: int) -> str:
    if not 0 <= place <= len(_of(value, str)):
        raise CelError(f"index out of range: {place}")
    return str(value[place : place + 1])


def _format(value: Any, given: Any) -> str:
    left = list(_of(given, list))

    def put(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if not left:
            raise CelError("index out of range: too few arguments")
        item, digits, verb = left.pop(0), found[1], found[2]
        match verb:
            case "s":
                return _shown(item)
            case "d":
                return str(_of(item, int))
            case "f" | "e":
                return f"{_of(item, float, int):{digits or '.6'}{verb}}"
            case "b":
                return f"{_of(item, int, bool):b}"
            case _:
                return _of(item, bytes, str).encode().hex() if not isinstance(item, int) else f"{item:{verb}}"

    return re.sub(r"%(\.[0-9]+)?([sdfebxXo])|%%", put, _of(value, str))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{_shown(key)}: {_shown(item)}" for key, item in value.items())) + "}"
    return "null" if value is None else value.name if isinstance(value, CelType) else _string(value)


# -- lists and sets -------------------------------------------------------------------------------------------------------


def _sorted(value: Any) -> bool:
    return all(ordered(a, b) <= 0 for a, b in zip(_of(value, list), value[1:], strict=False))


def _sum(value: Any) -> Any:
    items = _of(value, list)
    if all(isinstance(item, timedelta) for item in items) and items:
        return sum(items, timedelta())
    if not all(map(is_number, items)):
        raise TypeError
    found = sum(items)
    return found if isinstance(found, float) else whole(found, items[0] if items else 0)


def _extreme(sign: int) -> Callable[..., Any]:
    def extreme(value: Any) -> Any:
        if not _of(value, list):
            raise CelError("min or max of an empty list")
        best = value[0]
        for item in value:
            best = item if ordered(item, best) * sign > 0 else best
        return best

    return extreme


def _among(*given: Any) -> Any:
    return given[0] if len(given) == 1 and isinstance(given[0], list) else list(given)


def _distinct(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in _of(value, list)[:2000]:
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


def _flatten(value: Any, depth: int = 1) -> list[Any]:
    return [inner for item in _of(value, list)
            for inner in (_flatten(item, depth - 1) if isinstance(item, list) and depth > 0 else [item])]  # fmt: skip


def _slice(value: Any, begin: int, end: int) -> list[Any]:
    if not 0 <= begin <= end <= len(_of(value, list)):
        raise CelError(f"index out of range: {begin}")
    return list(value[begin:end])


def _range(count: int) -> list[int]:
    if not 0 <= count <= 10_000:
        raise CelError(f"a range of {count}")
    return list(range(count))


def _holds_all(value: Any, other: Any) -> bool:
    return all(any(equal(item, mine) for mine in _of(value, list)) for item in _of(other, list))


# -- times ----------------------------------------------------------------------------------------------------------------


def _part(name: str) -> Callable[..., int]:
    def part(value: Any, zone: str = "UTC") -> int:
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
            parts = {"getHours": seconds / 3600, "getMinutes": seconds / 60, "getSeconds": seconds,
                     "getMilliseconds": (seconds % 1) * 1000}  # fmt: skip
            return int(parts[name])
        at = _of(value, datetime).astimezone(_zone(zone))
        return int({
            "getFullYear": at.year, "getMonth": at.month - 1, "getDate": at.day, "getDayOfMonth": at.day - 1,
            "getDayOfYear": at.timetuple().tm_yday - 1, "getDayOfWeek": at.isoweekday() % 7, "getHours": at.hour,
            "getMinutes": at.minute, "getSeconds": at.second, "getMilliseconds": at.microsecond // 1000,
        }[name])  # fmt: skip

    return part


def _zone(name: Any) -> tzinfo:
    """By its name, or by what it is ahead of UTC: ``-02:30``."""
    offset = re.fullmatch(r"([+-]?)([0-9]{2}):([0-9]{2})", _of(name, str))
    if offset is not None:
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-ahead if offset[1] == "-" else ahead)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


_PARTS = ("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfYear", "getDayOfWeek", "getHours", "getMinutes",
          "getSeconds", "getMilliseconds")  # fmt: skip

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "size": _size, "int": _int, "uint": _uint, "string": _string, "bool": _bool,
    "double": lambda value: float(_of(value, int, float, str)), "dyn": lambda value: value,
    "bytes": lambda value: value if isinstance(value, bytes) else _of(value, str).encode(),
    "type": lambda value: CelType(type_of(value)), "duration": duration, "timestamp": timestamp, "matches": _matches,
    **kubernetes.FUNCTIONS,
}  # fmt: skip

NAMESPACES: Final[dict[str, Callable[..., Any]]] = {
    "optional.of": lambda value: Optional(True, value), "optional.none": lambda: NOTHING,
    "optional.ofNonZeroValue": lambda value: Optional(True, value) if value else NOTHING,
    "sets.contains": _holds_all, "sets.equivalent": lambda a, b: _holds_all(a, b) and _holds_all(b, a),
    "sets.intersects": lambda a, b: any(any(equal(x, y) for y in _of(b, list)) for x in _of(a, list)),
    "lists.range": _range, "math.greatest": lambda *given: _extreme(1)(_among(*given)),
    "math.least": lambda *given: _extreme(-1)(_among(*given)), "math.abs": lambda value: abs(_of(value, int, float)),
    "math.ceil": lambda value: float(math.ceil(_of(value, float))),
    "math.floor": lambda value: float(math.floor(_of(value, float))),
    "jsonpatch.escapeKey": lambda key: _of(key, str).replace("~", "~0").replace("/", "~1"),
    "strings.quote": lambda value: '"' + _of(value, str).replace("\\", "\\\\").replace('"', '\\"') + '"',
    **kubernetes.NAMESPACES,
}  # fmt: skip

METHODS: Final[dict[str, Callable[..., Any]]] = {
    "size": _size, "contains": lambda value, part: _of(part, str) in _of(value, str),
    "startsWith": lambda value, part: _of(value, str).startswith(_of(part, str)),
    "endsWith": lambda value, part: _of(value, str).endswith(_of(part, str)), "matches": _matches,
    "find": lambda value, pattern: next(iter(_find_all(value, pattern, 1)), ""), "findAll": _find_all,
    "charAt": _char_at, "indexOf": _index_of, "lastIndexOf": _last_index_of, "substring": _substring, "replace": _replace,
    "split": _split, "join": _join, "trim": lambda value: _of(value, str).strip(), "format": _format,
    "lowerAscii": lambda value: _of(value, str).translate({c: c + 32 for c in range(65, 91)}),
    "upperAscii": lambda value: _of(value, str).translate({c: c - 32 for c in range(97, 123)}),
    "reverse": lambda value: _of(value, str, list)[::-1], "isSorted": _sorted, "sum": _sum,
    "min": _extreme(-1), "max": _extreme(1),
    "distinct": _distinct, "flatten": _flatten, "slice": _slice,
    "sort": lambda value: sorted(_of(value, list), key=kubernetes.by(ordered)),
    "hasValue": lambda value: _of(value, Optional).there, "value": kubernetes.value_of,
    "orValue": lambda value, other: value.value if _of(value, Optional).there else other,
    "or": lambda value, other: value if _of(value, Optional).there else _of(other, Optional),
    **{name: _part(name) for name in _PARTS}, **kubernetes.METHODS,
}  # fmt: skip
