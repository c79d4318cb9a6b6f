"""Nodes told apart by what a partition for a claim would leave of their cards (``pumice.claims.partitions``).

Which places of a card a claim would take is asked of one card of each layout, at a cost that a cycle does not feel: this decides
which node is searched first, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from pumice.claims.objects import Device, ResourceClaim, ResourceSlice
from pumice.claims.partitions import Layout, State
from pumice.claims.reasons import FitError
from pumice.claims.requests import Fault, consumed, prepared
from pumice.claims.selecting import Selections
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.state import State as SchedulerState

Sample = tuple[tuple[ResourceSlice, Device], ...]
KEPT, COSTS = 512, 4096
"""Classes of which is remembered what they ask for, and cards of which is remembered what one of them would cost there."""
STEPS: Final = 500
"""The cost of a selector on one device, at most: less than a millisecond. One that costs more prefers no node."""
LARGEST: Final = 1 << 40
"""Memory from which on places are alike."""
WORTH: Final = 0.01
"""Of what is left of a card, in the score of a node: less than a GiB of memory that is wasted."""


class Request(NamedTuple):
    """A request as far as one device answers it: its selectors, and the capacities that it asks for."""

    expressions: tuple[str, ...]
    capacities: Mapping[str, Fraction]


@dataclass(slots=True)
class Wanted:
    """Requests of a class, for cards that are cut."""

    requests: Sequence[Request]
    _places: dict[Layout, tuple[Sample, list[list[int]]]] = field(default_factory=dict)
    _costs: dict[State, list[float]] = field(default_factory=dict)

    def score(self, cards: Iterable[State]) -> float | None:
        """Return a score from 0 to 100 of a node with such cards: the smallest place first, then a card in use, then the place
        that leaves most for larger ones. None where none of them has a place."""
        least: list[float] = []
        for card in cards:
            known = self._places.get(card.layout)
            if known is None or known[0] is not card.layout.sample or len(self._costs) > COSTS:
                self._costs.clear()
                self._places[card.layout] = card.layout.sample, [_places_for(one, card.layout.sample) for one in self.requests]
            costs = self._costs.get(card)
            if costs is None:
                costs = self._costs[card] = self._of(card)
            least = list(map(min, least, costs)) if least else costs
        some = [cost for cost in least if cost < float("inf")]
        return 100.0 - sum(some) / len(some) if some else None

    def _of(self, card: State) -> list[float]:
        """Return by request the cost of the best place on the card."""
        layout, lost = card.layout, card.layout.lost(card)
        return [
            min((100.0 * min(1.0, float(layout.places[at].size) / LARGEST) + WORTH * (2.0 * card.is_idle + left)
                 for at in places if (left := lost[at]) is not None), default=float("inf"))
            for places in self._places[layout][1]
        ]  # fmt: skip


def _places_for(request: Request, sample: Sample) -> list[int]:
    """Return the kinds of places that the request would take, as far as that can be said at once."""
    selections = Selections()
    return [
        at for at, (slice_, device) in enumerate(sample)
        if not isinstance(consumed(device, request.capacities), FitError)
        and all(selections.selects(expression, slice_, device, STEPS)[0] is True for expression in request.expressions)
    ]  # fmt: skip


@dataclass(slots=True)
class PartitionScores:
    """By class what it asks for, as of these DeviceClasses."""

    _known: dict[PodClass, tuple[SchedulerState, int, Wanted]] = field(default_factory=dict)

    def of(self, state: SchedulerState, cls: PodClass) -> Wanted:
        version = state.device_claims.classes_version
        known = self._known.get(cls)
        if known is None or known[0] is not state or known[1] != version:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[cls] = state, version, Wanted(_requests(state, cls))
        return known[2]


def _requests(state: SchedulerState, cls: PodClass) -> list[Request]:
    """The requests of the class, of alternatives the first one; none where there is no such DeviceClass."""
    claims = [ResourceClaim(cls.constraints.namespace, one.name, one.spec.devices) for one in cls.device_claims]
    try:
        asked = prepared(claims, state.device_claims.classes)
    except Fault:
        return []
    first = (asks[0] for claim in asked for asks in claim.requests if asks and not asks[0].asked.admin_access)
    return [Request(tuple(text for text, _ in ask.expressions), ask.asked.capacity.requests) for ask in first]
