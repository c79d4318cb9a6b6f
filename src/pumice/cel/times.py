"""Durations and timestamps."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pumice.cel.values import CelError, of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|us|µs|ns|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PARTS = ("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfYear", "getDayOfWeek", "getHours", "getMinutes",
          "getSeconds", "getMilliseconds")  # fmt: skip


def duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    body = of(value, str).lstrip("+-")
    parts = _DURATION.findall(body)
    if body != "0" and (not parts or "".join(n + u for n, u in parts) != body):
        raise CelError(f"cannot convert {value!r} to duration")
    try:
        found = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    except OverflowError:
        raise CelError(f"cannot convert {value!r} to duration") from None
    return -found if value.startswith("-") else found


def timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return EPOCH + timedelta(seconds=value)
    try:
        found = datetime.fromisoformat(of(value, str))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise CelError(f"cannot convert {value!r} to timestamp")
    return found


def _part(name: str) -> Callable[..., int]:
    def part(value: Any, zone: str = "UTC") -> int:
        if isinstance(value, timedelta):
            seconds = value.total_seconds()
            parts = {"getHours": seconds / 3600, "getMinutes": seconds / 60, "getSeconds": seconds,
                     "getMilliseconds": (seconds % 1) * 1000}  # fmt: skip
            return int(parts[name])
        at = of(value, datetime).astimezone(_zone(zone))
        return int({
            "getFullYear": at.year, "getMonth": at.month - 1, "getDate": at.day, "getDayOfMonth": at.day - 1,
            "getDayOfYear": at.timetuple().tm_yday - 1, "getDayOfWeek": at.isoweekday() % 7, "getHours": at.hour,
            "getMinutes": at.minute, "getSeconds": at.second, "getMilliseconds": at.microsecond // 1000,
        }[name])  # fmt: skip

    return part


def _zone(name: Any) -> tzinfo:
    """By its name, or by what it is ahead of UTC: ``-02:30``."""
    offset = re.fullmatch(r"([+-]?)([0-9]{2}):([0-9]{2})", of(name, str))
    if offset is not None:
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-ahead if offset[1] == "-" else ahead)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"duration": duration, "timestamp": timestamp}

METHODS: Final[dict[str, Callable[..., Any]]] = {name: _part(name) for name in _PARTS}
