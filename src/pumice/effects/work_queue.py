"""Keys that wait to be reconciled, each by one worker at a time, again later when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any

from pumice.effects.backoff import Backoff
from pumice.effects.tasks import Bell, first
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError

log = logging.getLogger("pumice.controller")

AGAIN = Backoff(0.05, 30.0)
BESIDE = 4
"""So few must be at work for what may be put off to be done: the others wait for the same API server."""
TICK = 0.02
"""Seconds at least between two looks at what was to be added later: what ripens in between does so together."""
LOOK = 0.1
"""Seconds between two looks whether what was put off may be done, while others are busy."""

Key = tuple[Any, str]
"""Kind and key of an object; a kind is whatever the controllers tell kinds apart by."""


@dataclass(slots=True)
class WorkQueue:
    """A work queue of keys. ``reconcile`` is called with a kind and a key; while it runs, the same key may be added again and
    waits. While ``others_busy`` says that the API server has more urgent work from elsewhere, what may be put off is put off."""

    clock: Clock
    rng: Random
    reconcile: Callable[[Any, str], Awaitable[None]]
    others_busy: Callable[[], bool] = lambda: False
    rest: float = 0.0
    """Seconds between two looks at the same key at least: what changes of it meanwhile is looked at together."""
    _todo: OrderedDict[Key, int] = field(default_factory=OrderedDict)  # a dict seeks its first key past all that have left
    """Key to how often it has failed in a row."""
    _idle: dict[Key, float] = field(default_factory=dict)
    """Keys that are reconciled when nothing else is left to do, and until when they are put off."""
    _patience: list[tuple[float, Key]] = field(default_factory=list)
    """The same as a heap; what does not stand above any more is passed over."""
    _busy: set[Key] = field(default_factory=set)
    _work_there: Bell = field(default_factory=Bell)
    _later: list[tuple[float, int, Key, int, float]] = field(default_factory=list)
    """A heap: when, in which order it was added, what, how often it has failed in a row, and how long it may be put off."""
    _count: int = 0
    _sooner: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, kind: Any, key: str, failures: int = 0) -> None:
        self._todo[kind, key] = failures
        self._work_there.ring()

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits but what may be put off, and what is in hand and will be looked at once more."""
        return self._at_once() is None

    def add_later(self, kind: Any, key: str, seconds: float, failures: int = 0, *, put_off: float = 0.0) -> None:
        """The same after a pause, unless it was added meanwhile. ``put_off``: for how many seconds longer it may wait while
        there is something else to do."""
        self._count += 1
        heappush(self._later, (self.clock.monotonic() + seconds, self._count, (kind, key), failures, put_off))
        if self._later[0][1] == self._count:
            self._sooner.set()

    async def run(self, workers: int) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ripen())
            for _ in range(workers):
                group.create_task(self._work())

    async def _ripen(self) -> None:
        """Add what was to be added later, when its time has come."""
        while True:
            now = self.clock.monotonic()
            while self._later and self._later[0][0] <= now:
                _, _, item, failures, put_off = heappop(self._later)
                if item in self._todo:
                    continue
                if put_off:
                    self._put_off(item, now + put_off)
                else:
                    self.add(*item, failures)
            if self._idle and self._next() is not None:
                for _ in range(BESIDE):
                    self._work_there.ring()
            self._sooner.clear()
            pauses = [self._later[0][0] - now] if self._later else []
            if self._idle:
                pauses.append(LOOK)
            if pauses:
                await first(self._sooner.wait(), self.clock.sleep(max(TICK, min(pauses))))
            else:
                await self._sooner.wait()

    async def _work(self) -> None:
        while True:
            item = self._next()
            if item is None:
                await self._work_there.wait()
                continue
            failures = self._todo.pop(item, 0)
            self._idle.pop(item, None)
            self._busy.add(item)
            try:
                await self.reconcile(*item)
                if self.rest:
                    await self.clock.sleep(self.rest)
            except ApiError as error:
                self._again(item, failures, str(error), error.retry_after)
            except Exception as error:  # one object must not end the work on all the others
                log.exception("cannot reconcile %s %s", *item)
                self._again(item, failures, type(error).__name__, 1.0)
            finally:
                self._busy.discard(item)

    def _next(self) -> Key | None:
        patient = self._least_patient()
        if patient is not None and self._idle[patient] <= self.clock.monotonic():
            return patient
        item = self._at_once()
        return item if item is not None or len(self._busy) >= BESIDE or self.others_busy() else patient

    def _put_off(self, item: Key, until: float) -> None:
        if until < self._idle.get(item, inf):
            self._idle[item] = until
            heappush(self._patience, (until, item))

    def _least_patient(self) -> Key | None:
        while self._patience:
            until, item = self._patience[0]
            if self._idle.get(item) == until:
                if item not in self._busy:
                    return item
                del self._idle[item]  # it is looked at once more when it has left the hand
                self._todo.setdefault(item, 0)
            heappop(self._patience)
        return None

    def _at_once(self) -> Key | None:
        return next((i for i in self._todo if i not in self._busy), None)

    def _again(self, item: Key, failures: int, cause: str, least: float) -> None:
        pause = AGAIN.pause(failures, self.rng, least=least)
        log.warning("retrying %s %s in %.2fs: %s", *item, pause, cause)
        self.add_later(*item, pause, failures + 1)
