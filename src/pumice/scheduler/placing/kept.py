"""The cached evaluation of classes between pods: a score for every node, the cards chosen on the best ones, and the best rows.

Only the rows that changed are looked at again.

The best of many rows, kept by blocks: a block is looked through again only when its best row has become worse.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.placing.evaluation import Choice, Evaluation, Recipe
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.state import State

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
    """Return where the greatest score is; of equal ones, where ``rank`` is least."""
    row = int(scores.argmax())
    ties = (scores == scores[row]).nonzero()[0]
    if len(ties) > 1:
        row = int(ties[rank[ties].argmin()])
    return row


KEPT_CLASSES = 512
"""Classes with arrays of their own; the least recently used ones are evaluated afresh when they come back."""
FEW_ROWS, FEW_JUDGED = 24, 24
"""Up to so many changed rows are looked at one by one, which is quicker than arrays and gives the cards at once; the second where
a plugin judges several together. A pass of arrays costs as much as 40 rows; it is one over many rows that fit, which few of a
full cluster's do."""


@dataclass(slots=True)
class ClassState:
    """The cached evaluation of one class; the arrays have the table's capacity."""

    cursor: int
    reliefs: int
    beyond: tuple[int, int, int, int, int] | None
    masked: NDArray[np.float64]
    """Score where the class fits, minus infinity elsewhere."""
    recipe: Recipe
    chosen: dict[int, Choice] = field(default_factory=dict)
    later: NDArray[np.int16] = field(init=False)
    """By how many alternatives of ``firstAvailable`` what its claims would have there comes after the first ones, as far as a
    search has told."""
    requested: int = 0
    leaders: Leaders | None = None
    """Kept from the second pod of the class on."""

    def __post_init__(self) -> None:
        self.later = np.zeros(len(self.masked), np.int16)

    def changed(self, rows: Sequence[int]) -> None:
        """These rows of ``masked`` have other values now."""
        if self.leaders is not None:
            self.leaders.changed(rows)

    def leader(self, rank: NDArray[np.int64]) -> int:
        """The row of the best node; of equal ones, the first by name."""
        if self.leaders is None or self.leaders.rank is not rank:
            self.requested += 1
            if self.requested == 1:
                return first(self.masked, rank)
            self.leaders = Leaders(self.masked, rank)
        return self.leaders.leader()


class KeptClasses:
    """The classes asked for of late."""

    def __init__(self, state: State, evaluation: Evaluation) -> None:
        self.state = state
        self.evaluation = evaluation
        self._kept: OrderedDict[PodClass, ClassState] = OrderedDict()

    def drop(self, cls: PodClass) -> None:
        self._kept.pop(cls, None)

    def clear(self) -> None:
        self._kept.clear()

    def current(self, cls: PodClass) -> ClassState:
        """Return what is known of the class as of now."""
        kept = self._kept.get(cls)
        if kept is None or not self._catch_up(cls, kept):
            table = self.state.ledger.table
            seen = table.changes.end, table.reliefs, self._beyond(cls)
            kept = self._kept[cls] = ClassState(*seen, self.evaluation.scores(cls, None), self.evaluation.recipe(cls))
            if len(self._kept) > KEPT_CLASSES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(cls)
        return kept

    def _catch_up(self, cls: PodClass, kept: ClassState) -> bool:
        """Look at the rows that changed. False: all have to be looked at."""
        table, masked = self.state.ledger.table, kept.masked
        changed = table.changes.since(kept.cursor)
        if changed is None or len(masked) != table.capacity or kept.beyond != self._beyond(cls):
            return False
        if kept.reliefs == table.reliefs:  # what did not fit can only have become fuller
            changed = [row for row in changed if masked.item(row) > -np.inf]
        for row in changed:
            kept.chosen.pop(row, None)
            kept.later[row] = 0
        if len(changed) > (FEW_JUDGED if kept.recipe.several else FEW_ROWS):
            rows = np.array(changed, np.intp)
            masked[rows] = self.evaluation.scores(cls, rows)
        elif changed:
            for row in changed:
                masked[row] = -np.inf
            for choice in self.evaluation.few(kept.recipe, changed):
                kept.chosen[choice.row], masked[choice.row] = choice, choice.score
        kept.changed(changed)
        kept.cursor, kept.reliefs = table.changes.end, table.reliefs
        return True

    def _beyond(self, cls: PodClass) -> tuple[int, int, int, int, int] | None:
        """Return what decides about nodes that did not change themselves: storage, images elsewhere, and who uses a claim that
        one pod alone may use, which closes every node; by which pods nodes are judged, and claims of devices. None for most."""
        claims, state = cls.constraints.claims, self.state
        judged_by = self.evaluation.framework.scores_version(state, cls)
        if not (claims or cls.images or judged_by or cls.device_claims):
            return None
        return (
            judged_by,
            state.volumes.version if claims else 0,
            state.ledger.terms.version if self.shares_claims(cls) else 0,
            state.classes.images.version if cls.images else 0,
            state.device_claims.judged_by(cls.device_claims),
        )

    def shares_claims(self, cls: PodClass) -> bool:
        """Return whether it uses a claim that one pod alone may use."""
        return bool(cls.constraints.claims and self.state.volumes.for_one_pod(cls.constraints.claim_keys))
