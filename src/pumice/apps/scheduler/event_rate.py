"""Which events are worth writing: not the same words again and again, and not more than an API server bears."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from pumice.engine.effects import Event

REMEMBERED = 20_000
REPEAT_AFTER = 600.0
"""Seconds after which the same words may be said again."""


@dataclass(slots=True)
class EventRate:
    """``rate`` bounds events per second beyond a burst of ``burst``."""

    rate: float = 200.0
    burst: float = 2000.0
    _left: float = 2000.0
    """Of the burst, at the moment of the last event (``_filled``)."""
    _filled: float = 0.0
    _said: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """When which words were said, by their hash: thousands are remembered, the words are not."""

    def admits(self, event: Event, now: float) -> bool:
        said = hash((event.uid, event.reason, event.message))
        if now - self._said.get(said, float("-inf")) < REPEAT_AFTER:
            return False
        self._left = min(self.burst, self._left + (now - self._filled) * self.rate)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        if event.type == "Warning":  # a pod is scheduled once; what goes wrong is said again and again
            self._said[said] = now
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        return True
