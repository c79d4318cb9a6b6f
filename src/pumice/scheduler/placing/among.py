"""Among which nodes one pod may choose, and how it leans between them, beyond what holds for its whole class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.framework import Framework
from pumice.scheduler.plugins.contract import Verdict
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State


@dataclass(frozen=True, slots=True, eq=False)
class Among:
    """``rows``: nothing but these is asked at all, and the reasons count them alone. ``verdicts`` are over all rows."""

    rows: Rows | None
    verdicts: tuple[Verdict, ...]
    leaning: NDArray[np.float64] | None

    def narrow(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """A copy of the scores, minus infinity where the pod may not go."""
        size = len(scores)
        found = scores + self.leaning[:size] if self.leaning is not None else scores.copy()
        found[~self.open(size)] = -np.inf
        return found

    def open(self, size: int) -> NDArray[np.bool_]:
        """Per row: may the pod go there, as far as its queue and its job are concerned?"""
        if self.rows is None:
            found = np.ones(size, bool)
        else:
            found = np.zeros(size, bool)
            found[self.rows] = True
        for verdict in self.verdicts:
            found &= ~verdict.failed[:size]
        return found


def among(framework: Framework, state: State, task: Task, rows: Rows | None = None) -> Among | None:
    """None where the pod is treated as every one of its class."""
    if not framework.minds_tasks:
        return None if rows is None else Among(rows, (), None)
    verdicts, leaning = framework.bounds(state, task), framework.leanings(state, task)
    if rows is None and not verdicts and leaning is None:
        return None
    return Among(rows, verdicts, leaning)
