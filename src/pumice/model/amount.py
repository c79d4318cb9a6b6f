"""An amount of memory as people write it: MiB by themselves, or with a unit. Units are binary, whatever they are called."""

from __future__ import annotations

import re
from typing import NewType

from pumice.model.errors import BadInput

Mib = NewType("Mib", int)
"""Memory in memory units of the wire (MiB with the default factor)."""

INT32_MAX = 2**31 - 1
"""Largest value that the wire carries for a count, a memory or a percentage (defect D-18)."""


MIB = 1 << 20
POWERS = {"k": 10, "m": 20, "g": 30, "t": 40}
HOW = "MiB such as 3000, or with a unit such as 3GiB"
_AMOUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?\s*(?:([kmgt])i?b?|(b))?", re.IGNORECASE)


def size_of(text: str) -> int | None:
    """Bytes of ``3000`` (MiB), ``3000M``, ``3g``, ``2.5 GiB`` or ``3221225472B``; None where it is no amount."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or (match[2] and not match[3]):  # half a MiB or byte is a slip
        return None
    power = 0 if match[4] else POWERS[(match[3] or "m").lower()]
    part = match[2] or ""
    return (int(match[1] + part) << power) // int(10 ** len(part))


def mebibytes(option: str, text: str, *, least: int = 0, most: int = INT32_MAX, how: str = HOW) -> int:
    """Whole MiB. Raises BadInput that names the option, what it takes, and what was probably meant."""
    size = size_of(text)
    if size is None:
        raise BadInput(f"{option} {text}: {how}{_meant(text)}")
    if size < max(least, 1 if size else 0) * MIB:
        raise BadInput(f"{option} {text}: it must be at least {max(least, 1)} MiB")
    if size > most * MIB:
        raise BadInput(f"{option} {text}: it can be at most {most} MiB")
    return size // MIB


def _meant(text: str) -> str:
    """Of a misspelt unit the number and the first letter."""
    match = re.match(r"\s*([0-9]{1,9}(?:[.,][0-9]{1,9})?)\s*([kmgt])", text, re.IGNORECASE)
    return f"; did you mean {match[1].replace(',', '.')}{match[2].upper()}iB?" if match else ""
