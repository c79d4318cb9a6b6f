"""The times at which a daemon looks for cyclic garbage.

Python looks through what is young after every 700 new objects, and through everything when a quarter of it is new: a burst of
thousands of pods was stopped a dozen times, for up to 0.2 s, and nothing was found, because what pods leave behind goes by
counting. So what is young is looked through more rarely, what has lived for a while is set aside, and all of it is looked through
when there is nothing else to do and much more of it than after the last time (ADR 50).
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

USUAL = gc.get_threshold()
LATE = 20
"""Looks at what survived after which it is set aside although there is something to do: that takes no time."""
OVERDUE = 4
"""All are looked through when there are so many times as many, whatever there is to do."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of the garbage collector. ``thresholds``: new objects until those are looked through, how often until those
    that survived it are, and how often until all are. At rest all are looked through when there are ``more`` times as many as
    after the last time, and ``at_least`` more."""

    thresholds: tuple[int, int, int] = (10_000, 5, 1_000_000)
    more: float = 1.5
    at_least: int = 500_000


async def listed(synced: asyncio.Event) -> None:
    """Wait for the first lists of a daemon. To look for garbage among them took a fifth of the start, and found none."""
    gc.disable()
    try:
        await synced.wait()
        gc.freeze()
    finally:
        gc.enable()


class Garbage:
    """The collector of one process, held back. Its work is done in ``tidy``."""

    def __init__(self, pace: Pace = Pace()) -> None:
        self._pace = pace
        self._limit = pace.at_least

    def hold_back(self) -> None:
        """Set what exists aside from the garbage collector: it lives long."""
        gc.freeze()
        gc.set_threshold(*self._pace.thresholds)
        self._set_limit()

    def let_go(self) -> None:
        gc.set_threshold(*USUAL)

    def tidy(self, *, idle: bool) -> None:
        """Called between two pieces of work; ``idle``: the next one is not in sight."""
        looks = gc.get_count()[2]
        if looks < (1 if idle else LATE):
            return
        gc.collect(1)
        gc.freeze()
        aside = gc.get_freeze_count()
        if aside > self._limit and (idle or aside > OVERDUE * self._limit):
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._set_limit()

    def _set_limit(self) -> None:
        self._limit = int(gc.get_freeze_count() * self._pace.more) + self._pace.at_least
