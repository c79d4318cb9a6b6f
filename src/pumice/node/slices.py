"""Changes the slices of one machine's cards. What is meant stands in the journal before the driver is called, and what came of it
afterwards, so that whoever comes after a crash can tell what was done.

    read ─> observe ─> a plan of the device type ─> write what is meant ─> call by call ─> write what came of it

A device type's plans are pure: they recover (what a crash, a reset or a boot has left), allocate (what a pod was given) or
collect (what nobody holds). What may be destroyed is theirs to say; by default only what the journal says that we made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from pumice.node.pods import AllocatedIds, NodePod
from pumice.ports.slices import CutRefused, Entry, Journal, Phase, Place

Entries = tuple[Entry, ...]
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Make:
    """Take the room."""

    place: Place


@dataclass(frozen=True, slots=True)
class Fill:
    """Make the device in it."""

    place: Place


@dataclass(frozen=True, slots=True)
class Create:
    """Make a whole slice, where a driver does it by one call."""

    place: Place


@dataclass(frozen=True, slots=True)
class Drain:
    """Take the device away."""

    place: Place


@dataclass(frozen=True, slots=True)
class Remove:
    """Give the room back."""

    place: Place


Step = Make | Fill | Create | Drain | Remove


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of slices to make and remove. ``entries`` are written before the first step; each step then says what becomes of
    its own."""

    entries: Entries
    steps: tuple[Step, ...] = ()

    @property
    def books(self) -> dict[Place, Entry]:
        return known(self.entries)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The journal once a plan is carried out, the steps that were taken, and the refusals of those that were not, by place."""

    entries: Entries
    taken: tuple[Step, ...] = ()
    refusals: Mapping[Place, CutRefused] = field(default_factory=dict)


class SliceManager(Generic[S]):
    """Synchronous and slow, as a driver is: callers run it in a thread. Several processes may change one machine by turns.

    ``observe``: the slices of a card; ``act``: one call of the driver, which returns the UUID of a slice that was filled. Both
    raise CutRefused.
    """

    def __init__(self, journal: Journal, observe: Callable[[str], tuple[S, ...]], act: Callable[[Step], str]) -> None:
        self._journal, self._observe, self._act = journal, observe, act
        self._written: Entries = ()

    @contextmanager
    def alone(self) -> Iterator[Entries]:
        """Nobody else changes slices meanwhile; the journal as it is. Raises Unavailable."""
        with self._journal.alone():
            yield self.read()

    def read(self) -> Entries:
        """The journal as it is on disk. Raises Unavailable."""
        self._written = self._journal.read()
        return self._written

    def peek(self) -> Entries:
        """The journal as it is on disk, for who does not wait until nobody changes slices. Raises Unavailable."""
        return self._journal.read()

    def observe(self, cards: Iterable[str]) -> dict[str, tuple[S, ...]]:
        """The slices that are there; a card that does not answer is left out."""
        found: dict[str, tuple[S, ...]] = {}
        for card in cards:
            with suppress(CutRefused):
                found[card] = self._observe(card)
        return found

    def carry_out(self, plan: Plan, *, strict: bool = False) -> Outcome:
        """Write, act, write. A refused step spoils its own place only; ``strict``: CutRefused is raised at the first one, and the
        journal says what was meant. Raises Unavailable where the journal cannot be written."""
        entries, taken = plan.entries, []
        refusals: dict[Place, CutRefused] = {}
        if plan.steps:
            self._write(entries)
        for step in plan.steps:
            if step.place in refusals:
                continue
            try:
                entries = done(entries, step, self._act(step))
                taken.append(step)
            except CutRefused as error:
                if strict:
                    raise
                refusals[step.place] = error
                entries = refused(entries, step)
        self._write(entries)
        return Outcome(entries, tuple(taken), refusals)

    def _write(self, entries: Entries) -> None:
        if entries != self._written:
            self._journal.write(entries)
            self._written = entries


def done(entries: Entries, step: Step, uuid: str = "") -> Entries:
    """The journal after that step; ``uuid`` is what filling returned."""
    if isinstance(step, Remove):
        return tuple(entry for entry in entries if entry.place != step.place)
    if isinstance(step, Create):
        return tuple(replace(e, phase=Phase.MADE) if e.place == step.place else e for e in entries)
    if isinstance(step, Fill):
        return tuple(_filled(entry, uuid) if entry.place == step.place else entry for entry in entries)
    return entries


def _filled(entry: Entry, uuid: str) -> Entry:
    return replace(entry, phase=Phase.MADE, uuid=uuid, was=entry.was if entry.was != uuid else "")


def refused(entries: Entries, step: Step) -> Entries:
    """The journal once the driver has refused that step: what was not begun is forgotten, but for a pod that was given it."""
    if not isinstance(step, Make | Create):
        return entries
    kept = (e if e.place != step.place or e.phase is not Phase.MAKING else replace(e, phase=Phase.LOST) for e in entries)
    return tuple(entry for entry in kept if entry.place != step.place or entry.phase is not Phase.LOST or entry.was)


def known(entries: Iterable[Entry]) -> dict[Place, Entry]:
    """A journal's entries by their places."""
    return {entry.place: entry for entry in entries}


# -- Which pods still hold their slices -------------------------------------------------------------------------------

# The driver is not enough: a CUDA program that does nothing is in no list of processes.


VANISHED: Final = 10.0
"""Seconds for which a pod counts that vanished from the API server before it was seen to end, while the kubelet's record names
it: deleted by force, or with a grace period of zero, its containers run until the kubelet has killed them. The record alone says
too much, because the kubelet takes pods out of it late (ADR 120)."""


class Owners:
    """This node's pods as the watch has shown them, with those that it has taken away."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        self._ended: set[str] = set()
        self._vanished: dict[str, tuple[str, float]] = {}
        self._allocated: frozenset[str] = frozenset()
        self._now = float("-inf")

    def look(self, pods: Iterable[NodePod], now: float) -> None:
        """These pods are there at this moment of a monotonic clock."""
        there = {pod.uid: pod for pod in pods}
        gone = {uid: (name, now) for uid, name in self._running.items() if uid not in there}
        self._vanished = {uid: seen for uid, seen in {**gone, **self._vanished}.items() if uid not in there}
        self._running = {uid: pod.key for uid, pod in there.items() if not pod.finished}
        self._ended |= {uid for uid, pod in there.items() if pod.finished}
        self._now = now

    def ask(self, allocated: AllocatedIds | None) -> None:
        """The kubelet's record as it is now; None where there is none. Who is named there and was never seen vanished while
        nobody watched."""
        self._allocated = frozenset(uid for uid, _ in allocated or ())
        strange = self._allocated - self._running.keys() - self._ended - self._vanished.keys()
        self._vanished |= {uid: (f"of UID {uid}", self._now) for uid in strange}
        self._vanished = {uid: seen for uid, seen in self._vanished.items() if uid in self._allocated}
        self._ended &= self._allocated

    @property
    def vanishing(self) -> float:
        """Seconds until nobody is waited for any more who has vanished."""
        return max((since + VANISHED - self._now for _, since in self._vanished.values()), default=0.0)

    def runs(self, uid: str) -> str:
        """The name of the pod where it is known to be there and not to have ended, else empty."""
        return self._running.get(uid, "")

    def holders(self) -> dict[str, str]:
        """All pods that hold what they were given, by UID."""
        return {uid: name for uid in (*self._running, *self._vanished) if (name := self.holds(uid))}

    def holds(self, uid: str) -> str:
        """The name of the pod where it still holds what it was given, else empty."""
        if uid in self._running:
            return self._running[uid]
        name, since = self._vanished.get(uid, ("", float("-inf")))
        return name if uid in self._allocated and self._now < since + VANISHED else ""
