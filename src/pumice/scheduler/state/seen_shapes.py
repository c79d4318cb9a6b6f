"""The shapes of pods with cards that came, and how often: what policies that look ahead go by.

Every pod counts once, when it is first seen, so after a restart the pods that are there are counted. Older ones count for less: a
pod has half the weight once ``HALF`` more have come.
"""

from __future__ import annotations

from pumice.devices.fragmentation import Shape, Shapes

HALF = 20_000
"""Pods."""
REMEMBERED = 512
"""Shapes with a count. When there are more, the half that is seen least is forgotten."""
MOST = 64
"""Shapes, the most frequent ones, by which nodes are judged."""
GROWTH = 1.25
"""Frequencies are looked at again when so many times more pods have come, or an eighth of ``HALF``."""
ALIKE = 0.05
"""Frequencies of which so little has shifted stay as they are, for every node is looked at anew by others."""


class SeenShapes:
    """``current`` stays the same, and with it ``version``, until frequencies have shifted."""

    def __init__(self) -> None:
        self.version = 1
        self._counts: dict[Shape, float] = {}
        self._weight = 1.0
        """The count of one pod now: it grows, so that those before it are worth less."""
        self._came, self._next = 0, 1.0
        self._current = Shapes(())

    def came(self, shape: Shape) -> None:
        """A pod was seen for the first time."""
        self._counts[shape] = self._counts.get(shape, 0.0) + self._weight
        self._came += 1
        self._weight *= 2 ** (1 / HALF)
        if len(self._counts) > REMEMBERED:
            self._counts = dict(self._most_frequent()[: REMEMBERED // 2])
        if self._weight > 1e9:
            self._counts = {shape: count / self._weight for shape, count in self._counts.items()}
            self._weight = 1.0

    def current(self) -> Shapes:
        """The most frequent shapes, as of late."""
        if self._came >= self._next:
            self._next = min(self._came * GROWTH, self._came + HALF / 8)
            found = self._most_frequent()[:MOST]
            if _shift(self._current, found) > ALIKE:
                self._current, self.version = Shapes(found), self.version + 1
        return self._current

    def _most_frequent(self) -> list[tuple[Shape, float]]:
        """Of equal ones, the one that was seen first."""
        return sorted(self._counts.items(), key=lambda found: -found[1])


def _shift(before: Shapes, now: list[tuple[Shape, float]]) -> float:
    """Return which part of the pods has another shape than before."""
    old: dict[Shape, float] = dict(zip(before.shapes, before.weight.tolist(), strict=True))
    total = sum(count for _, count in now)
    return sum(max(0.0, count / total - old.get(shape, 0.0)) for shape, count in now)
