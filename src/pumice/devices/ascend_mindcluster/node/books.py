"""The books of a node's chips: what was handed out, as the journal has it (ADR 81).

An entry is a slice, or a whole chip where its profile is empty. ``Entry.uuid`` has the kubelet's ids of it: they tell whom the
kubelet asked for, which the call for it did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

from pumice.ports.slices import Entry, Phase, Place
from pumice.ports.vnpus import Vnpu

Seen = Mapping[str, Sequence[Vnpu]]
"""The slices by card; a card that did not answer is left out."""


class Pods(Protocol):
    """The state of this node's pods, by UID (``node.slices.owners``)."""

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
