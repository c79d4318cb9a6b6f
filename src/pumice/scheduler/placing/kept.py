"""The cached evaluation of classes between pods: a score for every node, the cards chosen on the best ones, and the best rows.

Only the rows that changed are looked at again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.placing.evaluation import Choice, Evaluation, Recipe
from pumice.scheduler.placing.leaders import Leaders, first
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.state import State

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
    asked: int = 0
    leaders: Leaders | None = None
    """Kept from the second pod of the class on."""

    def changed(self, rows: Sequence[int]) -> None:
        """These rows of ``masked`` have other values now."""
        if self.leaders is not None:
            self.leaders.changed(rows)

    def leader(self, rank: NDArray[np.int64]) -> int:
        """The row of the best node; of equal ones, the first by name."""
        if self.leaders is None or self.leaders.rank is not rank:
            self.asked += 1
            if self.asked == 1:
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
