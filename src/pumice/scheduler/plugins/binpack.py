"""binpack: fill nodes that are already in use (Volcano pkg/scheduler/plugins/binpack)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import NodeOrder, Scorer
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import PODS
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import Arguments


class Binpack(NodeOrder):
    name = "binpack"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.weight = arguments.integer("binpack.weight", 1)
        self.weights = arguments.weights("binpack")

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        weighed, total = self._weighed(state, cls)
        if not total:
            return None
        table = state.ledger.table
        alloc, used = (table.alloc, table.used) if rows is None else (table.alloc[rows], table.used[rows])
        score = np.zeros(len(alloc))
        over = np.zeros(len(alloc), bool)
        for weight, column, amount in weighed:
            have, want = alloc[:, column], used[:, column] + amount
            over |= (want > have) & (have > 0)
            score += weight * want / np.maximum(have, 1) * (have > 0)
        return np.where(over, 0.0, score / total * 100 * self.weight)

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        weighed, total = self._weighed(state, cls)
        if not total:
            return None

        def score(row: int, have: list[int], used: list[int]) -> float:
            found = 0.0
            for weight, column, amount in weighed:
                room, want = have[column], used[column] + amount
                if room > 0:
                    if want > room:
                        return 0.0
                    found += weight * want / room
            return found / total * 100 * self.weight

        return score

    def _weighed(self, state: State, cls: PodClass) -> tuple[list[tuple[int, int, int]], int]:
        """(weight, column, amount) of what the class requests and what counts; the sum of the weights, 0 where nothing counts."""
        requested = [
            (self.weights[n], state.ledger.table.dim(n), v)
            for n, v in cls.request.items
            if n != PODS and n in self.weights
        ]
        weighed = [part for part in requested if part[0]] if self.weight else []
        return weighed, sum(weight for weight, _, _ in weighed)
