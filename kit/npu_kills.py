"""An NPU driver and a journal in memory, whose callers are killed at any of their calls."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pumice.ports.slices import Entry
from pumice.ports.vnpus import NpuRefused, Vnpu

CARDS = ("A", "B")
TEMPLATES = {"vir01": 1, "vir02": 2, "vir04": 4}


class Killed(BaseException):
    """The process that was in this call is no more."""


@dataclass
class KilledDriver:
    """Chips of eight cores (``ports.vnpus.Vnpus``). ``lives``: calls until the caller is killed, half of them after the work is
    done."""

    dice: random.Random
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
        if dies and self.dice.random() < 0.5:
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
