"""Recent changes, as the watches report them: the last few hundred changes, in memory, since the page runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

KEPT, LONGEST = 500, 400
"""So many changes, and of each so many characters of what others wrote."""


@dataclass(frozen=True, slots=True)
class Change:
    """``kind`` is what it is about (pod, node, card, queue, podgroup), ``name`` which one; ``at`` in Unix seconds."""

    at: float
    kind: str
    name: str
    text: str


@dataclass(slots=True)
class Changes:
    """The last of them. ``number`` counts all that there were."""

    kept: deque[Change] = field(default_factory=lambda: deque(maxlen=KEPT))
    number: int = 0

    def note(self, at: float, kind: str, name: str, text: str) -> None:
        self.kept.append(Change(at, kind, name[:LONGEST], text[:LONGEST]))
        self.number += 1

    def latest(self) -> list[Change]:
        """The newest first."""
        return list(reversed(self.kept))
