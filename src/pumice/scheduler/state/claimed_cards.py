"""Cards of which claims hold a device or a part: a card serves claims or annotated pods, never both.

Which card a device is, its driver publishes as attribute ``uuid`` or ``parentUUID``. A device in use that is published no more is
of the card of which it was last seen to be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pumice.claims.objects import DeviceID, Result
from pumice.claims.slices import Slices


@dataclass(slots=True)
class ClaimedCards:
    """By the uid of the claim. ``changed`` is told a claim, the UUIDs before and now, and whether somebody else may have what it
    gave back."""

    slices: Slices
    changed: Callable[[str, frozenset[str], frozenset[str], bool], None] = lambda claim, before, now, gain: None
    by_card: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """By UUID the claims that hold something of the card."""
    _known: dict[str, dict[DeviceID, tuple[str, ...]]] = field(default_factory=dict)
    _aside: set[str] = field(default_factory=set)
    """Claims that are off the books for a question."""

    def holds(self, claim: str, results: Iterable[Result], *, gain: bool) -> None:
        """Look anew at what a claim holds."""
        before = self._known.get(claim, {})
        ids = (DeviceID(one.driver, one.pool, one.device) for one in results if not one.admin_access)
        found = {id_: self.slices.cards_of(id_) for id_ in ids}
        now = {id_: before.get(id_, ()) if cards is None else cards for id_, cards in found.items()}
        if before == now:
            return
        cards = self._cards(claim)
        if now:
            self._known[claim] = now
        else:
            self._known.pop(claim, None)
        self._set(claim, cards, self._cards(claim), gain=gain)

    def set_aside(self, claim: str, *, back: bool = False) -> None:
        """Leave a claim out, or count it again, for as long as a question is asked."""
        before = self._cards(claim)
        if back:
            self._aside.discard(claim)
        else:
            self._aside.add(claim)
        self._set(claim, before, self._cards(claim), gain=False)

    def validate(self) -> Iterator[str]:
        """Yield what does not hold between events: each card is known by who holds it, and by nobody else."""
        by_card: dict[str, dict[str, None]] = defaultdict(dict)
        for claim in self._known:
            for uuid in self._cards(claim):
                by_card[uuid][claim] = None
        if by_card != self.by_card or self._aside:
            yield "the cards of claims are not those of the devices that they hold"

    def _cards(self, claim: str) -> frozenset[str]:
        if claim in self._aside:
            return frozenset()
        return frozenset(uuid for cards in self._known.get(claim, {}).values() for uuid in cards)

    def _set(self, claim: str, before: frozenset[str], now: frozenset[str], *, gain: bool) -> None:
        for uuid in before - now:
            there = self.by_card[uuid]
            del there[claim]
            if not there:
                del self.by_card[uuid]
        for uuid in now - before:
            self.by_card[uuid][claim] = None
        if before != now:
            self.changed(claim, before, now, gain and bool(before - now))
