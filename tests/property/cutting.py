"""A cutter that is killed at any of its calls, in one process: what a test needs to ask what it left behind."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pumice.adapters.nvml.slices import NvmlSlices
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter, Lost
from pumice.ports.slices import Entry, Phase, Place, Slice, SliceProfile


class Killed(BaseException):
    """The process is dead from here on; nothing in it may notice."""


@dataclass
class Fate:
    """How many more calls the process lives through; the last one is carried out or not. Never ends while None."""

    calls: int | None = None
    carried_out: bool = False

    def passes(self) -> bool:
        """Return whether the call is carried out. Raises Killed where the process ends before it."""
        if self.calls is None:
            return False
        self.calls -= 1
        if self.calls == 0 and not self.carried_out:
            raise Killed
        return self.calls == 0

    def after(self, last: bool) -> None:
        if last:
            raise Killed


@dataclass
class MortalSlices:
    """The driver as a process meets it that will die."""

    driver: NvmlSlices
    fate: Fate

    def profiles(self, card: str) -> tuple[SliceProfile, ...]:
        return self.driver.profiles(card)

    def slices(self, card: str) -> tuple[Slice, ...]:
        return self.driver.slices(card)

    def allowed(self, card: str) -> str:
        return self.driver.allowed(card)

    def make(self, place: Place) -> None:
        last = self.fate.passes()
        self.driver.make(place)
        self.fate.after(last)

    def fill(self, place: Place) -> str:
        last = self.fate.passes()
        uuid = self.driver.fill(place)
        self.fate.after(last)
        return uuid

    def drain(self, place: Place) -> None:
        last = self.fate.passes()
        self.driver.drain(place)
        self.fate.after(last)

    def remove(self, place: Place) -> None:
        last = self.fate.passes()
        self.driver.remove(place)
        self.fate.after(last)


@dataclass
class MortalJournal:
    """The files on disk outlive the process."""

    fate: Fate = field(default_factory=Fate)
    entries: tuple[Entry, ...] = ()

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self) -> tuple[Entry, ...]:
        return self.entries

    def write(self, entries: Iterable[Entry]) -> None:
        last = self.fate.passes()
        self.entries = tuple(entries)
        self.fate.after(last)


class CuttingWorld:
    """Cards in MIG mode, pods that come, run and end, somebody who cuts by hand, and boots. ``check`` says what must hold
    whenever a cutter has done its work."""

    def __init__(self, driver: NvmlSlices, cards: list[str], rng: random.Random) -> None:
        self.driver, self.cards, self.rng = driver, cards, rng
        self.fate = Fate()
        self.journal = MortalJournal(self.fate)
        self.pods: dict[str, dict[Place, str]] = {}
        """Pods that run, with what they were given."""
        self.strangers: dict[Place, str] = {}
        self.kills = self.cuts = self.refusals = self.boots = 0
        self._numbers = iter(range(10**9))

    def cutter(self) -> Cutter:
        return Cutter(MortalSlices(self.driver, self.fate), self.journal)

    def holds(self, uid: str) -> str:
        return uid if uid in self.pods else ""

    def seen(self) -> dict[Place, Slice]:
        return {slice_.place: slice_ for card in self.cards for slice_ in self.driver.slices(card)}

    def any_place(self, card: str) -> Place:
        profile = self.rng.choice([p for p in self.driver.profiles(card) if "+me" not in p.name])
        return Place(card, profile.name, self.rng.choice(profile.starts))

    def step(self) -> None:
        """One thing happens."""
        what = self.rng.choices(("pod", "end", "stranger", "leaves", "boot"), (60, 25, 8, 5, 2))[0]
        getattr(self, f"_{what}")()

    def _pod(self) -> None:
        uid = f"pod-{next(self._numbers)}"
        card = self.rng.choice(self.cards)
        places = list({self.any_place(card) for _ in range(self.rng.choice((1, 1, 1, 2, 3)))})
        before = self.seen()
        self.fate.calls = self.rng.choice((None, *range(1, 12)))
        self.fate.carried_out = self.rng.random() < 0.5
        try:
            answer = self.cutter().cut(places, uid, lambda other: other if other in (*self.pods, uid) else "")
        except Killed:
            self.kills += 1
            self._meanwhile()
            self.restart()
            return
        self.fate.calls = None
        possible = self._possible(places, before)
        if isinstance(answer, str):
            assert not possible, f"{answer}: {places} on {before}"
            self.refusals += 1
        else:
            assert possible
            self.cuts += 1
            assert set(answer.slices) == set(places)
            self.pods[uid] = {place: slice_.uuid for place, slice_ in answer.slices.items()}
        self.check()

    def _possible(self, places: list[Place], before: dict[Place, Slice]) -> bool:
        """Return whether the places can be had, by nothing but who holds what: said a second time, slice by slice."""
        held = {place for given in self.pods.values() for place in given} | set(self.strangers)
        covers = [self._cells(place) for place in places]
        if sum(map(len, covers)) > len(set().union(*covers)):
            return False
        mine = set().union(*covers)
        return not any(place in held and place.card == places[0].card and self._cells(place) & mine for place in before)

    def _cells(self, place: Place) -> set[int]:
        size = next(p.size for p in self.driver.profiles(place.card) if p.name == place.profile)
        return set(range(place.start, place.start + size))

    def _end(self) -> None:
        if self.pods:
            del self.pods[self.rng.choice(sorted(self.pods))]

    def _meanwhile(self) -> None:
        """Play the events while no slice is created."""
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            getattr(self, self.rng.choice(("_end", "_stranger", "_leaves", "_boot")))()

    def _stranger(self) -> None:
        place = self.any_place(self.rng.choice(self.cards))
        if any(entry.place == place and entry.phase is Phase.MAKING for entry in self.journal.entries):
            return  # cannot be told from our own (ADR 58)
        cells = self._cells(place)
        if not any(other.card == place.card and self._cells(other) & cells for other in self.seen()):
            self.driver.make(place)
            self.strangers[place] = self.driver.fill(place)

    def _leaves(self) -> None:
        if self.strangers:
            place = self.rng.choice(sorted(self.strangers))
            del self.strangers[place]
            self.driver.drain(place)
            self.driver.remove(place)

    def _boot(self) -> None:
        """All slices are gone; pods are started again by the kubelet's record."""
        self.boots += 1
        self.wipe()
        self.restart()

    def wipe(self) -> None:
        for place, slice_ in self.seen().items():
            if not slice_.half:
                self.driver.drain(place)
            self.driver.remove(place)
        self.strangers.clear()

    def restart(self) -> None:
        """A new process, which may be killed again and again while it puts things right."""
        for attempt in range(4):
            self.fate.calls = self.rng.randint(1, 6) if attempt < 3 and self.rng.random() < 0.5 else None
            self.fate.carried_out = self.rng.random() < 0.5
            try:
                self._fail(self.cutter().start(self.cards, self.holds))
            except Killed:
                self.kills += 1
                continue
            self.fate.calls = None
            self.check()
            return

    def _fail(self, lost: list[Lost]) -> None:
        for one in lost:
            self.pods.pop(one.owner, None)

    def check(self) -> None:
        """Plan equals reality, nobody else's slice was touched, no running pod lost its own without a word."""
        seen = self.seen()
        for entry in (e for e in self.journal.entries if e.phase is not Phase.LOST):
            assert entry.phase is Phase.MADE, entry
            assert seen[entry.place].uuid == entry.uuid, entry
            assert not entry.was or entry.owner not in self.pods, f"nobody was told: {entry}"
        reported = {entry.place for entry in self.journal.entries if entry.phase is not Phase.LOST}
        assert reported.isdisjoint(self.strangers)
        assert set(seen) == reported | set(self.strangers)
        assert {place: seen[place].uuid for place in self.strangers} == self.strangers
        for uid, given in self.pods.items():
            for place, uuid in given.items():
                assert seen[place].uuid == uuid, (uid, place)
