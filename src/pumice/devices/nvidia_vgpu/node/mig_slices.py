"""MIG slices of one machine's cards, made for pods by plan and journal, with the driver and the file behind their ports.

Plans lead from what is there, the journal and the places that a pod was given to ordered steps, or a sentence why
not; and from what a crash, a reset or a reboot has left to what the journal says.

A slice of ours that nobody holds stays where it is until it lies in the way: the next pod of that place gets it as it is.
Everything that stands beside the wanted places is left alone, so cards are recut beside running pods.
What is recovered follows reality:

| journal | there is | what follows |
|---|---|---|
| making | nothing | forgotten: nobody was answered |
| making | half a slice | finished for a pod that still holds it, else removed |
| making | a slice | it was made: the next pod of the place gets it |
| made | nothing | made again for a pod that still holds it (a boot takes all slices away), else forgotten |
| made | half a slice | filled again for a pod that still holds it, else left until it lies in the way |
| made | that slice | nothing to do |
| removing | half a slice, or that slice with nobody on it | removed |
| any | another slice at the place | it is somebody else's, and nobody touches it; a pod that was given ours is told |

A slice that the journal does not know is somebody else's. One that stands exactly where one was being made when the process
died cannot be told from our own and counts as ours (ADR 58).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pumice.model.errors import Unavailable
from pumice.node.device_list import Unit
from pumice.node.slices import Drain, Entries, Fill, Make, Plan, Remove, SliceManager, Step, known
from pumice.ports.slices import CutRefused, Entry, Journal, NoRights, Phase, Place, Slice, SliceProfile, Slices
from pumice.wire import names


@dataclass(frozen=True, slots=True)
class Given:
    """A pod's slices by their places, and what was cut and removed for it."""

    slices: Mapping[Place, Slice]
    made: tuple[Place, ...] = ()
    removed: tuple[Place, ...] = ()


class Cutter:
    """Synchronous and slow, as a driver is: callers run it in a thread. Several processes may cut one machine by turns."""

    def __init__(self, slices: Slices, journal: Journal, recovers: Callable[[Entry], bool] = lambda entry: True) -> None:
        """``recovers``: whether what a crash or a boot has left is this process's to put right; others' entries stay."""
        self._slices, self._recovers = slices, recovers
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
        """The journal once it and the cards that answer are brought together; the others keep their entries, and so do those
        that are not ours to recover. What is being removed is nobody's: whoever dies amid that, the next one ends it."""
        seen = self._manager.observe(cards)
        ours = (entry for entry in before if self._recovers(entry) or entry.phase is Phase.REMOVING)
        here = known(entry for entry in ours if entry.place.card in seen)
        planned = recover([slice_ for slices in seen.values() for slice_ in slices], here, holds)
        elsewhere = tuple(entry for entry in before if entry.place not in here)
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


# -- Plans of MIG slices ----------------------------------------------------------------------------------------------


CLAIM: Final = "claim "
"""Begins what holds a slice, where that is no pod."""
SliceEntries = Mapping[Place, Entry]
Holds = Callable[[str], str]
"""The name of the pod of that UID where it still holds its slices, else empty; of a claim with the word before it."""
MEDIA: Final = "+me"
"""Ends the names of profiles with media extensions. A card has one set of those, wherever the slice with them lies."""


def of_claim(entry: Entry) -> bool:
    """Return whether a slice was cut for a claim: the UID of a pod has no stroke (``PreparedClaim.owner``)."""
    return "/" in entry.owner


def plan(
    seen: Sequence[Slice],
    records: SliceEntries,
    wanted: Sequence[Place],
    owner: str,
    *,
    offered: Mapping[str, Sequence[SliceProfile]],
    holds: Holds,
) -> Plan | str:
    """Plan how the pod ``owner`` comes to its places. ``seen`` and ``offered`` are of the cards that the places name."""
    after = dict(records)
    there = {slice_.place: slice_ for slice_ in seen}
    removals: list[Step] = []
    makes: list[tuple[int, list[Step]]] = []
    taken: dict[str, int] = {}
    for place in wanted:
        profile = next((p for p in offered.get(place.card, ()) if p.name == place.profile), None)
        if profile is None or place.start not in profile.starts:
            return _not_offered(place, offered.get(place.card, ()))
        cover = (1 << profile.size) - 1 << place.start
        if cover & taken.get(place.card, 0):
            return f"the pod was given places of card {place.card} that lie over each other"
        if any(other != place and _exclude(other, place) for other in wanted):
            return f"the pod was given two slices with media extensions of card {place.card}, which has one set of them"
        taken[place.card] = cover | taken.get(place.card, 0)
        found, entry = there.get(place), records.get(place)
        if entry is not None and entry.owner != owner and (holder := holds(entry.owner)):
            return f"pod {holder} holds slice {place} of card {place.card}"
        if found is None:
            for other in (s for s in seen if s.place.card == place.card and (s.cover & cover or _exclude(s.place, place))):
                if reason := in_the_way(other, records, owner, holds):
                    return reason
                removals += removal(other)
                after[other.place] = replace(records[other.place], phase=Phase.REMOVING)
            makes.append((profile.size, [Make(place), Fill(place)]))
            after[place] = Entry(place, owner, Phase.MAKING)
        elif reason := _not_to_be_had(found, records, owner, holds):
            return reason
        elif found.half:
            makes.append((profile.size, [Fill(place)]))
            after[place] = Entry(place, owner, Phase.MAKING)
        else:
            after[place] = Entry(place, owner, Phase.MADE, found.uuid)
    steps = dict.fromkeys(removals)  # one slice may lie under two places
    return Plan(tuple(after.values()), (*steps, *(step for _, two in sorted(makes, key=_largest_first) for step in two)))


def _exclude(one: Place, other: Place) -> bool:
    """Return whether a card has not both of them, though they lie beside each other."""
    return one.card == other.card and one.profile.endswith(MEDIA) and other.profile.endswith(MEDIA)


def ours(slice_: Slice, records: SliceEntries) -> bool:
    """Return whether it was made by us: the journal has its place, and its UUID once that is known."""
    entry = records.get(slice_.place)
    if entry is None or entry.phase is Phase.LOST or slice_.parts > 1:
        return False
    return not entry.uuid or slice_.half or slice_.uuid == entry.uuid


def in_the_way(slice_: Slice, records: SliceEntries, owner: str, holds: Holds) -> str:
    """Return why this slice cannot be removed for a pod; empty where it can."""
    if reason := _not_to_be_had(slice_, records, owner, holds):
        return reason
    if records[slice_.place].owner == owner:
        return f"slice {slice_.place} of card {slice_.place.card} is this pod's own and lies in the way"
    return ""


def removal(slice_: Slice) -> list[Step]:
    return [Remove(slice_.place)] if slice_.half else [Drain(slice_.place), Remove(slice_.place)]


def foreign(seen: Iterable[Slice], records: SliceEntries) -> list[Slice]:
    """Return the slices that somebody else made."""
    return [slice_ for slice_ in seen if not ours(slice_, records)]


def _not_to_be_had(slice_: Slice, records: SliceEntries, owner: str, holds: Holds) -> str:
    what = f"slice {slice_.place} of card {slice_.place.card}"
    if not ours(slice_, records):
        return f"{what} was made by somebody else and is left alone"
    entry = records[slice_.place]
    if entry.owner != owner and (holder := holds(entry.owner)):
        return f"{holder if holder.startswith(CLAIM) else f'pod {holder}'} holds {what}"
    if entry.owner != owner and slice_.busy:
        return f"a process still runs on {what}, and its pod has ended"
    return ""


def _not_offered(place: Place, offered: Sequence[SliceProfile]) -> str:
    if not offered:
        return f"card {place.card} is not in MIG mode"
    known = "; ".join(f"{p.name} at {', '.join(map(str, p.starts))}" for p in offered)
    return f"card {place.card} has no slice {place}; its driver offers {known}"


def _largest_first(made: tuple[int, list[Step]]) -> tuple[int, Place]:
    size, steps = made
    return -size, steps[0].place


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod's slice is not what its containers were given."""

    owner: str
    place: Place
    was: str
    now: str = ""


def recover(seen: Sequence[Slice], records: SliceEntries, holds: Holds) -> Plan:
    """Return the plan that brings journal and cards together."""
    there = {slice_.place: slice_ for slice_ in seen}
    after: dict[Place, Entry] = {}
    removals: list[Step] = []
    makes: list[Step] = []
    for place, entry in sorted(records.items()):
        found, allocated = there.get(place), bool(holds(entry.owner))
        given = (entry.was or (entry.uuid if entry.phase is Phase.MADE else "")) if allocated else ""
        if entry.phase is Phase.LOST or (found is not None and not ours(found, records)):
            if given:
                after[place] = replace(entry, phase=Phase.LOST, uuid="", was=given)
        elif found is None:
            if given:
                makes += [Make(place), Fill(place)]
                after[place] = replace(entry, phase=Phase.MAKING, uuid="", was=given)
        elif entry.phase is Phase.REMOVING and not found.busy:
            removals += removal(found)
            after[place] = entry
        elif not found.half:
            after[place] = replace(entry, phase=Phase.MADE, uuid=found.uuid, was=given if given != found.uuid else "")
        elif allocated:
            makes.append(Fill(place))
            after[place] = replace(entry, phase=Phase.MAKING, uuid="", was=given)
        elif entry.phase is Phase.MAKING:
            removals.append(Remove(place))
            after[place] = replace(entry, phase=Phase.REMOVING)
        else:
            after[place] = entry
    return Plan(tuple(after.values()), (*removals, *makes))


def lost(records: SliceEntries, holds: Holds) -> list[Lost]:
    """The pods that were given what is not there any more."""
    return [Lost(e.owner, place, e.was, e.uuid) for place, e in sorted(records.items()) if e.was and holds(e.owner)]


# -- MIG slices that an administrator has cut, as resources of their own ----------------------------------------------


class StaticSlices:
    """The slices that were there when the plugin started, by resource. One that is divided further is left out."""

    def __init__(self, slices: Iterable[Slice] = ()) -> None:
        self._slices: dict[str, dict[str, Slice]] = {}
        for slice_ in slices:
            if slice_.uuid:
                self._slices.setdefault(resource_of(slice_.place.profile), {})[slice_.uuid] = slice_
        self._unhealthy: Mapping[str, str] = MappingProxyType({})

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(sorted(self._slices))

    def show(self, unhealthy: Mapping[str, str]) -> None:
        """Return which cards take no pods."""
        self._unhealthy = unhealthy

    def units(self, resource: str) -> list[Unit]:
        return [Unit(uuid, slice_.place.card not in self._unhealthy) for uuid, slice_ in self._slices[resource].items()]

    def of(self, resource: str, ids: Sequence[str]) -> tuple[Slice, ...] | str:
        """The slices of these ids in the order of their places; or which of them is none."""
        known = self._slices[resource]
        if strange := next((uuid for uuid in ids if uuid not in known), ""):
            return f"{strange} is no slice of {resource} on this node; were its cards cut anew since the plugin started?"
        return tuple(sorted((known[uuid] for uuid in ids), key=lambda slice_: slice_.place))


def resource_of(profile: str) -> str:
    """``volcano.sh/mig-1g.10gb``; a name holds no plus sign."""
    return f"{names.DOMAIN}/mig-{profile.replace('+', '.')}"
