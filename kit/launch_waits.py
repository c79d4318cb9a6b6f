"""The time that launches waited beyond what their limit and the kernel on the card demanded, from what programs/conduct.c writes.

The limit demands that a container's launch waits while all that it has launched before, by its true length, is not paid for.
So what is left over of a wait is the time in which everything was paid and the kernels of others that ran when it was asked
for had ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

NS_PER_MS = 1_000_000
SAVES_NS = 40 * NS_PER_MS  # of the limit: what a container may have saved up, as the library's budget_cap

Rows = numpy.ndarray[Any, numpy.dtype[numpy.uint64]]


def read_launches(path: Path) -> Rows:
    """A row for each launch: when it was asked for, when it returned, its length."""
    return numpy.fromfile(path, dtype=numpy.uint64).reshape(-1, 3)


class Paid:
    """The moments at which all that a container has launched is paid for, at a limit in percent."""

    def __init__(self, launches: Sequence[Rows], limit: float) -> None:
        rows = numpy.concatenate(launches)
        rows = rows[numpy.argsort(rows[:, 1], kind="stable")]
        self._at = rows[:, 1].astype(float)
        rate, balance, last = limit / 100, 0.0, 0.0
        balances = numpy.empty(len(rows))
        for number, (at, length) in enumerate(zip(self._at.tolist(), rows[:, 2].tolist(), strict=True)):
            balance = min(SAVES_NS * rate, balance + (at - last) * rate) - length
            balances[number], last = balance, at
        self._from = self._at + numpy.maximum(0.0, -balances) / rate
        spans = numpy.maximum(0.0, self._at[1:] - self._from[:-1])
        self._before = self._at[0] + numpy.concatenate(([0.0], numpy.cumsum(spans)))

    def time(self, until: Rows) -> Any:
        """Return how much of the time before each of these moments was paid for."""
        number = numpy.searchsorted(self._at, until, side="right") - 1
        since = numpy.maximum(0.0, until.astype(float) - self._from[number])
        return numpy.where(number < 0, until, self._before[number] + since)


def running_until(requested: Rows, other: Rows, served: Sequence[int]) -> Any:
    """When the kernel of another worker that was on the card at each of these moments had ended, looked at each ms."""
    ends = numpy.cumsum(other[:, 2])
    work = numpy.asarray(served, dtype=numpy.uint64)
    done = work[numpy.minimum(requested // NS_PER_MS, len(work) - 1)]
    kernel = numpy.searchsorted(ends, done, side="right")
    given = numpy.searchsorted(other[:, 1], requested, side="right")
    end = ends[numpy.minimum(kernel, len(ends) - 1)]
    ended = numpy.searchsorted(work, end, side="left").astype(float) - 1
    return numpy.where(kernel < given, ended * NS_PER_MS, 0.0)


def worst_excess_ms(
    workers: Sequence[dict[str, Any]], launches: Sequence[Rows], limits: Sequence[float], after_ms: int
) -> float:
    """Of all launches that were asked for after that time. Workers of one tenant are one container."""
    worst = 0.0
    for number, worker in enumerate(workers):
        of_container = [rows for one, rows in zip(workers, launches, strict=True) if one["tenant"] == worker["tenant"]]
        paid, rows = Paid(of_container, limits[number]), launches[number]
        requested, returned = rows[:, 0], rows[:, 1]
        due = requested.astype(float)
        for other in range(len(workers)):
            if other != number:
                due = numpy.maximum(due, running_until(requested, launches[other], workers[other]["served"]))
        due = numpy.minimum(due, returned)
        excess = (paid.time(returned) - paid.time(due))[requested >= after_ms * NS_PER_MS]
        worst = max(worst, float(excess.max(initial=0.0)))
    return worst / NS_PER_MS
