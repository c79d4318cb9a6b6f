"""The best of many rows, kept by blocks: a block is looked through again only when its best row has become worse."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BLOCK = 256
"""Rows of a block: for thousands of nodes as many blocks as a block has rows, more or less."""


class Leaders:
    """The row with the greatest score; of equal ones, the one of the least rank.

    ``scores`` belongs to the caller, who tells which rows of it changed. Shapes: (rows,) and (rows,).
    """

    def __init__(self, scores: NDArray[np.float64], rank: NDArray[np.int64]) -> None:
        self.scores, self.rank = scores, rank
        blocks = -(-len(scores) // BLOCK)
        self._best, self._row = [0.0] * blocks, [0] * blocks
        for block in range(blocks):
            self._look(block)

    def changed(self, rows: Iterable[int]) -> None:
        """These rows have other scores now."""
        for row in rows:
            block, score = row // BLOCK, self.scores.item(row)
            best, leader = self._best[block], self._row[block]
            if score > best or (score == best and self.rank.item(row) < self.rank.item(leader)):
                self._best[block], self._row[block] = score, row
            elif row == leader and score < best:
                self._look(block)

    def leader(self) -> int:
        """The best row; its score may be minus infinity."""
        best = max(self._best)
        if self._best.count(best) == 1:
            return self._row[self._best.index(best)]
        return min((row for row, score in zip(self._row, self._best, strict=True) if score == best), key=self.rank.item)

    def _look(self, block: int) -> None:
        begin = block * BLOCK
        part = self.scores[begin : begin + BLOCK]
        row = first(part, self.rank[begin : begin + BLOCK])
        self._best[block], self._row[block] = part.item(row), begin + row


def first(scores: NDArray[np.float64], rank: NDArray[np.int64]) -> int:
    """Where the greatest score is; of equal ones, where ``rank`` is least."""
    row = int(scores.argmax())
    ties = (scores == scores[row]).nonzero()[0]
    if len(ties) > 1:
        row = int(ties[rank[ties].argmin()])
    return row
