"""binpack: fill nodes that are already in use (spec volcano-core 11.10)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.engine.plugins.contract import Scores
from pumice.engine.state.classes import PodClass
from pumice.engine.state.nodes import Rows
from pumice.engine.state.resources import CPU, MEMORY, PODS
from pumice.engine.state.state import State
from pumice.wire.scheduler_conf import Arguments


class Binpack(Scores):
    name = "binpack"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.weight = arguments.integer("binpack.weight", 1)
        self.weights = {CPU: self._weight("binpack.cpu"), MEMORY: self._weight("binpack.memory")}
        for name in arguments.text("binpack.resources").split(","):
            if name.strip():
                self.weights[name.strip()] = self._weight(f"binpack.resources.{name.strip()}")

    def _weight(self, key: str) -> int:
        value = self.arguments.integer(key, 1)
        return value if value >= 0 else 1

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        if not self.weight:
            return None
        table = state.ledger.table
        alloc, used = (table.alloc, table.used) if rows is None else (table.alloc[rows], table.used[rows])
        score = np.zeros(len(alloc))
        over = np.zeros(len(alloc), bool)
        total = 0
        for name, amount in cls.request.items:
            weight = self.weights.get(name)
            if name == PODS or weight is None:
                continue
            total += weight
            column = table.dim(name)
            have, want = alloc[:, column], used[:, column] + amount
            if weight:
                over |= (want > have) & (have > 0)
                score += weight * want / np.maximum(have, 1) * (have > 0)
        if not total:
            return None
        return np.where(over, 0.0, score / total * 100 * self.weight)

    def score(self, state: State, cls: PodClass, row: int, have: list[int], used: list[int]) -> float | None:
        if not self.weight:
            return 0.0
        dims = state.ledger.table.dims
        score, total = 0.0, 0
        for name, amount in cls.request.items:
            weight = self.weights.get(name)
            if weight is None or name == PODS:
                continue
            total += weight
            column = dims[name]
            room = have[column]
            if weight and room > 0:
                want = used[column] + amount
                if want > room:
                    return 0.0
                score += weight * want / room
        return score / total * 100 * self.weight if total else 0.0
