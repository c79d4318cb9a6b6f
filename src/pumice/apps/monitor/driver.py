"""The driver's figures of the cards, read in a thread of its own: an unhealthy card may keep a call for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from pumice.apps.service.worker import Worker
from pumice.ports.cards import CardProcess, CardReading, CardsUnavailable, InstanceReading, WatchedCards
from pumice.ports.clock import Clock

log = logging.getLogger("pumice.monitor")

PATIENCE = 2.0
"""Seconds for which a page waits for the driver; then it tells of the containers alone."""


@dataclass(frozen=True, slots=True)
class Look:
    """The driver's figures at one moment. ``silent``: seconds for which it has owed an answer, 0 while it does not."""

    readings: tuple[CardReading, ...] = ()
    processes: tuple[CardProcess, ...] = ()
    instances: tuple[InstanceReading, ...] = ()
    silent: float = 0.0
    order: dict[str, int] = field(default_factory=dict)
    """NVML's index by UUID, of all cards ever seen."""


class DriverWatch:
    """``opened`` opens the cards, and is tried again until it does; ``cards``: those of somebody who closes them."""

    def __init__(self, opened: Callable[[], WatchedCards], cards: WatchedCards | None, clock: Clock,
                 patience: float = PATIENCE) -> None:  # fmt: skip
        self._patience = patience
        self._open, self._cards, self._given, self._clock = opened, cards, cards is not None, clock
        self._worker = Worker("driver")
        self._requested: asyncio.Task[Look] | None = None
        self._began, self._at, self._warned = 0.0, float("-inf"), ""
        self._last = Look()

    async def look(self, max_age: float = 0.0) -> Look:
        """Return the figures of now, or of at most so many seconds ago; of a driver that does not answer, only for how long."""
        now = self._clock.monotonic()
        if now - self._at <= max_age:
            return self._last
        requested = self._requested
        if requested is None or requested.done():
            self._began = now
            requested = self._requested = asyncio.create_task(self._worker.call(self._look))
        done, _ = await asyncio.wait([requested], timeout=self._patience)
        if done:
            self._last, self._at = requested.result(), self._clock.monotonic()
            return self._last
        silent = self._clock.monotonic() - self._began
        self._warn(f"the driver has not answered for {self._patience:g} s")
        return Look(silent=max(silent, self._patience), order=self._last.order)

    def close(self) -> None:
        """A call that hangs is left behind with what it uses."""
        if self._requested is not None:
            self._requested.cancel()
        self._worker.close(self._give_back, self._patience)

    def _give_back(self) -> None:
        if self._cards is not None and not self._given:
            self._cards.close()

    def _look(self) -> Look:
        try:
            if self._cards is None:
                self._cards = self._open()
            cards = self._cards
            readings = cards.readings()
            order = self._last.order | {reading.uuid: reading.index for reading in readings}
            return Look(readings, cards.processes(), cards.instances(), order=order)
        except CardsUnavailable as error:
            self._warn(f"no cards: {error}")
            return Look(order=self._last.order)

    def _warn(self, text: str) -> None:
        if text != self._warned:
            log.warning("%s", text)
            self._warned = text
