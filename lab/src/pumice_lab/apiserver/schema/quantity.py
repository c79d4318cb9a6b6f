"""Canonical text of quantities, as the API server stores them (k8s.io/apimachinery resource.Quantity).

A quantity keeps its family of suffixes: binary (Ki, Mi, …), decimal (m, k, M, …) or exponent (e3), takes the largest suffix
that leaves an integer, and has at most nano precision.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

from pumice.wire.quantity import parse_quantity

_BINARY = [("Ei", 1024**6), ("Pi", 1024**5), ("Ti", 1024**4), ("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024)]
_DECIMAL = [(suffix, 10**power) for suffix, power in zip("EPTGMk", range(18, 0, -3), strict=True)]
_SMALL = [("m", 3), ("u", 6), ("n", 9)]
_EXPONENT = re.compile(r"[eE][+-]?\d+$")
_LARGEST_EXPONENT = 30
"""As the parser takes it."""
_BOUND = 10**33
"""Sums of what is below can be read again, of however many objects they are; Kubernetes cuts what has a binary suffix at
2**63 - 1 (ParseQuantity)."""


@lru_cache(maxsize=16384)
def canonical(text: str | int | float) -> str:
    """``"0.5"`` -> ``"500m"``, ``60000`` -> ``"60k"``, ``"1.5Gi"`` -> ``"1536Mi"``. Raises ValueError when it is no quantity."""
    if isinstance(text, bool) or (isinstance(text, str) and text != text.strip()):
        raise ValueError(f"{text!r} is not a quantity")
    value = parse_quantity(text)
    if abs(value) >= _BOUND:
        raise ValueError(f"{text!r} is beyond the range of a quantity")
    return _written(value, str(text))


def combined(one: str, other: str, sign: int = 1) -> str:
    """The sum, or with ``sign`` -1 the difference, in the family of the first, or of the other where the first is nothing."""
    first = parse_quantity(one)
    return _written(first + sign * parse_quantity(other), str(one if first else other))


def larger(one: str, other: str) -> str:
    return one if parse_quantity(one) >= parse_quantity(other) else other


def _written(value: Fraction, like: str) -> str:
    nano = value * 10**9
    if nano.denominator != 1:  # finer than nano: rounded away from zero
        value = Fraction(ceil(nano) if nano > 0 else floor(nano), 10**9)
    if value == 0:
        return "0"
    if like.endswith("i") and abs(value) >= 1024 and value.denominator == 1:
        return _scaled(int(value), _BINARY)
    if like.endswith("i") and value.denominator == 1:
        return str(int(value))
    if _EXPONENT.search(like) and value.denominator == 1:
        power = 0
        while power < _LARGEST_EXPONENT and int(value) % 10 ** (power + 3) == 0:
            power += 3
        return f"{int(value) // 10**power}e{power}" if power else str(int(value))
    if value.denominator == 1:
        return _scaled(int(value), _DECIMAL)
    for suffix, places in _SMALL:
        if (value * 10**places).denominator == 1:
            return f"{int(value * 10**places)}{suffix}"
    raise AssertionError(like)  # nano precision was enforced above


def _scaled(value: int, units: list[tuple[str, int]]) -> str:
    for suffix, size in units:
        if value % size == 0:
            return f"{value // size}{suffix}"
    return str(value)
