"""MIG slices of one machine's cards, made for pods by plan and journal, with the driver and the file behind their ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pumice.devices.nvidia_vgpu.node.mig_plans import Holds, Lost, foreign, lost, ours, plan, recover
from pumice.model.errors import Unavailable
from pumice.node.slices.manager import Drain, Entries, Fill, Make, Plan, Remove, SliceManager, Step, known
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
        self._slices = slices
        self._manager = SliceManager(journal, slices.slices, lambda step: act(slices, step))
        self._denied: dict[str, str] = {}
        """Cards that turned out at a cut to be none of ours to cut."""
        self._allowed: set[str] = set()
        """Cards of which the driver has said that we may: it is not asked again."""

    def start(self, cards: Iterable[str], holds: Holds) -> list[Lost]:
        """Bring journal and cards together; the pods whose slices are not what they were given. Raises Unavailable."""
        with self._manager.alone() as entries:
            after = self._recover(cards, entries, holds)
        return lost(known(after), holds)

    def cut(self, places: Sequence[Place], owner: str, holds: Holds) -> Given | str:
        """The pod's slices at those places, made where they are missing; or why it cannot have them."""
        cards = dict.fromkeys(place.card for place in places)
        with self._manager.alone() as entries:
            offered = {card: self._slices.profiles(card) for card in cards}
            planned = plan(self._seen(cards), known(entries), places, owner, offered=offered, holds=holds)
            if isinstance(planned, str):
                return planned
            try:
                self._manager.carry_out(planned, strict=True)
            except CutRefused as error:
                if isinstance(error, NoRights):
                    self._denied |= dict.fromkeys(cards, str(error))
                self._recover(cards, self._manager.read(), lambda uid: "" if uid == owner else holds(uid))
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
        before = known(self._manager.peek())
        seen = self._slices.slices(card)
        after = known(self._manager.peek())  # a cut may have begun or ended meanwhile
        theirs = [slice_ for slice_ in foreign(seen, before) if not ours(slice_, after)]
        if not theirs:
            return ""
        places = ", ".join(str(slice_.place) for slice_ in theirs)
        return f"somebody else cut {places} on it; remove that (pumice mig apply, nvidia-smi mig) and it is shared"

    def _seen(self, cards: Iterable[str]) -> list[Slice]:
        return [slice_ for card in cards for slice_ in self._slices.slices(card)]

    def _recover(self, cards: Iterable[str], before: Entries, holds: Holds) -> Entries:
        """The journal once it and the cards that answer are brought together; the others keep their entries."""
        seen = self._manager.observe(cards)
        here = known(entry for entry in before if entry.place.card in seen)
        planned = recover([slice_ for slices in seen.values() for slice_ in slices], here, holds)
        elsewhere = tuple(entry for entry in before if entry.place.card not in seen)
        return self._manager.carry_out(Plan((*elsewhere, *planned.entries), planned.steps)).entries


def act(driver: Slices, step: Step) -> str:
    """One call of the driver; return the UUID of a slice that was filled. Raises CutRefused."""
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
