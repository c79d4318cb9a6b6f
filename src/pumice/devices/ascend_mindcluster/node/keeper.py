"""Slices made for pods and whole chips given to them, with the driver and the journal behind their ports.

A slice's number is chosen and written down before the driver is asked for it, so whoever comes after a crash knows whether it was
made (ADR 81). It is destroyed by one call and its entry goes afterwards: who is killed in between finds no slice and forgets the
entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pumice.effects.vocabulary import PatchPod
from pumice.model.hardware.npu import SliceKind
from pumice.node.pods import NodePod
from pumice.node.slices import Create, Plan, Remove, SliceManager, Step
from pumice.ports.slices import CutRefused, Entry, Journal, NpuRefused, Phase, Place, Slice, Vnpu, Vnpus
from pumice.wire.device_reports import device_info
from pumice.wire.mindcluster import (
    KUBELET_DEVICES,
    NO_RESOURCE,
    NUMBERS_OF_A_CHIP,
    REAL,
    SEGMENT_FAILED,
    RealSlice,
    chip_name,
    render_real_chips,
    render_real_slice,
    slice_numbers,
)


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
    """Synchronous, as a driver is: callers run it in a thread. ``kind``: the name of such chips. ``mode``: which slices that
    nobody holds are destroyed: none (``off``), ours (``owned``), or whatever no container uses (``all``, upstream's way).
    ``slices``: how many a chip takes, by its UUID."""

    def __init__(
        self, kind: str, vnpus: Vnpus, journal: Journal, mode: str = "owned", *, dry: bool = False,
        slices: Callable[[str], int] = lambda _: NUMBERS_OF_A_CHIP,
    ) -> None:  # fmt: skip
        self._kind, self._vnpus, self._mode, self._dry, self._slices = kind, vnpus, mode, dry, slices
        self._manager = SliceManager(journal, vnpus.list, self._act)

    def give(
        self, places: Sequence[Place], owner: str, ids: Iterable[str], cards: Iterable[str], pods: Pods,
        given: Iterable[Entry] = (),
    ) -> tuple[Mapping[Place, Slice], State]:  # fmt: skip
        """The slice for this pod, made unless it is there already, or whole chips. ``places``: card, template and physical id;
        ``given`` as ``sweep`` has it. Raises Unavailable where it cannot be had as things are."""
        text = ids_text(ids)
        with self._manager.alone() as before:
            seen = self._manager.observe(cards)
            state = self._collected(remembered(settled(before, seen), given), seen, _WithServed(pods, owner))
            mine = [e for e in state.entries if e.owner == owner and (e.place.card, e.place.profile) in
                    {(place.card, place.profile) for place in places}]  # fmt: skip
            others = tuple(entry for entry in state.entries if entry not in mine)
            if not places[0].profile:
                self._need_whole(places, others, state.seen)
                whole = tuple(Entry(Place(place.card, "", place.start), owner, Phase.MADE, text) for place in places)
                return {}, self._written((*others, *whole), state)
            if len(mine) == 1 and is_there(mine[0].place, state.seen.get(places[0].card, ())):
                entry = replace(mine[0], uuid=text)
                state = self._written((*others, entry), state)
            else:
                entry, state = self._made(places[0], owner, text, others, state)
        return {places[0]: Slice(entry.place, 0, str(entry.place.start))}, state

    def sweep(
        self, cards: Iterable[str], pods: Pods, record: Mapping[str, str], live: Set[str], given: Iterable[Entry] = ()
    ) -> State:
        """Take from pods that ended what they had, and make again what vanished under others. ``record`` and ``live`` as
        the cluster's own reports have them; ``given``: what another book says was handed out, where the journal was lost. Raises
        Unavailable where the journal cannot be written."""
        with self._manager.alone() as before:
            seen = self._manager.observe(cards)
            entries = remembered(settled(before, seen), given)
            return self._restored(self._collected(held_by(entries, record, live), seen, pods), pods)

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
            raise NpuRefused(f"{SEGMENT_FAILED}: chip {chip_name(self._kind, place.start)} is another's as a whole")
        used = {slice_.id for slice_ in state.seen.get(place.card, ())} | {
            entry.place.start for entry in others if entry.place.card == place.card and entry.place.profile
        }
        numbers = slice_numbers(place.start, self._slices(place.card))
        number = next((number for number in numbers if number not in used), None)
        if number is None:
            raise NpuRefused(f"{SEGMENT_FAILED}: chip {chip_name(self._kind, place.start)} has no number left for a slice")
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

    def _need_whole(self, places: Iterable[Place], others: Iterable[Entry], seen: Mapping[str, Sequence[Vnpu]]) -> None:
        taken = {entry.place.card for entry in others}
        for place in places:
            chip = f"chip {chip_name(self._kind, place.start)}"
            if place.card not in seen:
                raise NpuRefused(f"{NO_RESOURCE}: the driver does not tell what lies on {chip}")
            if slices := seen[place.card]:
                numbers = ", ".join(str(slice_.id) for slice_ in slices)
                raise NpuRefused(f"{NO_RESOURCE}: vNPU {numbers} lies on {chip}, which was to be given whole")
            if place.card in taken:
                raise NpuRefused(f"{NO_RESOURCE}: {chip} is another's still")

    def _act(self, step: Step) -> str:
        place = step.place
        if isinstance(step, Create):
            self._vnpus.make(place.card, place.profile, place.start)
        else:
            self._vnpus.destroy(place.card, place.start)
        return ""


# -- The books of a node's chips --------------------------------------------------------------------------------------

# What was handed out, as the journal has it (ADR 81). An entry is a slice, or a whole chip where its profile is
# empty. ``Entry.uuid`` has the kubelet's ids of it: they tell whom the kubelet asked for, which the call for it did
# not.


Seen = Mapping[str, Sequence[Vnpu]]
"""The slices by card; a card that did not answer is left out."""


class Pods(Protocol):
    """The state of this node's pods, by UID (``node/slices.py``)."""

    def runs(self, uid: str) -> str:
        """The name of the pod where it is there and has not ended, else empty."""
        ...

    def holds(self, uid: str) -> str:
        """The same, and for a while also where it vanished and its containers may run yet."""
        ...


def ids_text(ids: Iterable[str]) -> str:
    return ",".join(sorted(ids))


def settled(entries: Iterable[Entry], seen: Seen) -> tuple[Entry, ...]:
    """The books once it is known which slice was made before somebody was killed: it has the number that was meant for it."""
    return tuple(_settled(entries, seen))


def _settled(entries: Iterable[Entry], seen: Seen) -> Iterator[Entry]:
    for entry in entries:
        if entry.phase is not Phase.MAKING or entry.place.card not in seen:
            yield entry
        elif is_there(entry.place, seen[entry.place.card]):
            yield replace(entry, phase=Phase.MADE)


def remembered(entries: tuple[Entry, ...], given: Iterable[Entry]) -> tuple[Entry, ...]:
    """The books with what they do not have of this: of owners and places that they do not name."""
    owners, places = {entry.owner for entry in entries}, {entry.place for entry in entries}
    return (*entries, *(one for one in given if one.owner not in owners and one.place not in places))


def is_there(place: Place, slices: Iterable[Vnpu]) -> bool:
    return any((slice_.id, slice_.template) == (place.start, place.profile) for slice_ in slices)


def gone(entries: Iterable[Entry], pods: Pods) -> tuple[Entry, ...]:
    """Return the entries that nobody holds any more. The driver itself keeps a slice while a container has it; of a whole chip
    it knows nothing."""
    return tuple(
        entry for entry in entries
        if entry.phase is Phase.MADE and not (pods.runs if entry.place.profile else pods.holds)(entry.owner)
    )  # fmt: skip


def lost(entries: Iterable[Entry], seen: Seen, pods: Pods) -> tuple[Entry, ...]:
    """Slices that somebody holds and that are not there: a boot or a reset took them."""
    return tuple(
        entry for entry in entries
        if entry.place.profile and entry.phase is Phase.MADE and entry.place.card in seen and pods.runs(entry.owner)
        and not is_there(entry.place, seen[entry.place.card])
    )  # fmt: skip


def foreign(entries: Iterable[Entry], seen: Seen) -> dict[str, tuple[Vnpu, ...]]:
    """Slices of each card that somebody else made."""
    ours = {entry.place for entry in entries}
    found = {card: tuple(s for s in slices if Place(card, s.template, s.id) not in ours) for card, slices in seen.items()}
    return {card: slices for card, slices in found.items() if slices}


def held_by(entries: Sequence[Entry], record: Mapping[str, str], live: Set[str]) -> tuple[Entry, ...]:
    """The books by the kubelet's own record (``record``: the ids by the UID of their pod). Two pods that wait for as many cores
    may be mistaken for each other when they are served; whoever has the ids has what was given for them. An owner that the
    kubelet has not written down yet keeps what it was given."""
    holder = {ids: uid for uid, ids in record.items() if uid in live}
    last = {entry.uuid: entry.owner for entry in entries}

    def owner(entry: Entry) -> str:
        found = holder.get(entry.uuid, entry.owner)
        current = entry.owner == last[entry.uuid]  # the kubelet gives the ids of pods that ended to others
        elsewhere = entry.owner not in live or record.get(entry.owner, entry.uuid) != entry.uuid
        return found if current and elsewhere else entry.owner

    return tuple(replace(entry, owner=owner(entry)) for entry in entries)


# -- Reports of what the plugin made ----------------------------------------------------------------------------------

# Pods are told what they have, the cluster which chips are free (Volcano pkg/scheduler/api/devices/ascend/mindcluster,
# MindCluster ascend-device-plugin).


_CODE = re.compile(r"0x([0-9A-F]{8})")


def realised(
    pods: Iterable[NodePod], record: Mapping[str, str], state: State, chips: Mapping[int, str], kind: SliceKind
) -> Iterator[PatchPod]:
    """To be told to pods that the kubelet has written down, or that run though it has lost that, and that were not told or say
    otherwise. ``record``: the kubelet's ids by pod UID, ``chips``: UUIDs by physical id."""
    number = {uuid: chip for chip, uuid in chips.items()}
    for pod in pods:
        ids = record.get(pod.uid, "") or _ids_by_journal(pod, record, state)
        if not ids or pod.finished:
            continue
        given = [entry for entry in state.entries if entry.owner == pod.uid and entry.uuid == ids and entry.phase is Phase.MADE]
        said = {REAL: _real(given, state, number, kind), KUBELET_DEVICES: ids}
        if said[REAL] and any(pod.annotations.get(key) != text for key, text in said.items()):
            yield PatchPod.of(pod.metadata, said)


def _ids_by_journal(pod: NodePod, record: Mapping[str, str], state: State) -> str:
    """Return the ids of a pod that runs, where nobody else has them by the kubelet's record; empty where the journal names
    none, or several."""
    if pod.status.phase != "Running":
        return ""
    own = {entry.uuid for entry in state.entries if entry.owner == pod.uid} - set(record.values())
    return own.pop() if len(own) == 1 else ""


def _real(given: Sequence[Entry], state: State, number: Mapping[str, int], kind: SliceKind) -> str:
    if not given or any(entry.place.card not in number for entry in given):
        return ""
    place = given[0].place
    if not place.profile:
        return render_real_chips(kind.name, sorted(number[entry.place.card] for entry in given))
    made = next((one for one in state.seen.get(place.card, ()) if one.id == place.start), None)
    if made is None or place.profile not in kind.templates:
        return ""
    word = kind.templates[place.profile].word
    return render_real_slice(RealSlice(kind.name, word, place.start, number[place.card], made.group))


def report(kind: str, chips: Mapping[int, str], unhealthy: Mapping[str, str], state: State, now: int) -> dict[str, Any]:
    """The ``DeviceInfo``: free are chips that are healthy, given to nobody, and carry no vNPU, whoever made it."""
    given = {entry.place.card for entry in state.entries} | {card for card, slices in state.seen.items() if slices}
    free = [chip_name(kind, chip) for chip, uuid in chips.items() if uuid not in unhealthy and uuid not in given]
    ill = {chip_name(kind, chip): _CODE.findall(unhealthy[uuid]) for chip, uuid in chips.items() if uuid in unhealthy}
    return device_info(free, list(ill), now, faults=ill, kind=kind)
