"""Values that the screen of ``pumice top`` has of a machine at one moment, and what it remembers of earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1 << 20
POINTS: Final = 400
"""Remembered of each figure: as many as a graph over 200 columns shows, for a character holds two."""


@dataclass(frozen=True, slots=True)
class CardSample:
    """A card now. ``used`` and ``total`` are bytes, ``busy`` percent, None where the driver does not tell; ``booked_memory`` is
    MiB, ``booked_cores`` percent."""

    uuid: str
    index: int
    model: str
    used: int
    total: int
    busy: int | None
    booked_memory: int = 0
    booked_cores: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A program's part of one card: bytes and percent in use, None where nobody knows; limits in MiB and percent, 0 for none."""

    uuid: str
    card: int
    memory: int | None
    cores: int | None
    memory_limit: int = 0
    cores_limit: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """A share, or a process that computes on a card without one, whose ``share`` is empty. ``pod`` is the UID of the pod that it
    runs in, ``note`` why its figures are not known."""

    key: str
    share: str
    pid: int
    user: str
    parts: tuple[Part, ...]
    command: str
    pod: str = ""
    started: float = 0.0
    waits: bool = False
    note: str = ""

    @property
    def memory(self) -> int:
        """Bytes on all of its cards."""
        return sum(part.memory or 0 for part in self.parts)

    @property
    def cores(self) -> int:
        """Percent, of all of its cards together."""
        return sum(part.cores or 0 for part in self.parts)

    @property
    def near_limit(self) -> float:
        """The part of a limit that is in use, of the limit that is nearest."""
        nearest = 0.0
        for part in self.parts:
            if part.memory_limit:
                nearest = max(nearest, (part.memory or 0) / (part.memory_limit * MIB))
            if part.cores_limit:
                nearest = max(nearest, (part.cores or 0) / part.cores_limit)
        return nearest


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the machine, at a Unix time. ``where`` names it, ``trouble`` is why the figures are older than the look."""

    at: float
    cards: tuple[CardSample, ...] = ()
    programs: tuple[Program, ...] = ()
    where: str = ""
    trouble: str = ""


@dataclass(slots=True)
class History:
    """The last points of each figure as parts of 1, None where it was not known. What is gone is forgotten."""

    points: dict[tuple[str, ...], deque[float | None]] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Remember a look. Figures that it does not have any more are forgotten."""
        totals = {card.uuid: card.total for card in sample.cards}
        now = dict([*_of_cards(sample.cards), *_of_programs(sample.programs, totals)])
        self.points = {key: self.points.get(key, deque(maxlen=POINTS)) for key in now}
        for key, value in now.items():
            self.points[key].append(value)

    def of(self, *key: str) -> list[float | None]:
        """Return the points of a figure, the latest last."""
        return list(self.points.get(key, ()))


def _of_cards(cards: Iterable[CardSample]) -> Iterator[tuple[tuple[str, ...], float | None]]:
    for card in cards:
        yield (card.uuid, "memory"), card.used / card.total if card.total else None
        yield (card.uuid, "cores"), None if card.busy is None else card.busy / 100


def _of_programs(programs: Iterable[Program], totals: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], float | None]]:
    for program in programs:
        for part in program.parts:
            most = part.memory_limit * MIB or totals.get(part.uuid, 0)
            yield (program.key, part.uuid, "memory"), part.memory / most if part.memory is not None and most else None
            yield (program.key, part.uuid, "cores"), None if part.cores is None else part.cores / (part.cores_limit or 100)
