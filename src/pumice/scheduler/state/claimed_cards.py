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

Card = tuple[str, str]
"""The only node of the slice that says so, or nothing where it is for more than one; and a UUID."""


@dataclass(slots=True)
class ClaimedCards:
    """By the uid of the claim. ``changed`` is told a claim, its cards before and now, and whether somebody else may have what it
    gave back."""

    slices: Slices
    changed: Callable[[str, frozenset[Card], frozenset[Card], bool], None] = lambda claim, before, now, gain: None
    by_card: dict[Card, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """The claims that hold something of the card."""
    _known: dict[str, dict[DeviceID, tuple[Card, ...]]] = field(default_factory=dict)
    _aside: set[str] = field(default_factory=set)
    """Claims that are off the ledger for a question."""

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

    def on(self, node: str, uuid: str) -> set[str]:
        """Return the claims that hold something of a card of that node."""
        return {*self.by_card.get((node, uuid), ()), *self.by_card.get(("", uuid), ())}

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
        by_card: dict[Card, dict[str, None]] = defaultdict(dict)
        for claim in self._known:
            for card in self._cards(claim):
                by_card[card][claim] = None
        if by_card != self.by_card or self._aside:
            yield "the cards of claims are not those of the devices that they hold"

    def _cards(self, claim: str) -> frozenset[Card]:
        if claim in self._aside:
            return frozenset()
        return frozenset(card for cards in self._known.get(claim, {}).values() for card in cards)

    def _set(self, claim: str, before: frozenset[Card], now: frozenset[Card], *, gain: bool) -> None:
        for card in before - now:
            there = self.by_card[card]
            del there[claim]
            if not there:
                del self.by_card[card]
        for card in now - before:
            self.by_card[card][claim] = None
        if before != now:
            self.changed(claim, before, now, gain and bool(before - now))
