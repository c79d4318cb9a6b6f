"""Volumes: how many a node may attach, zones, bound volumes within reach, and volumes still to be found or made (Volcano
pkg/scheduler/plugins/predicates, filters 6, 7 and 9).

Where the volumes that a pod still lacks would sit best: Kubernetes' score of volume binding, by a shape over how full the
storage would be (kubernetes.io docs "Storage Capacity", KEP-4049).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import Verdict
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.state import State
from pumice.scheduler.state.volumes import ZONE_LABELS, VolumeClaim, VolumeOptions
from pumice.wire.objects import Requirement
from pumice.wire.scheduler_conf import Arguments

Mask = NDArray[np.bool_]
Take = Callable[[Mask], Mask]
"""Cuts a mask over all rows to the rows that are asked for."""


def unusable_claims(state: State, cls: PodClass) -> str:
    """Return why no node at all may take the pod, because of a claim; empty when there is none."""
    volumes = state.volumes
    for name, key in zip(cls.constraints.claims, cls.constraints.claim_keys, strict=True):
        claim = volumes.claims.get(key)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.bound:
            if claim.volume not in volumes.volumes:
                return f'persistentvolume "{claim.volume}" not found'
            continue
        made_by = volumes.classes.get(claim.storage_class)
        if made_by is None or made_by.immediate or claim.volume:
            return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def in_use(state: State, cls: PodClass, take: Take) -> Iterator[Verdict]:
    """All nodes, while another pod uses a claim that is for one pod alone (Kubernetes' VolumeRestrictions)."""
    alone = state.volumes.for_one_pod(cls.constraints.claim_keys)
    if any(key in used for key in alone for used in state.ledger.terms.volumes.values()):
        text = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
        yield Verdict(take(np.ones(state.ledger.table.capacity, bool)), text, abort=True)


def too_many(state: State, cls: PodClass, take: Take) -> Iterator[Verdict]:
    """Nodes that may not attach what the pod would add (filter 6). What other pods use there costs nothing; what is attached
    without a pod counts, and is no cheaper when it is this pod's (kube-scheduler 1.36 counts so)."""
    volumes, terms = state.volumes, state.ledger.terms
    new = volumes.handles(cls.constraints.claim_keys)
    if not new or not volumes.limits:
        return
    full = np.zeros(state.ledger.table.capacity, bool)
    for name, limits in volumes.limits.items():
        row = state.ledger.table.row_of.get(name)
        if row is None or not limits.keys() & {driver for driver, _ in new}:
            continue
        used = volumes.handles(terms.volumes.get(row, ()))
        have = Counter(driver for driver, _ in used | (volumes.attached_to(name) - new))
        more = Counter(driver for driver, _ in new - used)
        full[row] = any(have[d] + count > limits[d] for d, count in more.items() if d in limits)
    yield Verdict(take(full), "node(s) exceed max volume count")


def wrong_zone(state: State, cls: PodClass, take: Take) -> Iterator[Verdict]:
    """Nodes in another zone or region than a bound volume's labels say (filter 7)."""
    labels, capacity = state.ledger.terms.labels, state.ledger.table.capacity
    wrong = np.zeros(capacity, bool)
    for key in cls.constraints.claim_keys:
        claim = state.volumes.claims.get(key)
        volume = state.volumes.volumes.get(claim.volume) if claim is not None else None
        for label, allowed in volume.zones if volume is not None else ():
            wrong |= ~labels.matches(Requirement(label, "In", tuple(sorted(allowed))))[:capacity]
    if wrong.any():
        placed = np.zeros(capacity, bool)
        for label in ZONE_LABELS:
            placed |= labels.codes(label)[:capacity] >= 0
        wrong &= placed  # a node that says nothing of zones is in all of them
        yield Verdict(take(wrong), "node(s) had no available volume zone", final=True, abort=True)


def out_of_reach(state: State, cls: PodClass, take: Take) -> Iterator[Verdict]:
    """Nodes that a bound volume cannot be used on, or on which an unbound claim finds no volume (filter 9)."""
    volumes, labels, capacity = state.volumes, state.ledger.terms.labels, state.ledger.table.capacity
    far = np.zeros(capacity, bool)
    unbound: list[VolumeClaim] = []
    for key in cls.constraints.claim_keys:
        claim = volumes.claims[key]
        if not claim.bound:
            unbound.append(claim)
        elif (terms := volumes.volumes[claim.volume].affinity) is not None:
            far |= ~labels.match_any(terms)[:capacity]
    if far.any():
        yield Verdict(take(far), "node(s) had volume node affinity conflict", final=True, abort=True)
    if unbound:
        text = "node(s) didn't find available persistent volumes to bind"
        yield Verdict(take(~_found(state, unbound)), text, final=True, abort=True)
    if any(volumes.room(claim) is not None for claim in unbound):
        text = "node(s) did not have enough free storage"
        yield Verdict(take(~_found(state, unbound, by_room=True)), text, final=True, abort=True)


def _found(state: State, claims: list[VolumeClaim], *, by_room: bool = False) -> Mask:
    """Rows on which each claim gets a volume of its own, or one can be made there; ``by_room``: of that size."""
    options = VolumeOptions(state.ledger, state.volumes, claims, by_room=by_room)
    if not any(options.free.values()):
        return np.asarray(np.logical_and.reduce(list(options.made.values())))
    found = np.zeros(state.ledger.table.capacity, bool)
    for row in state.ledger.table.row_of.values():
        found[row] = options.at(row) is not None
    return found


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
        self, state: State, claims: Sequence[VolumeClaim], chosen: Mapping[str, str], row: int,
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


def _room(state: State, claim: VolumeClaim) -> NDArray[np.int64]:
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
