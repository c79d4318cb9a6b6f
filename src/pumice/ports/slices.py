"""The slices of this machine's cards: what may be cut, what is there, cutting and removing. NVML answers it
(``pumice.adapters.nvml``); NPUs that are cut by templates fit the same words.

Making and removing take two calls each, because a driver takes two: whoever is killed between them leaves half a slice, and
has to be able to say so. Every call blocks, so callers run it in a thread.

The slices (vNPUs) of this machine's NPUs: what is there, making and destroying them. The DCMI library answers it
(``pumice.adapters.dcmi``); whoever starts containers makes slices, and a device plugin sweeps up those that were left.

One call makes or destroys a whole slice, so whoever is killed leaves none in half. Every call blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from pumice.model.errors import Unavailable


class CutRefused(Unavailable):
    """The driver refused a call, or did not answer; the text says what and why."""


class NoRights(CutRefused):
    """This process may not cut cards."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A slice's place: the card's UUID, the driver's name of the profile, and the first of the card's memory slices."""

    card: str
    profile: str
    start: int

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


@dataclass(frozen=True, slots=True)
class SliceProfile:
    """A kind of slice that the card's driver offers: how many memory slices it covers, and where it may begin."""

    name: str
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice that is there. ``uuid`` is what a container is given; empty while only half of it is made, or where somebody
    divided it further (``parts`` above 1). ``busy``: a process is on it. ``nodes``: the device files that open it."""

    place: Place
    size: int
    uuid: str = ""
    parts: int = 1
    busy: bool = False
    nodes: tuple[str, ...] = ()

    @property
    def cover(self) -> int:
        """The memory slices under it, as a mask."""
        return (1 << self.size) - 1 << self.place.start

    @property
    def half(self) -> bool:
        return self.parts == 0


class Phase(StrEnum):
    """The progress of making a slice."""

    MAKING = "making"
    MADE = "made"
    REMOVING = "removing"
    LOST = "lost"
    """It vanished under its pod and cannot be made again; kept until the pod has been told and is gone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One slice in the journal of whoever cuts: what it means to make, has made, or means to remove. ``owner`` is the UID of
    the pod for which it was cut last, ``uuid`` what the slice is known by, and ``was`` what the pod was given where that slice
    vanished under it."""

    place: Place
    owner: str
    phase: Phase
    uuid: str = ""
    was: str = ""


class Journal(Protocol):
    """The journal of one slice manager, on disk. It is written before the driver is called and compared after a crash with
    what is there (``node.slices``)."""

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else on this machine who asks for it cuts meanwhile. Raises Unavailable when that takes too long."""
        ...

    def read(self) -> tuple[Entry, ...]:
        """Return the last record; nothing where it cannot be read, which is logged."""
        ...

    def write(self, entries: Iterable[Entry]) -> None:
        """Durable when it returns; a crash leaves the old text or the new one. Raises Unavailable."""
        ...


class Slices(Protocol):
    """Raises CutRefused on whatever the driver does not do."""

    def profiles(self, card: str) -> tuple[SliceProfile, ...]:
        """The profiles of the card; empty where it is not in MIG mode."""
        ...

    def slices(self, card: str) -> tuple[Slice, ...]:
        """The slices that exist now, whoever created them, in the order of the placements."""
        ...

    def allowed(self, card: str) -> str:
        """Return why this process may not cut the card; empty where nothing speaks against it."""
        ...

    def make(self, place: Place) -> None:
        """The first half: room on the card."""
        ...

    def fill(self, place: Place) -> str:
        """The second half: what programs run on. Returns the slice's UUID."""
        ...

    def drain(self, place: Place) -> None:
        """Take the second half away; refused while a process is on it."""
        ...

    def remove(self, place: Place) -> None:
        """Give the room back; refused while the second half is there."""
        ...


UNOPENED: Final = 0xFFFFFFFFFFFF
"""The container of a slice that none has opened yet; 0 says that it has ended (Huawei's npu-smi reference)."""


class NpuRefused(CutRefused):
    """The driver refused a call, or did not answer; ``code`` is DCMI's."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Vnpu:
    """One slice: the driver's number of it, its template, whether a container or a process has it, and the id of that
    container; what it has of the chip (MB, AI cores), and what of it is used (MB, per cent)."""

    id: int
    template: str
    group: int = 0
    busy: bool = False
    container: int = UNOPENED
    memory: int = 0
    cores: int = 0
    used: int = 0
    load: int = 0


class Vnpus(Protocol):
    """The slices of an NPU. ``chip`` is a card's UUID. Raises NpuRefused on whatever the driver does not do."""

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        """The slices that exist now, whoever created them, in the order of the ids."""
        ...

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        """The driver chooses the group, and the id where none is wanted; returns the id."""
        ...

    def destroy(self, chip: str, ident: int) -> None:
        """Refused while a container or a process has it."""
        ...
