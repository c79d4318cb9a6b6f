"""The NPUs of an emulated machine: making them, and what a test does to them.

What a driver decides is decided in ``libdcmi.so``.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import Structure, c_char, c_int32, c_uint32, c_uint64, sizeof
from dataclasses import dataclass
from pathlib import Path

from pumice.adapters.regular_files import replace_file
from pumice.model.hardware.npu import DriverChip, Size, driver_chips
from pumice.ports.slices import UNOPENED
from pumice_lab.machine.document import nearest
from pumice_lab.machine.layout import words
from pumice_lab.machine.native import MachineError, library_dir
from pumice_lab.machine.tools import place_tool, renew_tools

DRIVER = "25.5.0"
_DIES = uuid.UUID("5e5c4f0c-8f1d-4e7c-9b0e-70756d696365")


@dataclass(frozen=True, slots=True)
class NpuFaultModel:
    """Calls number ``first``.. of ``call`` (``count`` of them, 0: for ever) answer ``code``, or kill the caller: ``before``
    anything was done, or ``after``."""

    call: str
    code: int = 0
    first: int = 1
    count: int = 1
    crash: str = ""


def create_npus(chips: Sequence[str], directory: Path | str, name: str = "machine") -> None:
    """Put NPUs of these types into the machine of ``directory`` (made if missing). Raises ``MachineError``."""
    directory = Path(directory)
    final = directory / "npus"
    if final.exists():
        raise MachineError(f"{directory}: there are emulated NPUs already; remove the directory first")
    if not 1 <= len(chips) <= CHIPS:
        raise MachineError(f"{directory}: a machine has 1 to {CHIPS} NPUs, not {len(chips)}")
    state = NpuState(version=VERSION, size=sizeof(NpuState), chip_count=len(chips), driver_version=DRIVER.encode())
    for number, word in enumerate(chips):
        if word not in driver_chips():
            raise MachineError(f"{word}: no such NPU{nearest(word, driver_chips())}")
        _fill(state.chips[number], driver_chips()[word], number, name)
    state.magic = MAGIC
    try:
        directory.mkdir(parents=True, exist_ok=True)
        place_tool(directory, "npu-smi", "the NPUs")
        replace_file(final, bytes(state), 0o666, durable=False)  # every process of the machine, whatever its user
    except OSError as error:
        raise MachineError(f"{directory}: the emulated NPUs cannot be made: {error.strerror}") from None


def _fill(row: NpuChip, chip: DriverChip, number: int, machine: str) -> None:
    row.name, row.product = chip.name.encode(), chip.product.encode()
    row.bus_id = f"0000:{0x81 + number:02X}:00.0".encode()
    die = uuid.uuid5(_DIES, f"{machine}/{number}").bytes + number.to_bytes(4, "big")
    row.die[:5] = [int.from_bytes(die[at : at + 4], "big") for at in range(0, 20, 4)]
    row.card, row.physical = number, number
    row.groups, row.grouped, row.slices_most, row.hbm = chip.groups, chip.grouped, chip.slices, chip.hbm
    row.power_dw, row.temperature = 128, 40
    _size(row.size, chip.size)
    row.template_count = len(chip.templates)
    for template, (name, size) in zip(row.templates, chip.templates, strict=False):
        template.name = name.encode()
        _size(template.size, size)


def _size(row: NpuSize, size: Size) -> None:
    row.cores, row.cpus, row.memory_mib = size.cores, size.cpus, size.memory
    row.media[:] = size.media


def has_npus(directory: Path | str) -> bool:
    return Path(directory, "npus").exists()


def npu_environment(directory: Path | str) -> dict[str, str]:
    """Return the environment of a program on these NPUs; PATH and LD_LIBRARY_PATH are to be put in front."""
    place = Path(directory).resolve()
    renew_tools(place)
    return {"PUMICE_MACHINE": str(place), "LD_LIBRARY_PATH": str(library_dir()), "PATH": str(place / "bin")}


def read_npus(directory: Path | str) -> NpuState:
    """A copy of the shared state. Raises ``MachineError``."""
    try:
        content = Path(directory, "npus").read_bytes()
    except OSError as error:
        raise MachineError(f"{directory}: no emulated NPUs here: {error.strerror}") from None
    if len(content) < sizeof(NpuState):
        raise MachineError(f"{directory}: the file `npus` is cut short; make the machine again")
    state = NpuState.from_buffer_copy(content)
    if state.magic != MAGIC or state.version != VERSION:
        raise MachineError(f"{directory}: the file `npus` is not of this version; make the machine again")
    return state


@contextmanager
def open_npus(directory: Path | str) -> Iterator[NpuState]:
    """The shared state for changing it, locked against everybody else while the block runs. Raises ``MachineError``."""
    read_npus(directory)
    with Path(directory, "npus").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        memory = mmap.mmap(file.fileno(), sizeof(NpuState))
        try:
            yield NpuState.from_buffer(memory)
        finally:
            with suppress(BufferError):  # rows that the caller still holds keep the mapping
                memory.close()


def end_containers(directory: Path | str, running: Collection[int]) -> None:
    """End the containers that have slices, but for these, as the driver finds it when a machine comes up again."""
    with open_npus(directory) as state:
        for chip in state.chips:
            for row in chip.slices:
                if row.used and row.container not in (0, UNOPENED, *running):
                    row.container = 0


def set_health(directory: Path | str, chip: int, health: int, *codes: int) -> None:
    """0 OK, 1 warning, 2 error, 3 critical, with the error codes that go with it."""
    with open_npus(directory) as state:
        row = state.chips[chip]
        row.health, row.error_count = health, len(codes)
        row.errors[: len(codes)] = codes


def lose_chip(directory: Path | str, chip: int, gone: bool = True) -> None:
    """The chip falls off the bus, or comes back."""
    with open_npus(directory) as state:
        state.chips[chip].gone = gone


def set_npu_fault(directory: Path | str, fault: NpuFaultModel) -> None:
    """From now on calls of ``fault.call`` meet it; they are counted from this moment."""
    with open_npus(directory) as state:
        row = next(row for row in state.faults if not row.used)
        row.function, row.code, row.first, row.count = fault.call.encode(), fault.code, fault.first, fault.count
        row.crash, row.calls, row.used = {"": 0, "before": 1, "after": 2}[fault.crash], 0, 1


def clear_npu_faults(directory: Path | str) -> None:
    with open_npus(directory) as state:
        ctypes.memset(ctypes.addressof(state.faults), 0, sizeof(state.faults))


# -- The layout of a machine's NPUs: a mirror of `lab/native/include/machine/npu.h` ----------------------------------

# ``lab/tests/unit/machine/test_npu_layout.py`` compares it with the C compiler's.

MAGIC = 0x315355504E554E50
VERSION = 1
CHIPS = 16
TEMPLATES = 16
SLICES = 16
PROCESSES = 64
ERRORS = 8
FAULTS = 16
UNITS = 6

_u32 = c_uint32
_u64 = c_uint64


class NpuSize(Structure):
    _fields_ = [*words("cores cpus"), ("memory_mib", _u64), ("media", _u32 * UNITS)]


class NpuTemplate(Structure):
    _fields_ = [("name", c_char * 32), ("size", NpuSize)]


class NpuSlice(Structure):
    _fields_ = [*words("used id template group"), *words("container generation busy_until_ns busy_ns", _u64)]


class NpuProcess(Structure):
    _fields_ = [*words("pid slice"), *words("start_ticks bytes", _u64)]


class NpuChip(Structure):
    _fields_ = [
        *words("name product bus_id", c_char * 32),
        ("die", _u32 * 6),
        *words("card device physical groups slices_most hbm health gone share error_count"),
        ("errors", _u32 * ERRORS),
        *words("power_dw temperature"),
        ("size", NpuSize),
        *words("template_count grouped"),
        *words("generation busy_until_ns busy_ns", _u64),
        ("templates", NpuTemplate * TEMPLATES),
        ("slices", NpuSlice * SLICES),
        ("processes", NpuProcess * PROCESSES),
    ]


class NpuFault(Structure):
    _fields_ = [
        ("function", c_char * 64),
        ("used", _u32),
        ("code", c_int32),
        *words("first count calls", _u64),
        *words("crash reserved"),
    ]


class NpuState(Structure):
    _fields_ = [
        ("magic", _u64),
        *words("version chip_count"),
        ("size", _u64),
        ("driver_version", c_char * 32),
        ("faults", NpuFault * FAULTS),
        ("chips", NpuChip * CHIPS),
    ]


MIRRORED = {
    "npu_size": NpuSize, "npu_template": NpuTemplate, "npu_slice": NpuSlice, "npu_process": NpuProcess, "npu_chip": NpuChip,
    "npu_fault": NpuFault, "npu_state": NpuState,
}  # fmt: skip
