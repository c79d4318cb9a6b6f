"""Serves the scheduler's metrics: a page is made in slices, so that cycles go on between them, and one that nothing has changed
since is served again as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumice.effects.tasks import in_slices
from pumice.metrics.scheduler import SchedulerMetrics

KEPT_PAGE = 32 * 2**20
"""Bytes up to which the page itself is kept beside its lines; joining the lines of a longer one takes some 10 ms."""


@dataclass(slots=True)
class MetricsPage:
    """``changes`` tells a value that differs whenever the engine's state may have changed. ``slice_``: seconds of rendering
    before everybody else has a turn."""

    metrics: SchedulerMetrics
    changes: Callable[[], object]
    slice_: float = 0.002
    _kept: tuple[object, bytes] = (None, b"")

    async def fresh(self) -> bytes:
        """The page, made in slices."""
        stamp = self._stamp()  # before the first slice: what changes during the others counts for the next page
        if stamp != self._kept[0]:
            await in_slices(self.metrics.prepare(), self.slice_)
        return self._page(stamp)

    def at_once(self) -> bytes:
        """The page, made in one go."""
        return self._page(self._stamp())

    def _page(self, stamp: object) -> bytes:
        if stamp == self._kept[0]:
            return self._kept[1]
        made = self.metrics.page()
        self._kept = (stamp, made) if len(made) < KEPT_PAGE else (None, b"")
        return made

    def _stamp(self) -> object:
        return self.changes(), self.metrics.stamp()
