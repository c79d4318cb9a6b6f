"""Looks at this machine and at a cluster for the screen of ``pumice top``, each in a thread of its own: a driver or an API server
that hangs leaves the screen alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pumice.adapters.nvml import NvmlCards
from pumice.adapters.owners import pod_of
from pumice.cli.screen.samples import CardSample, Part, Program, Sample
from pumice.local.permissions import name_of, owner_of
from pumice.local.place import Place
from pumice.local.shares import Share, shares
from pumice.model.errors import PumiceError
from pumice.ports.cards import CardProcess, CardReading


@dataclass(slots=True)
class Machine:
    """The cards and programs of this machine. ``shares`` are those of the last look, by the key of their program."""

    where: Sequence[Place]
    cards: NvmlCards | None
    place: Place | None
    shares: dict[str, Share] = field(default_factory=dict)
    facts: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """User, pod and command by pid, of the processes of the last look."""

    def look(self, now: float) -> Sample:
        """Return what is there now. What cannot be read costs itself alone, and is said."""
        trouble = ""
        found: list[Share] = []
        readings: tuple[CardReading, ...] = ()
        processes: tuple[CardProcess, ...] = ()
        try:
            found = shares(self.where)
            if self.cards is not None:
                readings, processes = self.cards.readings(), self.cards.processes()
        except PumiceError as error:
            trouble = str(error).splitlines()[0]
        except OSError as error:
            trouble = f"{error.filename or 'this machine'}: {error.strerror}"
        self.shares = {_key(share): share for share in found}
        booked = {pid for share in found for pid in share.pids}
        strangers: dict[int, list[CardProcess]] = {}
        for process in processes:
            if process.pid not in booked:
                strangers.setdefault(process.pid, []).append(process)
        before, self.facts = self.facts, {}
        for pid in (*booked, *strangers):
            self.facts[pid] = before.get(pid) or _facts(pid)
        indices = {reading.uuid: reading.index for reading in readings}
        programs = [*(self._of_share(share) for share in found),
                    *(self._of_stranger(pid, on, indices) for pid, on in strangers.items())]  # fmt: skip
        where = str(self.place.machine) if self.place is not None and self.place.machine is not None else ""
        here = [share for share in found if share.place == self.place]
        return Sample(now, tuple(_card(reading, here) for reading in readings), tuple(programs), where, trouble)

    def _of_share(self, share: Share) -> Program:
        booking = share.booking
        pid = share.pids[0] if share.pids else booking.pid
        user, pod, _ = self.facts.get(pid, ("", "", ""))
        parts = tuple(
            Part(card.device.uuid, card.card.index, None if share.note else card.memory,
                 None if share.note or not card.device.cores else card.cores, card.device.memory, card.device.cores)
            for card in share.cards
        )  # fmt: skip
        return Program(_key(share), booking.id, pid, user or name_of(booking.user), parts, booking.line, pod, booking.created,
                       share.launches_wait, share.note)  # fmt: skip

    def _of_stranger(self, pid: int, on: Sequence[CardProcess], indices: dict[str, int]) -> Program:
        user, pod, command = self.facts[pid]
        parts = tuple(Part(process.card, indices.get(process.card, -1), process.memory or None, None) for process in on)
        return Program(f"pid {pid}", "", pid, user, parts, command, pod)


def _key(share: Share) -> str:
    return f"{share.place.directory} {share.booking.id}"


def _facts(pid: int) -> tuple[str, str, str]:
    owner = owner_of(pid)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()[:4096].decode("utf-8", "replace").split("\0")
    except OSError:
        words = []
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(words).strip())
    return "" if owner is None else name_of(owner), pod_of(pid), line[:60]


def _card(reading: CardReading, here: Sequence[Share]) -> CardSample:
    held = [device for share in here if (device := share.booking.on(reading.uuid))]
    return CardSample(
        reading.uuid, reading.index, reading.name.removeprefix("NVIDIA "), reading.memory_used, reading.memory_total,
        reading.utilization if reading.utilization >= 0 else None, sum(device.memory for device in held),
        sum(device.cores for device in held),
    )  # fmt: skip


class Poller(threading.Thread):
    """Looks again and again, so many seconds apart, while it is wanted. Ends with the program, in the middle of a look too."""

    def __init__(self, look: Callable[[], None], every: float) -> None:
        super().__init__(daemon=True)
        self._look, self._every = look, every
        self.wanted, self.over, self._soon = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        """Look until it is over."""
        while not self.over.is_set():
            self.wanted.wait()
            self._soon.clear()
            self._look()
            self._soon.wait(self._every)

    def soon(self) -> None:
        """Look again without waiting."""
        self._soon.set()

    def end(self) -> None:
        """Let it end after its look."""
        self.over.set()
        self.wanted.set()
        self._soon.set()
