"""Machine directories: making one, opening one, and changing the machine while it runs.

``DIR/state`` is the machine: a file of fixed size that every process maps. It appears by one rename, so a directory
either holds a whole machine or none.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec import Struct

from pumice.adapters.regular_files import replacing
from pumice.model.amount import MIB
from pumice_lab.machine import layout
from pumice_lab.machine.native import MachineError, control, library_path, runtime_libraries
from pumice_lab.machine.tools import place_mps, place_tool, renew_tools
from pumice_lab.machine.witness import Witness, read_witness

if TYPE_CHECKING:
    from pumice_lab.machine.model import FaultModel, MachineModel


class SetFault(Struct, frozen=True):
    """A fault as it stands in the machine, with how many calls it saw and how many it answered."""

    fault: FaultModel
    calls: int
    hits: int


class RaisedXid(Struct, frozen=True):
    """An Xid event that was raised, oldest first in ``Machine.xids()``."""

    card: int
    xid: int
    time_ns: int


def create(model: MachineModel, directory: Path | str) -> Machine:
    """Makes the machine in ``directory`` (made if missing) and opens it.

    Raises ``MachineError`` when a machine is there already, or when the disk is full; then nothing of it remains.
    """
    directory = Path(directory)
    final = directory / "state"
    if final.exists():
        raise MachineError(f"{directory}: there is an emulated machine already; remove the directory first")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(final, 0o666, durable=False) as file:  # every process of the machine, whatever its user
            # Every block now: a full disk must be an error here, not a SIGBUS in a program that maps the file later.
            os.posix_fallocate(file.fileno(), 0, layout.SIZE)
            with mmap.mmap(file.fileno(), layout.SIZE) as memory:
                _write(model, memory)
                memory.flush()
            place_tool(directory, "nvidia-smi", "the cards")
            place_mps(directory)
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise MachineError(f"{directory}: the emulated machine cannot be made: {reason}") from None
    return open_machine(directory)


def _write(model: MachineModel, memory: mmap.mmap) -> None:
    state = layout.State.from_buffer(memory)
    from pumice_lab.machine.fill import (
        fill_state,  # with the reader of models, which a machine that is there does without
    )

    fill_state(state, model)
    state.magic = layout.MAGIC  # last: without it the file is no machine
    del state  # ctypes holds the mapping open


def open_machine(directory: Path | str) -> Machine:
    """The machine in ``directory``; raises ``MachineError`` when there is none that this version can use."""
    directory = Path(directory)
    path = directory / "state"
    try:
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(24)
            if problem := _unusable(head, size):
                raise MachineError(f"{directory}: {problem}")
            memory = mmap.mmap(file.fileno(), layout.SIZE)
    except FileNotFoundError:
        raise MachineError(f"{directory}: no emulated machine here; make one with `pumice machine create`") from None
    except OSError as error:
        raise MachineError(f"{directory}: the emulated machine cannot be opened: {error.strerror}") from None
    return Machine(directory, memory)


_ANEW = "remove the directory and make it again, by `pumice machine create` or, where --emulated made it, by the same command"


def _unusable(head: bytes, size: int) -> str:
    """Return why a state file that begins with ``head`` cannot be used, or nothing."""
    if len(head) < 24 or head[:8] == bytes(8):
        return f"the emulated machine is half written; {_ANEW}"
    magic, version, state_size = int.from_bytes(head[:8], "little"), head[8:12], int.from_bytes(head[16:24], "little")
    if magic != layout.MAGIC:
        return "the file `state` is not an emulated machine's"
    if (number := int.from_bytes(version, "little")) != layout.VERSION:
        age = "an older" if number < layout.VERSION else "a newer"
        return f"the emulated machine is of {age} version ({number}, this is {layout.VERSION}); {_ANEW}"
    if size < layout.SIZE or state_size != layout.SIZE:
        return f"the emulated machine is cut short ({size} of {layout.SIZE} bytes); {_ANEW}"
    return ""


class Clock:
    """The machine's time: its own when virtual, else this computer's."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def virtual(self) -> bool:
        return bool(self._machine.state.clock.mode)

    def advance(self, ns: int) -> None:
        """Pushes virtual time on from outside; raises ``MachineError`` in real time."""
        if not self.virtual:
            raise MachineError(f"{self._machine.directory}: the machine lives in real time, which nobody can push")
        self._machine.call("pumice_machine_advance_ns", ns)

    def now_ns(self) -> int:
        """Virtual time, or CLOCK_MONOTONIC."""
        return int(self._machine.state.clock.virtual_ns) if self.virtual else time.monotonic_ns()


class Machine:
    """An open machine. ``state`` is the shared state itself; use it for reading."""

    def __init__(self, directory: Path, memory: mmap.mmap) -> None:
        self.directory = directory
        self._memory = memory
        self.state = layout.State.from_buffer(memory)
        self.clock = Clock(self)

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps the state, which must not be used afterwards; cards still held keep the mapping."""
        if hasattr(self, "state"):
            del self.state
            with contextlib.suppress(BufferError):
                self._memory.close()

    def environment(self) -> dict[str, str]:
        """Return the environment of a program on this machine; the lists of paths are to be put in front."""
        renew_tools(self.directory)
        return {
            "PUMICE_MACHINE": str(self.directory.resolve()),
            "LD_LIBRARY_PATH": library_path(int(self.state.cuda_version)),
            "LD_PRELOAD": runtime_libraries(),
            "PATH": str(self.directory.resolve() / "bin"),
        }

    def witness(self) -> Witness:
        """Bytes and busy time of every process on every card, after taking out processes that died."""
        self.call("pumice_machine_reap")
        return read_witness(self.state)

    def peak(self, card: int) -> int:
        """The most bytes that all processes together have held of the card at once: what tests of limits go by."""
        return int(self.card(card).peak_bytes)

    def set_stranger_memory(self, card: int, mib: int) -> None:
        """``mib`` of the card are in use by processes that nobody can see."""
        row = self.card(card)
        most = (row.memory_bytes - row.reserved_bytes) // MIB
        if not 0 <= mib <= most:
            raise MachineError(f"card {card}: strangers can use 0 to {most} MiB, not {mib}")
        row.stranger_bytes = mib * MIB

    def lose_card(self, card: int, lost: bool = True) -> None:
        """The card falls off the bus, or comes back."""
        self.card(card).lost = lost

    def raise_xid(self, card: int, xid: int) -> None:
        """An Xid error of the driver on the card, seen by everybody who waits for events."""
        self.card(card)
        self.call("pumice_machine_raise_xid", card, xid)

    def set_fault(self, fault: FaultModel) -> None:
        """From now on calls of ``fault.call`` meet it; they are counted from this moment."""
        self.call(
            "pumice_machine_set_fault",
            fault.call.encode(), fault.code, fault.first, fault.count, fault.delay_ns, int(fault.crash),
        )  # fmt: skip

    def clear_faults(self) -> None:
        self.call("pumice_machine_clear_faults")

    def faults(self) -> tuple[SetFault, ...]:
        return tuple(self._faults())

    def xids(self) -> tuple[RaisedXid, ...]:
        """The last 64 Xid events, oldest first."""
        raised = sorted((row for row in self.state.xids if row.sequence), key=lambda row: row.sequence)
        return tuple(RaisedXid(row.card, row.xid, row.time_ns) for row in raised)

    def card(self, index: int) -> layout.Card:
        """The shared state of one card; raises ``MachineError`` when the machine has none of that number."""
        if not 0 <= index < self.state.cards:
            raise MachineError(f"card {index}: the machine has cards 0 to {self.state.cards - 1}")
        found: layout.Card = self.state.card[index]
        return found

    def cards(self) -> tuple[layout.Card, ...]:
        return tuple(self.state.card[: self.state.cards])

    def call(self, function: str, *arguments: object) -> int:
        """A control call of the machine's library on this machine; a refusal becomes a ``MachineError``."""
        ctypes.set_errno(0)
        result = getattr(control(), function)(os.fsencode(self.directory), *arguments)
        if result < 0:
            reason = os.strerror(ctypes.get_errno()) if ctypes.get_errno() else "refused"
            raise MachineError(f"{self.directory}: {function.removeprefix('pumice_machine_')}: {reason}")
        return int(result)

    def _faults(self) -> Iterator[SetFault]:
        from pumice_lab.machine.model import FaultModel

        for row in self.state.faults:
            if row.used:
                fault = FaultModel(row.function.decode(), row.code, row.first, row.count, row.delay_ns, bool(row.crash))
                yield SetFault(fault, row.calls, row.hits)
