"""The best of many rows, kept by blocks: after a few rows changed, only their blocks are looked at again."""

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
        self._best = np.empty(blocks)
        self._row = np.empty(blocks, np.intp)
        for block in range(blocks):
            self._look(block)

    def changed(self, rows: Iterable[int]) -> None:
        """These rows have other scores now."""
        for block in {row // BLOCK for row in rows}:
            self._look(block)

    def leader(self) -> int:
        """The best row; its score may be minus infinity."""
        return int(self._row[first(self._best, self.rank, self._row)])

    def _look(self, block: int) -> None:
        begin = block * BLOCK
        part = self.scores[begin : begin + BLOCK]
        row = first(part, self.rank[begin : begin + BLOCK])
        self._best[block], self._row[block] = part[row], begin + row


def first(scores: NDArray[np.float64], rank: NDArray[np.int64], rows: NDArray[np.intp] | None = None) -> int:
    """Where the greatest score is; of equal ones, where ``rank`` (of ``rows``) is least."""
    row = int(scores.argmax())
    ties = (scores == scores[row]).nonzero()[0]
    if len(ties) > 1:
        row = int(ties[rank[ties if rows is None else rows[ties]].argmin()])
    return row
