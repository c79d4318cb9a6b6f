"""The supervisor of the control daemon of one card: started, bounded, watched, ended.

It is started anew after pauses that grow, but not while programs of the one before still run: their server holds the card. It is
ended where nobody is served. Nobody is let on the card before the bounds stand, for a server keeps those that it began with
(Multi-Process Service, ``set_default_device_pinned_mem_limit``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import reduce
from typing import Final

from pumice.ports.mps import DaemonSeen

SHORTEST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds between two starts, at first and at most."""
STEADY: Final = 60.0
"""Seconds of service after which pauses are short again."""
MISSES: Final = 3
"""Questions without an answer after which a daemon is taken for stuck."""
SETTLING: Final = 5.0
"""Seconds for which bounds that were set for a container stay at least as wide: it is told of them before it is in the books."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds to which a card's server holds each client: the widest of what the card's containers were granted."""

    mib: int = 0
    percent: int = 0

    def __or__(self, other: Bounds) -> Bounds:
        return Bounds(max(self.mib, other.mib), max(self.percent, other.percent))

    def commands(self, server: int = 0) -> tuple[str, str]:
        """The daemon's, for the servers to come or for one that runs, by its pid. Where nobody was granted anything there is next
        to nothing to have. A daemon has one card: its device 0."""
        which, to = ("", f"{server} ") if server else ("default_", "")
        return (f"set_{which}device_pinned_mem_limit {to}0 {max(1, self.mib)}M",
                f"set_{which}active_thread_percentage {to}{min(100, max(1, self.percent))}")  # fmt: skip


class Step(Enum):
    START = auto()
    BOUND = auto()
    KILL = auto()
    QUIT = auto()
    FORGET = auto()
    REST = auto()


class Supervisor:
    """One card's. ``closed``: why the card takes no pods now, empty where it does."""

    def __init__(self) -> None:
        self.closed = "its MPS control daemon has not been started yet"
        self._wanted: Bounds | None = None
        self._granted: dict[Bounds, float] = {}
        """Until when what was granted a moment ago counts."""
        self._stand: Bounds | None = None
        self._pause, self._next_try, self._steady_at = SHORTEST, 0.0, 0.0
        self._misses = 0

    def want(self, bounds: Bounds | None) -> None:
        """These, or no daemon at all."""
        self._wanted = bounds

    def allocation(self, bounds: Bounds, now: float) -> None:
        """A container is about to be told of these: there must be a daemon, whatever was wanted before."""
        self._wanted = self._wanted or bounds
        self._granted = {granted: until for granted, until in self._granted.items() if now < until} | {bounds: now + SETTLING}

    def bounds(self, now: float) -> Bounds:
        return (self._wanted or Bounds()) | self._lately(now)

    def requested(self, now: float) -> bool:
        """Return whether the next step needs more than whether the daemon lives."""
        return self._wanted is None or self._misses > 0 or self._stand != self.bounds(now)

    def next(self, seen: DaemonSeen, now: float) -> Step:
        if seen.pid == 0:
            return self._without(seen, now)
        if seen.answers is False:
            return self._unanswered()
        self._misses = 0 if seen.answers else self._misses
        if self._wanted is None:
            self.closed = "programs that share it by MPS still run" if seen.clients else ""
            return Step.REST if seen.clients else Step.QUIT
        if self._stand != self.bounds(now):
            return Step.BOUND
        if now >= self._steady_at:
            self._pause = SHORTEST
        self.closed = ""
        return Step.REST

    def bounded(self, bounds: Bounds) -> None:
        """They stand."""
        self._stand = bounds

    def started(self, now: float) -> None:
        self._stand, self._misses = None, 0
        self._steady_at = now + STEADY

    def failed(self, reason: str, now: float) -> None:
        """The last step did not come about."""
        self.closed = reason
        self._next_try = now + self._pause
        self._pause = min(LONGEST, 2 * self._pause)

    def _without(self, seen: DaemonSeen, now: float) -> Step:
        self._misses = 0
        if self._stand is not None:  # it was there, and has died
            self._stand = None
            self.closed = "its MPS control daemon has ended"
            if now < self._steady_at:  # one that has long been there is started again at once
                self.failed(self.closed, now)
        if seen.left:
            servers = ", ".join(map(str, seen.left))
            self.closed = f"its MPS control daemon has ended, and programs that it served still run (server {servers})"
            return Step.REST
        if self._wanted is None:
            self.closed = ""
            return Step.FORGET
        return Step.START if now >= self._next_try else Step.REST

    def _unanswered(self) -> Step:
        self._misses += 1
        self.closed = "its MPS control daemon does not answer"
        return Step.KILL if self._misses >= MISSES else Step.REST

    def _lately(self, now: float) -> Bounds:
        return reduce(Bounds.__or__, (granted for granted, until in self._granted.items() if now < until), Bounds())
