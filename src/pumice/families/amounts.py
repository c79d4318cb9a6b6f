"""Amounts as people write them, and what to tell them when they meant something else."""

from __future__ import annotations

import re

from pumice.model.units import INT32_MAX

LEAST_MEANT = 16
"""MiB below which nobody means an amount of memory: such a number was not meant in bytes."""


def mib_of(text: str) -> int:
    """The MiB that somebody means who writes a unit as people do (``3 GB``, ``3000MB``, ``3gib``); 0 when it is none of that."""
    found = _PEOPLES_UNITS.fullmatch(text.strip().lower())
    return int(float(found[1]) * (1024 if found[2] == "g" else 1)) if found else 0


_PEOPLES_UNITS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*([gm])(?:i?b)")


def out_of_range(text: object, value: int, *, memory: bool) -> str:
    """Why the amount is refused; ``value`` is what it comes to (-1: no number at all), ``memory`` whether it counts MiB."""
    if memory and (meant := mib_of(str(text))):
        return f"{text!r} is no number; this counts MiB, without a unit: write {meant}"
    if not memory or value < 0:
        return f"{text} is not a whole number from 0 to {INT32_MAX}"
    return f"{text} is {value} MiB; this counts MiB, not bytes: for {text} of memory write {max(1, value >> 20)}"
