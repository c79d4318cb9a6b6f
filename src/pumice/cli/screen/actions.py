"""Actions of the screen of ``pumice top`` on programs: by the way of ``pumice limit``, and as the one who is at the screen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pumice.adapters.bookings.book import Booking
from pumice.cli.screen.polling import Machine
from pumice.cli.screen.samples import Program
from pumice.local.limits import change_by, in_words, wanted
from pumice.local.permissions import Target, log, send, targets
from pumice.local.place import Place
from pumice.model.errors import BadInput, PumiceError, Unavailable


@dataclass(frozen=True, slots=True)
class ChosenProgram:
    """The processes of a program as they were when somebody chose it."""

    name: str
    share: str
    command: str
    to: tuple[Target, ...]
    directory: Path

    @property
    def title(self) -> str:
        """The program to be signalled."""
        return f"{self.name}: {self.command}"

    def question(self, number: signal.Signals) -> str:
        """Return what is asked before it is sent."""
        pids = ", ".join(str(target.pid) for target in self.to)
        return f"Send {number.name} to {self.name}, process{'es' if len(self.to) > 1 else ''} {pids}?\n{self.command}"


@dataclass(frozen=True, slots=True)
class ChosenShare:
    """A share whose limits somebody sees and wants others for."""

    booking: Booking
    place: Place

    @property
    def title(self) -> str:
        """The program whose limits they are."""
        cards = ", ".join(str(card.index) for card in self.booking.cards)
        return f"{self.booking.id} on card {cards}: {self.booking.line}"

    @property
    def memory(self) -> str:
        """The present limit as one would write it."""
        return _joined([str(device.memory) for device in self.booking.devices])

    @property
    def cores(self) -> str:
        """The present limit as one would write it."""
        return _joined([str(device.cores) for device in self.booking.devices])

    def question(self, memory: str, cores: str) -> str:
        """Return what is asked before it is done. Raises BadInput on what cannot be meant."""
        wanted(self.booking, memory, cores)
        now = f"{self.memory} MiB and {_percent(self.cores)}"
        unit = "" if any(letter.isalpha() or letter == "%" for letter in memory) else " MiB"
        return f"Limit {self.booking.id} to {memory}{unit} and {_percent(cores)}?\nIt has {now} now."


def _joined(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else ",".join(values)


def _percent(cores: str) -> str:
    return "no core limit" if cores.strip().rstrip("%") == "0" else f"{cores.strip().rstrip('%')} % of the cores"


class Actions:
    """Signals and limits for the programs of a machine's last look."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def aim(self, program: Program) -> ChosenProgram:
        """Return the processes of a program as they are now. Raises BadInput where they have ended."""
        share = self._machine.shares.get(program.key)
        pids = share.pids if share is not None else () if program.share else (program.pid,)
        to = targets(pids)
        if not to:
            raise BadInput(f"{program.share or program.pid}: no process of it is known any more")
        directory = share.place.directory if share is not None else self._directory()
        name = program.share or f"process {program.pid}"
        return ChosenProgram(name, program.share or str(program.pid), program.command, to, directory)

    def send(self, chosen: ChosenProgram, number: signal.Signals) -> str:
        """Send it, log it, and return a sentence on it. Raises PumiceError."""
        me = os.geteuid()
        pids = _pids(target.pid for target in chosen.to)
        log(chosen.directory, me, number.name, chosen.share, f"to be sent to {pids}", time.time())
        try:
            sent = send(number, chosen.to, me)
        except PumiceError as error:
            log(chosen.directory, me, number.name, chosen.share, f"refused: {error}", time.time())
            raise
        log(chosen.directory, me, number.name, chosen.share, f"sent to {_pids(sent)}" if sent else "all have ended", time.time())
        return f"{number.name} was sent to {_pids(sent)}" if sent else f"{chosen.name}: all of its processes have ended"

    def limits(self, program: Program) -> ChosenShare:
        """Return the share with its limits as they are seen. Raises BadInput where a program has none of its own."""
        share = self._machine.shares.get(program.key)
        if share is None:
            raise BadInput(f"process {program.pid} has no share: only programs of `pumice run` have limits that can be changed")
        if share.place != self._machine.place:
            on = f" --emulated {share.place.machine}" if share.place.machine else ""
            raise BadInput(f"{program.share} is on another machine: pumice limit {program.share}{on}")
        return ChosenShare(share.booking, share.place)

    def change(self, chosen: ChosenShare, memory: str, cores: str) -> str:
        """Change the limits as ``pumice limit`` does, and return its sentence. Raises PumiceError."""
        if self._machine.cards is None:
            raise Unavailable("no driver answers, so nobody knows what the card has left")
        request = wanted(chosen.booking, None if memory == chosen.memory else memory, cores)
        changed = change_by(os.geteuid(), chosen.booking, chosen.place, request, self._machine.cards.facts())
        return "; ".join(in_words(changed, chosen.booking))

    def _directory(self) -> Path:
        """Return where a signal to a process without a share is logged: beside the records of its card."""
        if self._machine.place is None or not self._machine.place.directory.is_dir():
            raise BadInput("there are no books of these cards, beside which a signal could be logged")
        return self._machine.place.directory


def _pids(pids: Iterable[int]) -> str:
    return ", ".join(map(str, pids))
