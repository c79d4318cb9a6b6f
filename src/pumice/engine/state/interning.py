"""What thousands of jobs have in common, each value once: nobody may change any of it in place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from pumice.engine.state.resources import Vector, add, exceeded, shared, subtract
from pumice.engine.state.statuses import Status

NOTHING: dict[str, Any] = {}
nothing: Callable[[], dict[str, Any]] = repeat(NOTHING).__next__
"""Gives ``NOTHING``, six times for each job that is made: a function of Python's own would take three times as long."""


NO_COUNTS = (0,) * len(Status)
_COUNTS_KEPT = 4096
_counts: dict[tuple[tuple[int, ...], Status, int], tuple[int, ...]] = {}


def counted(counts: tuple[int, ...], status: Status, sign: int) -> tuple[int, ...]:
    """``counts`` with one more or less of a status; equal ones are one object."""
    key = counts, status, sign
    found = _counts.get(key)
    if found is None:
        if len(_counts) >= _COUNTS_KEPT:
            _counts.clear()
        found = _counts[key] = (*counts[:status], counts[status] + sign, *counts[status + 1 :])
    return found


_spares: dict[int, tuple[Vector, Vector]] = {}


def spare(allocated: Vector, least: Vector | None) -> Vector:
    """What is held beyond the minimum, pods apart. Without a minimum it is the same for all that hold the same."""
    known = _spares.get(id(allocated)) if least is None else None
    if known is not None and known[0] is allocated:
        return known[1]
    beyond = exceeded(allocated, least or {})
    beyond.pop("pods", None)
    beyond = shared(beyond)
    if least is None:
        if len(_spares) >= _COUNTS_KEPT:
            _spares.clear()
        _spares[id(allocated)] = allocated, beyond
    return beyond


def changed(held: Vector, amounts: Vector, sign: int) -> Vector:
    """``held`` with one task's demand more or less, as a shared vector."""
    if sign > 0 and not held:
        return amounts
    if sign < 0 and held == amounts:
        return NOTHING
    new = dict(held)
    (add if sign > 0 else subtract)(new, amounts.items())
    return shared(new)


def repack(table: dict[Any, Any]) -> None:
    """Give back the room of what was deleted: a dict keeps its place, and doubles when these are used up."""
    kept = dict(table)
    table.clear()
    table.update(kept)
