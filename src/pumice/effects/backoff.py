"""The pause before something is tried again: doubled after each failure, up to a longest one."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds, from ``first`` to ``longest``."""

    first: float
    longest: float

    def pause(self, failures: int, rng: Random | None = None, *, least: float = 0.0) -> float:
        """Return the seconds to wait after one more failure than so many. With ``rng`` half to one and a half times as long,
        so that many who failed together do not come back together; ``least`` is what the other side asked for (Retry-After)."""
        pause = min(self.longest, self.first * 2.0 ** min(failures, 64))
        if rng is not None:
            pause *= 0.5 + rng.random()
        return max(least, pause)
