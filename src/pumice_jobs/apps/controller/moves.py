"""A count of pods that move just now: where they are many, the API server then has more urgent work than what only tells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pumice.ports.clock import Clock

MANY, MOMENT = 16, 0.25
"""Moves of pods (bare ones that are bound, and all of Jobs'), and the seconds within which so many are many."""


@dataclass(slots=True)
class Moves:
    clock: Clock
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=MANY))

    def one(self) -> None:
        """A pod was seen to move."""
        self._last.append(self.clock.monotonic())

    def are_many(self) -> bool:
        return len(self._last) == MANY and self.clock.monotonic() - self._last[0] < MOMENT
