"""Slices made for pods and whole chips given to them, with the driver and the journal behind their ports.

A slice's number is chosen and written down before the driver is asked for it, so whoever comes after a crash knows whether it was
made (ADR 81). It is destroyed by one call and its entry goes afterwards: who is killed in between finds no slice and forgets the
entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pumice.devices.ascend_mindcluster.node.books import Pods, foreign, gone, held_by, ids_text, is_there, lost, settled
from pumice.node.slices.manager import Create, Plan, Remove, SliceManager, Step
from pumice.ports.slices import CutRefused, Entry, Journal, Phase, Place, Slice
from pumice.ports.vnpus import NpuRefused, Vnpu, Vnpus
from pumice.wire.mindcluster import NO_RESOURCE, SEGMENT_FAILED, chip_name, slice_numbers


@dataclass(frozen=True, slots=True)
class State:
    """The entries of what is handed out, and the slices that are there; what was destroyed for that or made anew, and why some
    could not be. ``dry``: it would have been destroyed."""

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
        self._vnpus, self._mode, self._dry = vnpus, mode, dry
        self._manager = SliceManager(journal, vnpus.list, self._act)

    def give(
        self, places: Sequence[Place], owner: str, ids: Iterable[str], cards: Iterable[str], pods: Pods
    ) -> tuple[Mapping[Place, Slice], State]:
        """The slice for this pod, made unless it is there already, or whole chips. ``places``: card, template and physical id.
        Raises Unavailable where it cannot be had as things are."""
        text = ids_text(ids)
        with self._manager.alone() as before:
            seen = self._manager.observe(cards)
            state = self._collected(settled(before, seen), seen, _WithServed(pods, owner))
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
        with self._manager.alone() as before:
            seen = self._manager.observe(cards)
            return self._restored(self._collected(held_by(settled(before, seen), record, live), seen, pods), pods)

    def _collected(self, entries: tuple[Entry, ...], seen: Mapping[str, tuple[Vnpu, ...]], pods: Pods) -> State:
        """Destroy what nobody holds. A chip that was given whole is only forgotten."""
        over = [entry.place for entry in gone(entries, pods) if not entry.place.profile or entry.place.card in seen]
        if self._mode == "all":
            strangers = foreign(entries, seen).items()
            over += [Place(card, s.template, s.id) for card, slices in strangers for s in slices if not s.busy]
        there = [place for place in over if place.profile and is_there(place, seen[place.card])]
        due = [] if self._mode == "off" else there
        kept = tuple(entry for entry in entries if entry.place not in over or entry.place in there)
        found = self._manager.carry_out(Plan(kept, () if self._dry else tuple(map(Remove, due))))
        destroyed = due if self._dry else [step.place for step in found.taken]
        fresh = self._manager.observe(seen) if found.taken else seen
        return State(found.entries, fresh, tuple(destroyed), dry=self._dry)

    def _restored(self, state: State, pods: Pods) -> State:
        steps = tuple(Create(entry.place) for entry in lost(state.entries, state.seen, pods))
        if not steps:
            return state
        found = self._manager.carry_out(Plan(state.entries, steps))
        restored, failed = tuple(step.place for step in found.taken), {place: str(why) for place, why in found.refusals.items()}
        return replace(state, seen=self._manager.observe(state.seen), restored=restored, failed=failed)

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
        planned = Plan((*others, entry), (Create(entry.place),))
        try:
            entries = self._manager.carry_out(planned, strict=True).entries
        except CutRefused as error:
            self._manager.carry_out(Plan(settled(planned.entries, self._manager.observe([place.card]))))
            raise NpuRefused(f"{SEGMENT_FAILED}: {error}", getattr(error, "code", 0)) from None
        fresh = {**state.seen, **self._manager.observe([place.card])}
        return replace(entry, phase=Phase.MADE), replace(state, entries=entries, seen=fresh)

    def _written(self, entries: tuple[Entry, ...], state: State) -> State:
        return replace(state, entries=self._manager.carry_out(Plan(entries)).entries)

    def _act(self, step: Step) -> str:
        place = step.place
        if isinstance(step, Create):
            self._vnpus.make(place.card, place.profile, place.start)
        else:
            self._vnpus.destroy(place.card, place.start)
        return ""


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
