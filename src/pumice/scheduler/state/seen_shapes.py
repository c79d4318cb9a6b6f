"""The shapes of pods with cards that came, and how often: what policies that look ahead go by.

Every pod counts once, when it is first seen, so after a restart the pods that are there are counted. Older ones count for less: a
pod has half the weight once ``HALF`` more have come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumice.devices.card_policies import Stranding
from pumice.devices.fitting import ENOUGH, MOVED, Fitting
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


@dataclass(slots=True)
class Fitted:
    """Weights of shapes, and the shapes that they were fitted to."""

    of: Shapes
    weights: dict[Shape, tuple[float, float]]
    looked: Shapes | None = None
    """The shapes for which they were last found to hold still."""


class SeenShapes:
    """The shapes of requests seen so far. ``current`` stays the same, and with it ``version``, until frequencies have shifted."""

    def __init__(self) -> None:
        self.version = 1
        self._counts: dict[Shape, float] = {}
        self._weight = 1.0
        """The count of one pod now: it grows, so that those before it are worth less."""
        self._came, self._next = 0, 1.0
        self._current = Shapes(())
        self.fits: dict[tuple[str, Stranding], Fitted] = {}
        """By device type and way of counting the weights that were fitted last."""
        self.fitting: dict[tuple[str, Stranding], Fitting] = {}
        """The fits under way."""

    @property
    def count(self) -> int:
        """Pods that were seen."""
        return self._came

    def fit(self, key: tuple[str, Stranding], begin: Callable[[Shapes], Fitting | None]) -> Fitted | None:
        """The weights by which the current shapes count; a fit is begun when the pods have become others. None before enough of
        them were seen. Kept here, so that a journal's snapshot has them."""
        shapes, found = self.current(), self.fits.get(key)
        if found is not None and found.looked is shapes:
            return found
        if self._came < ENOUGH:
            return None
        others = found is None or _shift(found.of, list(zip(shapes.shapes, shapes.weight.tolist(), strict=True))) > MOVED
        if others and key not in self.fitting and (fitting := begin(shapes)) is not None:
            self.fitting[key] = fitting
        if found is not None:
            found.looked = shapes
        return found

    def go_on(self, is_late: Callable[[], bool]) -> None:
        """Go on with the fits that were begun, each by a step at least. Until one is done the weights before it count."""
        for key, fitting in list(self.fitting.items()):
            while (weights := fitting.step()) is None:
                if is_late():
                    break
            else:
                del self.fitting[key]
                self.fits[key] = Fitted(fitting.shapes, weights)
                self.version += 1

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
