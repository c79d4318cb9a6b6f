"""Cuts the cards of one machine by plan and journal, with the driver and the file behind their ports.

Intent, act, record: the journal says what is meant before the driver is called, and what was done after the last call. Who is
killed in between is put right by ``start`` of whoever comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pumice.model.errors import Unavailable
from pumice.node.cutting.plan import (
    Books,
    Drain,
    Fill,
    Holds,
    Make,
    Plan,
    Remove,
    Step,
    done,
    foreign,
    ours,
    plan,
    refused,
)
from pumice.node.cutting.recovery import Lost, known, lost, recover
from pumice.ports.slices import CutRefused, Journal, NoRights, Place, Slice, Slices


@dataclass(frozen=True, slots=True)
class Given:
    """A pod's slices by their places, and what was cut and removed for it."""

    slices: Mapping[Place, Slice]
    made: tuple[Place, ...] = ()
    removed: tuple[Place, ...] = ()


class Cutter:
    """Synchronous and slow, as a driver is: callers run it in a thread. Several processes may cut one machine by turns."""

    def __init__(self, slices: Slices, journal: Journal) -> None:
        self._slices, self._journal = slices, journal
        self._denied: dict[str, str] = {}
        """Cards that turned out at a cut to be none of ours to cut."""
        self._allowed: set[str] = set()
        """Cards of which the driver has said that we may: it is not asked again."""

    def start(self, cards: Iterable[str], holds: Holds) -> list[Lost]:
        """Bring journal and cards together; the pods whose slices are not what they were given. Raises Unavailable."""
        with self._journal.alone():
            before = known(self._journal.read())
            after = self._settle(cards, before, holds)
        return lost(after, holds)

    def cut(self, places: Sequence[Place], owner: str, holds: Holds) -> Given | str:
        """The pod's slices at those places, made where they are missing; or why it cannot have them."""
        cards = dict.fromkeys(place.card for place in places)
        with self._journal.alone():
            books = known(self._journal.read())
            offered = {card: self._slices.profiles(card) for card in cards}
            planned = plan(self._seen(cards), books, places, owner, offered=offered, holds=holds)
            if isinstance(planned, str):
                return planned
            try:
                self._perform(planned, before=books)
            except CutRefused as error:
                if isinstance(error, NoRights):
                    self._denied |= dict.fromkeys(cards, str(error))
                self._settle(cards, known(self._journal.read()), lambda uid: "" if uid == owner else holds(uid))
                return str(error)
            there = {slice_.place: slice_ for slice_ in self._seen(cards)}
        made = tuple(step.place for step in planned.steps if isinstance(step, Fill))
        removed = tuple(step.place for step in planned.steps if isinstance(step, Remove))
        return Given({place: there[place] for place in places}, made, removed)

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """The cards that cannot be cut as a scheduler likes, and why. Waits for no cut that is going on."""
        found = {}
        for card in cards:
            try:
                reason = self._denied.get(card) or self._forbidden(card) or self._strangers(card)
            except Unavailable as error:  # the driver refuses, or the journal cannot be read
                reason = str(error)
            if reason:
                found[card] = reason
        return found

    def _forbidden(self, card: str) -> str:
        if card in self._allowed:
            return ""
        if not (reason := self._slices.allowed(card)):
            self._allowed.add(card)
        return reason

    def _strangers(self, card: str) -> str:
        before = known(self._journal.read())
        seen = self._slices.slices(card)
        after = known(self._journal.read())  # a cut may have begun or ended meanwhile
        theirs = [slice_ for slice_ in foreign(seen, before) if not ours(slice_, after)]
        if not theirs:
            return ""
        places = ", ".join(str(slice_.place) for slice_ in theirs)
        return f"somebody else cut {places} on it; remove that (pumice mig apply, nvidia-smi mig) and it is shared"

    def _seen(self, cards: Iterable[str]) -> list[Slice]:
        return [slice_ for card in cards for slice_ in self._slices.slices(card)]

    def _perform(self, planned: Plan, before: Books) -> None:
        """Raises CutRefused at the first step that the driver refuses."""
        books: Books = planned.books
        if planned.steps:
            self._journal.write(books.values())
        for step in planned.steps:
            books = done(books, step, act(self._slices, step))
        if books != before:
            self._journal.write(books.values())

    def _settle(self, cards: Iterable[str], before: Books, holds: Holds) -> Books:
        """As ``_perform``, but a refused step spoils its own slice only, and a card that does not answer its own entries."""
        seen: dict[str, tuple[Slice, ...]] = {}
        for card in cards:
            with suppress(CutRefused):
                seen[card] = self._slices.slices(card)
        here = {place: entry for place, entry in before.items() if place.card in seen}
        elsewhere = {place: entry for place, entry in before.items() if place.card not in seen}
        planned = recover([slice_ for slices in seen.values() for slice_ in slices], here, holds)
        books: Books = {**elsewhere, **planned.books}
        if planned.steps:
            self._journal.write(books.values())
        spoilt = set[Place]()
        for step in planned.steps:
            if step.place in spoilt:
                continue
            try:
                books = done(books, step, act(self._slices, step))
            except CutRefused:
                spoilt.add(step.place)
                books = refused(books, step)
        if books != before:
            self._journal.write(books.values())
        return books


def act(driver: Slices, step: Step) -> str:
    """One call of the driver; the UUID of a slice that was filled. Raises CutRefused."""
    match step:
        case Make(place):
            driver.make(place)
        case Fill(place):
            return driver.fill(place)
        case Drain(place):
            driver.drain(place)
        case Remove(place):
            driver.remove(place)
    return ""
