"""An NPU driver and a journal in memory, whose callers are killed at any of their calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pumice.ports.slices import Entry, NpuRefused, Vnpu

CARDS = ("A", "B")
TEMPLATES = {"vir01": 1, "vir02": 2, "vir04": 4}


class Killed(BaseException):
    """The process that was in this call is no more."""


@dataclass
class KilledDriver:
    """Chips of eight cores (``ports.vnpus.Vnpus``). ``lives``: calls until the caller is killed, half of them after the work is
    done."""

    rng: random.Random
    slices: dict[str, dict[int, Vnpu]] = field(default_factory=lambda: {card: {} for card in CARDS})
    lives: int = -1

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        with self.call():
            return tuple(self.slices[chip][ident] for ident in sorted(self.slices[chip]))

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        with self.call():
            here = self.slices[chip]
            if sum(TEMPLATES[s.template] for s in here.values()) + TEMPLATES[template] > 8:
                raise NpuRefused("check aicore num failed")
            ident = next(i for i in range(100, 116) if i not in here) if ident is None else ident
            if ident in here:
                raise NpuRefused("the id is taken")
            here[ident] = Vnpu(ident, template, group=ident % 4)
            return ident

    def destroy(self, chip: str, ident: int) -> None:
        with self.call():
            slice_ = self.slices[chip].get(ident)
            if slice_ is None or slice_.busy:
                raise NpuRefused("busy or gone")
            del self.slices[chip][ident]

    def use(self, chip: str, ident: int, container: int, busy: bool) -> None:
        with self.call():
            self.slices[chip][ident] = replace(self.slices[chip][ident], container=container, busy=busy)

    @contextmanager
    def call(self):
        dies = self.lives == 0
        self.lives -= self.lives >= 0
        if dies and self.rng.random() < 0.5:
            raise Killed
        yield
        if dies:
            raise Killed


@dataclass
class KilledJournal:
    """On a disk that loses nothing that was written."""

    driver: KilledDriver
    entries: tuple[Entry, ...] = ()

    @contextmanager
    def alone(self):
        yield

    def read(self) -> tuple[Entry, ...]:
        return self.entries

    def write(self, entries) -> None:
        kept = tuple(entries)
        with self.driver.call():
            self.entries = kept


Deed = Callable[[], None]


class KilledWorld:
    """One node whose driver a stranger uses, too, and on which whoever acts may be killed. What happens there (``deeds``, with
    their weights), how often somebody is killed and within how many calls, and what begins anew after it, a test says."""

    chance, calls = 0.25, 8

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.driver = KilledDriver(self.rng)
        self.journal = KilledJournal(self.driver)
        self.theirs: dict[tuple[str, int], Vnpu] = {}
        self.count = self.kills = 0

    def deeds(self) -> Mapping[Deed, int]:
        raise NotImplementedError

    def begin_anew(self, killed: Deed) -> None:
        raise NotImplementedError

    def step(self) -> None:
        self.count += 1
        self.driver.lives = self.rng.randrange(self.calls) if self.rng.random() < self.chance else -1
        weights = self.deeds()
        act = self.rng.choices(list(weights), list(weights.values()))[0]
        try:
            act()
        except Killed:
            self.kills += 1
            self.begin_anew(act)
        except NpuRefused:
            pass
        self.driver.lives = -1
        self.check()

    def check(self) -> None:
        for (card, ident), slice_ in self.theirs.items():
            assert self.driver.slices[card].get(ident) == slice_, f"somebody else's slice {ident} of {card} was touched"
