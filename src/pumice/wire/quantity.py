"""Kubernetes quantities (``500m``, ``3Gi``, ``60k``, ``1e3``) as exact integers in thousandths, and Go durations in seconds."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``1h2m3s`` or ``500ms``. Raises ValueError when it is none."""
    text = text.strip()
    parts = _PART.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write for example 1s, 500ms or 1m30s")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")
_SUFFIX = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": Fraction(1000),
    **{s: Fraction(1000 ** (i + 2)) for i, s in enumerate("MGTPE")},
    **{f"{s}i": Fraction(1024 ** (i + 1)) for i, s in enumerate("KMGTPE")},
}  # fmt: skip


@lru_cache(maxsize=65536)
def parse_quantity(text: str | int | float) -> Fraction:
    """The exact value. Raises ValueError with the text when it is no quantity."""
    match = _FORM.fullmatch(str(text).strip())
    if not match or len(str(text)) > 64:
        raise ValueError(f"{text!r} is not a quantity; write for example 3000, 500m or 3Gi")
    number, exponent, suffix = match.groups()
    if exponent and abs(int(exponent[1:])) > 30:
        raise ValueError(f"{text!r} has an exponent beyond the range of a quantity")
    return Fraction(number) * (Fraction(10) ** int(exponent[1:]) if exponent else 1) * _SUFFIX.get(suffix or "", 1)


def milli(text: str | int | float) -> int:
    """Thousandths, rounded up (how the scheduler counts cpu)."""
    return ceil(parse_quantity(text) * 1000)


def whole(text: str | int | float) -> int | None:
    """The value as an integer, or None when it is not integral (``500m``)."""
    value = parse_quantity(text)
    return int(value) if value.denominator == 1 else None


def round_up(text: str | int | float) -> int:
    """The value rounded up to an integer (Quantity.Value())."""
    return ceil(parse_quantity(text))
