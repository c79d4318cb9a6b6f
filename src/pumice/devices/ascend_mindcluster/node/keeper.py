"""Slices made for pods and whole chips given to them, with the driver and the journal behind their ports.

A slice's number is chosen and written down before the driver is asked for it, so whoever comes after a crash knows whether it was
made (ADR 81). It is destroyed by one call and its entry goes afterwards: who is killed in between finds no slice and forgets the
entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pumice.devices.ascend_mindcluster.node.books import Pods, foreign, gone, held_by, ids_text, is_there, lost, settled
from pumice.ports.slices import Entry, Journal, Phase, Place, Slice
from pumice.ports.vnpus import NpuRefused, Vnpu, Vnpus
from pumice.wire.mindcluster import NO_RESOURCE, SEGMENT_FAILED, chip_name, slice_numbers


@dataclass(frozen=True, slots=True)
class State:
    """What is handed out, and the slices that are there; what was destroyed for that or made anew, and why some could not be.
    ``dry``: it would have been destroyed."""

    entries: tuple[Entry, ...] = ()
    seen: Mapping[str, tuple[Vnpu, ...]] = field(default_factory=dict)
    destroyed: tuple[Place, ...] = ()
    restored: tuple[Place, ...] = ()
    failed: Mapping[Place, str] = field(default_factory=dict)
    dry: bool = False


@dataclass(frozen=True, slots=True)
class _WithServed:
    """The pods, with one that is being served and that the watch may not have told of."""

    pods: Pods
    served: str

    def runs(self, uid: str) -> str:
        return uid if uid == self.served else self.pods.runs(uid)

    def holds(self, uid: str) -> str:
        return uid if uid == self.served else self.pods.holds(uid)


class ChipKeeper:
    """Synchronous, as a driver is: callers run it in a thread. ``mode``: which slices that nobody holds are destroyed: none
    (``off``), ours (``owned``), or whatever no container uses (``all``, upstream's way)."""

    def __init__(self, vnpus: Vnpus, journal: Journal, mode: str = "owned", *, dry: bool = False) -> None:
        self._vnpus, self._journal, self._mode, self._dry = vnpus, journal, mode, dry

    def give(
        self, places: Sequence[Place], owner: str, ids: Iterable[str], cards: Iterable[str], pods: Pods
    ) -> tuple[Mapping[Place, Slice], State]:
        """The slice for this pod, made unless it is there already, or whole chips. ``places``: card, template and physical id.
        Raises Unavailable where it cannot be had as things are."""
        text = ids_text(ids)
        with self._journal.alone():
            state = self._cleared(cards, _WithServed(pods, owner))
            mine = [e for e in state.entries if e.owner == owner and (e.place.card, e.place.profile) in
                    {(place.card, place.profile) for place in places}]  # fmt: skip
            others = tuple(entry for entry in state.entries if entry not in mine)
            if not places[0].profile:
                _need_whole(places, others, state.seen)
                whole = tuple(Entry(Place(place.card, "", place.start), owner, Phase.MADE, text) for place in places)
                return {}, self._written((*others, *whole), state)
            if len(mine) == 1 and is_there(mine[0].place, state.seen.get(places[0].card, ())):
                entry = replace(mine[0], uuid=text)
                state = self._written((*others, entry), state)
            else:
                entry, state = self._made(places[0], owner, text, others, state)
        return {places[0]: Slice(entry.place, 0, str(entry.place.start))}, state

    def sweep(self, cards: Iterable[str], pods: Pods, record: Mapping[str, str], live: Set[str]) -> State:
        """Take from pods that ended what they had, and make again what vanished under others. ``record`` and ``live`` as
        ``books.held_by`` has them. Raises Unavailable where the journal cannot be written."""
        with self._journal.alone():
            return self._restored(self._cleared(cards, pods, record, live), pods)

    def _cleared(
        self, cards: Iterable[str], pods: Pods, record: Mapping[str, str] | None = None, live: Set[str] = frozenset()
    ) -> State:
        before = self._journal.read()
        seen = self._seen(cards)
        entries = settled(before, seen)
        if record is not None:
            entries = held_by(entries, record, live)
        over = [entry.place for entry in gone(entries, pods) if not entry.place.profile or entry.place.card in seen]
        if self._mode == "all":
            strangers = foreign(entries, seen).items()
            over += [Place(card, s.template, s.id) for card, slices in strangers for s in slices if not s.busy]
        there = [place for place in over if place.profile and is_there(place, seen[place.card])]
        due = [] if self._mode == "off" else there
        destroyed = due if self._dry else [place for place in due if self._destroyed(place)]
        left = set(there) - (set() if self._dry else set(destroyed))
        entries = tuple(entry for entry in entries if entry.place not in over or entry.place in left)
        if entries != before:
            self._journal.write(entries)
        fresh = self._seen(seen) if destroyed and not self._dry else seen
        return State(entries, fresh, tuple(destroyed), dry=self._dry)

    def _restored(self, state: State, pods: Pods) -> State:
        restored, failed = [], {}
        for entry in lost(state.entries, state.seen, pods):
            try:
                self._vnpus.make(entry.place.card, entry.place.profile, entry.place.start)
                restored.append(entry.place)
            except NpuRefused as error:
                failed[entry.place] = str(error)
        if not restored and not failed:
            return state
        return replace(state, seen=self._seen(state.seen), restored=tuple(restored), failed=failed)

    def _made(self, place: Place, owner: str, ids: str, others: tuple[Entry, ...], state: State) -> tuple[Entry, State]:
        if any(entry.place.card == place.card and not entry.place.profile for entry in others):
            raise NpuRefused(f"{SEGMENT_FAILED}: chip {chip_name(place.start)} is another pod's as a whole")
        used = {slice_.id for slice_ in state.seen.get(place.card, ())} | {
            entry.place.start for entry in others if entry.place.card == place.card and entry.place.profile
        }
        number = next((number for number in slice_numbers(place.start) if number not in used), None)
        if number is None:
            raise NpuRefused(f"{SEGMENT_FAILED}: chip {chip_name(place.start)} has no number left for a slice")
        entry = Entry(Place(place.card, place.profile, number), owner, Phase.MAKING, ids)
        self._journal.write((*others, entry))
        try:
            self._vnpus.make(place.card, place.profile, number)
        except NpuRefused as error:
            kept = settled((*others, entry), self._seen([place.card]))
            self._journal.write(kept)
            raise NpuRefused(f"{SEGMENT_FAILED}: {error}", error.code) from None
        entry = replace(entry, phase=Phase.MADE)
        return entry, replace(self._written((*others, entry), state), seen={**state.seen, **self._seen([place.card])})

    def _written(self, entries: tuple[Entry, ...], state: State) -> State:
        self._journal.write(entries)
        return replace(state, entries=entries)

    def _seen(self, cards: Iterable[str]) -> dict[str, tuple[Vnpu, ...]]:
        found: dict[str, tuple[Vnpu, ...]] = {}
        for card in cards:
            with suppress(NpuRefused):
                found[card] = self._vnpus.list(card)
        return found

    def _destroyed(self, place: Place) -> bool:
        with suppress(NpuRefused):  # a container has it still: the next sweep sees it end
            self._vnpus.destroy(place.card, place.start)
            return True
        return False


def _need_whole(places: Iterable[Place], others: Iterable[Entry], seen: Mapping[str, Sequence[Vnpu]]) -> None:
    taken = {entry.place.card for entry in others}
    for place in places:
        if place.card not in seen:
            raise NpuRefused(f"{NO_RESOURCE}: the driver does not tell what lies on chip {chip_name(place.start)}")
        if slices := seen[place.card]:
            numbers = ", ".join(str(slice_.id) for slice_ in slices)
            raise NpuRefused(f"{NO_RESOURCE}: vNPU {numbers} lies on chip {chip_name(place.start)}, which was to be given whole")
        if place.card in taken:
            raise NpuRefused(f"{NO_RESOURCE}: chip {chip_name(place.start)} is another pod's still")
