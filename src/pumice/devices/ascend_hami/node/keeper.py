"""Claims to slices and sweeps over them, with the driver and the journal behind their ports. A slice is destroyed by one call
and its entry goes afterwards: who is killed in between finds no slice and forgets the entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from pumice.node.slices import Plan, Remove, SliceManager, Step
from pumice.ports.slices import UNOPENED, Entry, Journal, Phase, Place, Vnpu, Vnpus


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one sweep: what it destroyed (or would have: ``dry``), how many idle slices of each card are somebody
    else's, and the templates of those, idle or not, that no scheduler has booked."""

    destroyed: tuple[Place, ...] = ()
    foreign: Mapping[str, int] = field(default_factory=dict)
    dry: bool = False
    strange: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Keeper:
    """Synchronous, as a driver is: callers run it in a thread."""

    def __init__(self, vnpus: Vnpus, journal: Journal, mode: str = "owned", *, dry: bool = False) -> None:
        self._vnpus, self._sweeper, self._dry = vnpus, Sweeper(mode), dry
        self._manager = SliceManager(journal, vnpus.list, self._act)

    def claim(self, places: Sequence[Place], owner: str, owner_of: Mapping[int, str]) -> None:
        """Write down what the runtime may make for this pod from now on. Raises Unavailable."""
        with self._manager.alone() as before:
            seen = {place.card: self._vnpus.list(place.card) for place in places}
            entries = look(before, seen, owner_of)
            for place in places:
                entries = claim(entries, place, owner, seen[place.card])
            self._manager.carry_out(Plan(entries))

    def sweep(self, cards: Iterable[str], holds: Holds, owner_of: Mapping[int, str]) -> Swept:
        """Destroy what nobody holds. Raises Unavailable where the journal cannot be written; a card that does not answer is left
        alone."""
        with self._manager.alone() as before:
            seen = self._manager.observe(cards)
            entries, due = self._sweeper.sweep(look(before, seen, owner_of), seen, holds)
            strange = self._sweeper.strangers(entries, seen, owner_of)
            steps = () if self._dry else tuple(map(Remove, due))
            taken = self._manager.carry_out(Plan(entries, steps)).taken  # what a container has opened meanwhile stays
            destroyed = tuple(due) if self._dry else tuple(step.place for step in taken)
            return Swept(destroyed, self._sweeper.foreign(entries, seen), dry=self._dry, strange=strange)

    def _act(self, step: Step) -> str:
        self._vnpus.destroy(step.place.card, step.place.start)
        return ""


# -- The owners of slices, and the slices that may be destroyed -------------------------------------------------------

# ADR 70. The container runtime makes a slice when a container starts and
# destroys it when the container stops. What it leaves behind the plugin sweeps up, and nothing else: before the
# runtime is told of a template, the plugin writes down the claim of the pod to it, with the slices that were on the
# chip then. A slice of that template that comes afterwards is the pod's, unless its container had one already and has
# it still, for then the runtime made none; or a container that is not the pod's has opened it. A slice of ours that
# was opened, and has no container or another one when seen again, is a new one at the same id.


MODES: Final = ("off", "owned", "all")
GRACE: Final = 2
"""Sweeps for which a slice has to be found idle, and a claim's pod gone."""
Holds = Callable[[str], str]
"""The name of the pod of that UID where it still holds what it was given, else empty."""


def claim(entries: Sequence[Entry], place: Place, owner: str, seen: Iterable[Vnpu]) -> tuple[Entry, ...]:
    """The books with this pod's claim to a slice of ``place``'s card and template. A pod that claims again (the kubelet lost the
    answer, or another of its containers asks) keeps what it knew."""
    if any(entry.place == place and entry.owner == owner and entry.phase is Phase.MAKING for entry in entries):
        return tuple(entries)
    ours = {entry.place.start for entry in entries if entry.phase is Phase.MADE and entry.place.card == place.card}
    before = " ".join(str(slice_.id) for slice_ in seen if slice_.id not in ours)
    return (*entries, Entry(place, owner, Phase.MAKING, was=before))


def look(entries: Sequence[Entry], seen: Mapping[str, Sequence[Vnpu]], owner_of: Mapping[int, str]) -> tuple[Entry, ...]:
    """The books as the driver's records say. ``seen``: the slices by card; a card that did not answer is left out, and stays as
    it was. ``owner_of``: the pod of a container, by the id that the driver has of it."""
    claims = [entry for entry in entries if entry.phase is Phase.MAKING]
    made = {(e.place.card, e.place.start): e for e in entries if e.phase is not Phase.MAKING}
    kept = {key: entry for key, entry in made.items() if key[0] not in seen}
    for card, slices in seen.items():
        unknown = []
        for slice_ in slices:
            entry = made.get((card, slice_.id))
            if entry is not None and _same(entry, slice_):
                kept[card, slice_.id] = replace(entry, uuid=_opened(slice_, entry.uuid))
            else:
                unknown.append(slice_)
        served = {entry.owner for entry in entries if _still(entry, slices)}
        for slice_ in unknown:
            owner = _owner(card, slice_, claims, served, owner_of)
            if owner:
                kept[card, slice_.id] = Entry(Place(card, slice_.template, slice_.id), owner, Phase.MADE, _opened(slice_))
            elif owner is None:
                claims = [_knows(entry, card, slice_.id) for entry in claims]
        there = {slice_.id for slice_ in slices}
        claims = [_forgets(entry, card, there) for entry in claims]
    return (*claims, *(kept[key] for key in sorted(kept)))


def _opened(slice_: Vnpu, before: str = "") -> str:
    """The container that has it or had it last, 0 for one that ended unseen, nothing for none."""
    if slice_.container in (0, UNOPENED):
        return before or ("0" if not slice_.container else "")
    return f"{slice_.container:x}"


def _still(entry: Entry, slices: Iterable[Vnpu]) -> bool:
    """Return whether the slice was its pod's when looked at last, and the same container has it now."""
    return entry.uuid not in ("", "0") and any(s.id == entry.place.start and f"{s.container:x}" == entry.uuid for s in slices)


def _owner(card: str, slice_: Vnpu, claims: Sequence[Entry], served: Set[str], owner_of: Mapping[int, str]) -> str | None:
    """The pod whose new slice it is; None: it is somebody else's; empty where that cannot be told yet."""
    fitting = [c.owner for c in claims if c.place == Place(card, slice_.template, 0) and slice_.id not in _before(c)]
    waiting = [owner for owner in fitting if owner not in served]
    if slice_.container in (0, UNOPENED):
        return waiting[0] if waiting else None
    if slice_.container in owner_of:
        owner = owner_of[slice_.container]
        return owner if owner in fitting else None
    return "" if waiting else None  # the kubelet tells a container's id a little late


def _same(entry: Entry, slice_: Vnpu) -> bool:
    """Return whether it can be the slice that was seen last: one that was opened stays with its container, and then with none."""
    if entry.place.profile != slice_.template:
        return False
    return not slice_.container or entry.uuid in ("", f"{slice_.container:x}")


def _before(entry: Entry) -> set[int]:
    return {int(word) for word in entry.was.split() if word.isdecimal()}


def _knows(entry: Entry, card: str, ident: int) -> Entry:
    """The claim with one more slice that is somebody else's."""
    if entry.place.card != card or ident in _before(entry):
        return entry
    return replace(entry, was=f"{entry.was} {ident}".strip())


def _forgets(entry: Entry, card: str, there: set[int]) -> Entry:
    """The claim without those of them that are gone: their ids are free for the next."""
    if entry.place.card != card or _before(entry) <= there:
        return entry
    return replace(entry, was=" ".join(str(ident) for ident in sorted(_before(entry) & there)))


@dataclass(slots=True)
class Sweeper:
    """Counts of sweeps: what has been idle, strange, and whose pods have been gone, for how many sweeps. Forgotten with the
    process, which only delays."""

    mode: str = "owned"
    _idle: dict[tuple[str, int], int] = field(default_factory=dict)
    _ended: dict[str, int] = field(default_factory=dict)
    _strange: dict[tuple[str, int], int] = field(default_factory=dict)

    def sweep(
        self, entries: Sequence[Entry], seen: Mapping[str, Sequence[Vnpu]], holds: Holds
    ) -> tuple[tuple[Entry, ...], list[Place]]:
        """The books without the claims of pods that are gone, and what is to be destroyed. ``entries`` as ``look`` left them."""
        gone = {entry.owner for entry in entries if not holds(entry.owner)}
        self._ended = {owner: self._ended.get(owner, 0) + 1 for owner in gone}
        records = tuple(e for e in entries if e.phase is not Phase.MAKING or self._ended.get(e.owner, 0) < GRACE)
        claimed = {(e.place.card, e.place.profile) for e in entries if e.owner not in gone}
        ours = {(e.place.card, e.place.start) for e in entries if e.phase is not Phase.MAKING}
        idle = {
            (card, slice_.id): slice_ for card, slices in seen.items() for slice_ in slices
            if not slice_.busy and (slice_.container == 0 or (card, slice_.template) not in claimed)
        }  # fmt: skip
        self._idle = {key: self._idle.get(key, 0) + 1 for key in idle}
        due = [key for key in sorted(idle) if self._idle[key] >= GRACE and (key in ours or self.mode == "all")]
        return records, [Place(card, idle[card, ident].template, ident) for card, ident in due if self.mode != "off"]

    def foreign(self, entries: Sequence[Entry], seen: Mapping[str, Sequence[Vnpu]]) -> dict[str, int]:
        """Return how many idle slices of each card are somebody else's."""
        ours = {(e.place.card, e.place.start) for e in entries if e.phase is not Phase.MAKING}
        found = {card: sum(not s.busy and (card, s.id) not in ours for s in slices) for card, slices in seen.items()}
        return {card: count for card, count in found.items() if count}

    def strangers(
        self, entries: Sequence[Entry], seen: Mapping[str, Sequence[Vnpu]], owner_of: Mapping[int, str]
    ) -> dict[str, tuple[str, ...]]:
        """By card the templates of slices that no scheduler has booked: nobody's of ours, and no container of a pod of this node
        has them. For the time in which that may still come out they do not count. Once a sweep."""
        ours = {(e.place.card, e.place.start) for e in entries if e.phase is not Phase.MAKING}
        strange = {
            (card, slice_.id): slice_.template for card, slices in seen.items() for slice_ in slices
            if (card, slice_.id) not in ours and slice_.container not in owner_of
        }  # fmt: skip
        self._strange = {key: self._strange.get(key, 0) + 1 for key in strange}
        found: dict[str, tuple[str, ...]] = {}
        for (card, ident), template in sorted(strange.items()):
            if self._strange[card, ident] >= GRACE:
                found[card] = (*found.get(card, ()), template)
        return found
