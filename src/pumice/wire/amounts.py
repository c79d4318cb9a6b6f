"""Amounts as people write them, and what to tell them when they meant something else."""

from __future__ import annotations

import re

from pumice.model.amount import INT32_MAX
from pumice.wire.quantity import parse_quantity, whole

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
    """Why the amount is refused; ``value`` is what it comes to (-1: below 0 or no number), ``memory`` whether it counts MiB."""
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
