"""Where the volumes that a pod still lacks would sit best: Kubernetes' score of volume binding, by a shape over how full the
storage would be (kubernetes.io docs "Storage Capacity", KEP-4049)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.state import State
from pumice.scheduler.state.volumes import Claim, VolumeOptions
from pumice.wire.scheduler_conf import Arguments

WEIGHT: Final = "volumebinding.weight"
SHAPE: Final = "volumebinding.shape"
Point = tuple[int, int]
"""Percent in use, and the score there, 0 to 100."""
EMPTIEST: Final[tuple[Point, ...]] = ((0, 100), (100, 0))
"""Meant where a weight is written and no shape: the more room is left, the better."""


class VolumeScores:
    """Nothing is scored unless the arguments name a weight or a shape."""

    def __init__(self, arguments: Arguments) -> None:
        self.weight = arguments.integer(WEIGHT, 1) if WEIGHT in arguments or SHAPE in arguments else 0
        self.shape = _shape(arguments)

    def scores(self, state: State, cls: PodClass) -> NDArray[np.float64] | None:
        """Over all rows; None where the pod lacks no volume."""
        volumes, table = state.volumes, state.ledger.table
        known = [volumes.claims.get(key) for key in cls.constraints.claim_keys] if self.weight else []
        claims = [claim for claim in known if claim is not None and not claim.bound]
        if not claims:
            return None
        found = np.zeros(table.capacity)
        options = VolumeOptions(state.ledger, volumes, claims, by_room=True)
        room = {claim.storage_class: _room(state, claim) for claim in claims}
        for row in table.row_of.values():
            chosen = options.at(row)
            if chosen is not None:
                found[row] = self.weight * self._score(state, claims, chosen, row, room)
        return found

    def _score(
        self, state: State, claims: Sequence[Claim], chosen: Mapping[str, str], row: int,
        room: Mapping[str, NDArray[np.int64]],
    ) -> int:  # fmt: skip
        """By class of storage: what is asked of the volumes that there are or, where all are still to be made, of what there is
        to make them of."""
        sums: dict[str, tuple[int, int]] = {}
        there = any(chosen.values())
        for claim in claims:
            volume = chosen[claim.key]
            have = state.volumes.volumes[volume].size if volume else int(room[claim.storage_class][row])
            if bool(volume) is there and have >= 0:
                requested, before = sums.get(claim.storage_class, (0, 0))
                sums[claim.storage_class] = requested + claim.size, before + have if there else have
        parts = [self._at(100 * requested // have if 0 < requested <= have else 0 if not requested and have else 100)
                 for requested, have in sums.values()]  # fmt: skip
        return int(sum(parts) / len(parts) + 0.5) if parts else 0

    def _at(self, used: int) -> int:
        """The shape's line at that percentage, in whole steps towards zero as Kubernetes computes it."""
        if used <= self.shape[0][0]:
            return self.shape[0][1]
        for (left, low), (right, high) in pairwise(self.shape):
            if used <= right:
                return low + int((high - low) * (used - left) / (right - left))
        return self.shape[-1][1]


def _room(state: State, claim: Claim) -> NDArray[np.int64]:
    """Per row what the claim's driver still has to make volumes of; -1 where it does not say."""
    labels, capacity = state.ledger.terms.labels, state.ledger.table.capacity
    found = np.full(capacity, -1, np.int64)
    for known in state.volumes.capacities.values():
        if known.storage_class == claim.storage_class and known.total is not None:
            here = labels.match_all(known.nodes)[:capacity]
            found[here] = np.maximum(found[here], known.total)
    return found


def _shape(arguments: Arguments) -> tuple[Point, ...]:
    """Points with utilization 0 to 100, ascending, and score 0 to 10; junk keeps the default and is remarked."""
    given = arguments.get(SHAPE)
    if given is None:
        return EMPTIEST
    points = list(_points(given)) if isinstance(given, list) else []
    rises = all(left[0] < right[0] for left, right in pairwise(points))
    if not points or len(points) != len(given) or not rises:
        arguments.complaints.append(
            f"plugin predicates: {SHAPE} is no list of points of ascending utilization (0 to 100) and score (0 to 10); the"
            " emptiest storage is preferred"
        )
        return EMPTIEST
    return tuple(points)


def _points(given: Iterable[Any]) -> Iterable[Point]:
    for point in given:
        if isinstance(point, Mapping):
            used, score = point.get("utilization"), point.get("score")
            if type(used) is int and type(score) is int and 0 <= used <= 100 and 0 <= score <= 10:
                yield used, 10 * score
