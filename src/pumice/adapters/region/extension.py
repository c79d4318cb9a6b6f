"""Our extension of a region: the budgets of GPU time, and which slots have a living owner (native/vgpu/include/vgpu/region.h).

Files of other libraries have none; then the process table tells who lives. Like the rest of the file it is a claim of the
container: numbers are shown, never trusted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from msgspec import Struct

from pumice.adapters.region.reader import read_region
from pumice.ports.region import MAX_DEVICES, MAX_SLOTS, BadRegion

OFFSET: Final = 2011136
MAGIC: Final = 0x31584756
VERSION: Final = 1
BYTES: Final = 331776
WAITS_AT: Final = OFFSET + 176
FILE_BYTES: Final = OFFSET + BYTES
DEVICES_AT: Final = OFFSET + 256
MADE_LIMITS_AT: Final = OFFSET + 2304
SLOTS_AT: Final = OFFSET + 4096
SLOT_BYTES: Final = 320
ALIVE_LOCK: Final = 1
LEAVING: Final = 2

_HEAD = struct.Struct("<3I")
_DEVICE = struct.Struct("<qQIIqQQQQQ56x")
_WAITS = struct.Struct("<4Q")
_SLOT = struct.Struct("<QQQI")
_FLOCK = struct.Struct("hhqqi4x")


class DeviceBudget(Struct, frozen=True):
    """One device's GPU time in ns: ``balance`` may be spent now (a debt when negative), the others are sums so far."""

    balance: int
    charged: int
    busy: int
    throttled: int
    launches: int
    samples: int


class LockWaits(Struct, frozen=True):
    """Waits for any lock of the library, of all processes since the region was made; ``late``: given up after 50 ms."""

    longest_ns: int
    total_ns: int
    count: int
    late: int


class Extension(Struct, frozen=True):
    devices: tuple[DeviceBudget, ...]
    waits: LockWaits


def read_extension(path: str | Path) -> Extension | None:
    """The extension, or None when the file has none that we know."""
    descriptor = _open(path)
    if descriptor is None:
        return None
    try:
        head = os.pread(descriptor, _HEAD.size, OFFSET)
        waits = os.pread(descriptor, _WAITS.size, WAITS_AT)
        raw = os.pread(descriptor, _DEVICE.size * MAX_DEVICES, DEVICES_AT)
    finally:
        os.close(descriptor)
    if len(head) < _HEAD.size or _HEAD.unpack(head) != (MAGIC, VERSION, BYTES) or len(raw) < _DEVICE.size * MAX_DEVICES:
        return None
    devices = []
    for credit, _, _, _, charged, busy, throttled, launches, samples, _ in _DEVICE.iter_unpack(raw):
        devices.append(DeviceBudget(credit - charged, charged, busy, throttled, launches, samples))
    return Extension(tuple(devices), LockWaits(*_WAITS.unpack(waits)))


def live_slots(path: str | Path) -> dict[int, int]:
    """Slot number to pid of every slot whose owner lives; empty for a file that is no region or not there yet.

    The owner holds the record lock of its slot until it dies, in whatever way and PID namespace; the kernel tells us.
    """
    try:
        processes = read_region(path).processes
    except BadRegion:
        return {}
    descriptor = _open(path)
    if descriptor is None:
        return {}
    try:
        return {p.slot: p.pid for p in processes if p.pid > 0 and _owner_lives(descriptor, p.slot, p.pid)}
    finally:
        os.close(descriptor)


def locked_slots(path: str | Path) -> set[int]:
    """Slots whose owner lives by the kernel's word alone, whatever stands in them, but for those that say that it ends."""
    descriptor = _open(path)
    if descriptor is None:
        return set()
    found: set[int] = set()
    spans = [(0, MAX_SLOTS)]
    try:
        while spans:
            first, end = spans.pop()
            requested = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, SLOTS_AT + first * SLOT_BYTES, (end - first) * SLOT_BYTES, 0)
            kind, _, start, _, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, requested))
            slot = (start - SLOTS_AT) // SLOT_BYTES
            if kind != fcntl.F_UNLCK and first <= slot < end:
                found.add(slot)
                spans += [span for span in ((first, slot), (slot + 1, end)) if span[0] < span[1]]
        return {slot for slot in found if not _leaves(descriptor, slot)}
    except OSError:
        return set()
    finally:
        os.close(descriptor)


def _leaves(descriptor: int, slot: int) -> bool:
    raw = os.pread(descriptor, _SLOT.size, SLOTS_AT + slot * SLOT_BYTES)
    return len(raw) == _SLOT.size and bool(_SLOT.unpack(raw)[3] & LEAVING)


def _owner_lives(descriptor: int, slot: int, pid: int) -> bool:
    place = SLOTS_AT + slot * SLOT_BYTES
    raw = os.pread(descriptor, _SLOT.size, place)
    if len(raw) == _SLOT.size and _SLOT.unpack(raw)[3] & ALIVE_LOCK:
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOLCK):
                raise
    return Path(f"/proc/{pid}").exists()


def _open(path: str | Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
