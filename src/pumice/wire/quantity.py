"""Kubernetes quantities (``500m``, ``3Gi``, ``60k``, ``1e3``) as exact integers in thousandths, and Go durations in seconds.

Amounts as people write them, and what to tell them when they meant something else.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from pumice.model.amount import INT32_MAX

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


LEAST_MEANT = 16
"""MiB below which nobody means an amount of memory."""
LARGEST_CARD = 1 << 19
"""Memory in MiB that no single card has (512 GiB): above it, somebody meant another unit."""


def meant_mib(text: object) -> tuple[int, str]:
    """(MiB that somebody means who writes this where MiB are counted, the unit that was thought of); (0, "") where that cannot
    be told, or is what it says."""
    written = str(text).strip()
    try:
        value = parse_quantity(written)
    except ValueError:
        found = _PEOPLES_UNITS.fullmatch(written.lower())
        if found:
            return int(float(found[1]) * _MIB[found[2]]), ""
        return plain_number(written), ""
    number = int(value)
    if value == number and number > LARGEST_CARD:
        for shift, unit in ((20, "bytes"), (10, "KiB")):
            if number >> shift >= LEAST_MEANT:
                return number >> shift, unit
    return 0, ""


_PEOPLES_UNITS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*([mgt])(?:i?b)?")
_MIB = {"m": 1, "g": 1 << 10, "t": 1 << 20}


def plain_number(text: str) -> int:
    """The number in ``3,000``, ``3_000`` and ``3 000``; 0 where there is none."""
    found = re.fullmatch(r"[0-9]{1,3}(?:[,_' ][0-9]{3}){1,2}", text.strip())
    return int(re.sub(r"[^0-9]", "", text)) if found else 0


def percent_of(text: object) -> str:
    """The number in ``50%``; empty where there is none."""
    found = re.fullmatch(r"([0-9]{1,3})\s*%", str(text).strip())
    return found[1] if found else ""


def counted(text: str | int | float) -> int:
    """The amount of something that is counted; -1 for what is no whole number."""
    try:
        value = whole(text)
    except ValueError:
        return -1
    return -1 if value is None else value


def out_of_range(text: object, value: int, *, memory: bool) -> str:
    """Return why the amount is refused; ``value`` is what it comes to (-1: below 0 or no number), ``memory`` whether it counts
    MiB."""
    mib, _ = meant_mib(text) if memory else (0, "")
    if not memory or value < 0:
        if mib:
            return f"{text!r} is no number; this counts MiB, without a unit: write {mib}"
        return f"{shown(text)} is not a whole number from 0 to {INT32_MAX}{_nearest(text, memory)}"
    if str(text).isdecimal():
        return f"{text} MiB is more than any card has; this counts MiB, not bytes: for {text} bytes of memory write {mib}"
    return f"{text} is {value} MiB; this counts MiB, not bytes: for {text} of memory write {mib}"


def _nearest(text: object, memory: bool) -> str:
    if percent := percent_of(text):
        return f"; a percentage of the memory is another resource ({percent})" if memory else f"; write {percent}"
    number = plain_number(str(text))
    return f"; write {number}" if number else ""


def shown(text: object) -> str:
    """Numbers as they are, other words in quotation marks."""
    try:
        parse_quantity(str(text))
    except ValueError:
        return repr(text)
    return str(text)
