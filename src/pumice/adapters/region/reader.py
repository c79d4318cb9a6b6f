"""One region file to a snapshot: layouts 0, 1.1 and 1.2.

The file is never mapped: a truncated mapping would kill the reader. Counts are clamped, UUIDs checked, and a slot that
is being written is read again (HAMi volcano-vgpu-device-plugin cmd/vgpu-monitor, HAMi-core
src/multiprocess/multiprocess_memory_limit.h, HAMi-core src/multiprocess/multiprocess_memory_limit.c).
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct

from pumice.ports.region import (
    MAX_DEVICES,
    MAX_SLOTS,
    BadRegion,
    DeviceUse,
    RegionDevice,
    RegionProcess,
    RegionSnapshot,
)

MAGIC: Final = 19920718
UUID_BYTES: Final = 96
_UUID = re.compile(rb"(GPU|MIG)-[0-9a-fA-F-]{36}")
_LIMITS = struct.Struct(f"<{MAX_DEVICES}Q")
_SEQUENCE = struct.Struct("<Q")
TRIES: Final = 3


class Layout(Struct, frozen=True):
    """The offsets of the fields. ``use`` and ``util`` are the distances between devices in a slot; ``sequence`` -1: none."""

    version: str
    device_num: int
    uuids: int
    limits: int
    slots: int
    slot_bytes: int
    trailer: int
    use: int
    util: int
    util_at: int
    status: int
    sequence: int = -1
    last_kernel: int = -1

    @property
    def sm_limits(self) -> int:
        return self.limits + 8 * MAX_DEVICES


V0 = Layout("0", 48, 56, 1592, 1848, 1168, 1197880, use=40, util=24, util_at=776, status=1160)
V11 = Layout(
    "1.1", 56, 64, 1600, 1856, 1960, 2008896, use=64, util=48, util_at=1160, status=1928, last_kernel=2008912
)
V12 = Layout(
    "1.2", 56, 64, 1600, 1856, 1960, 2008896, use=64, util=48, util_at=1160, status=1928, sequence=1936,
    last_kernel=2008912,
)  # fmt: skip
V0_FILE: Final = 1197897
V1_BYTES: Final = 2008952
V1_BAD_FILE: Final = 2008985
"""A development layout of early 2026 that calls itself 1.1 with everything moved."""


def read_region(path: str | Path) -> RegionSnapshot:
    """One snapshot. Raises BadRegion (``early`` when the file may not be ready yet); never anything else on content."""
    with opened(path) as descriptor:
        head = read_header(descriptor, str(path))
        return RegionSnapshot(
            version=head.layout.version,
            devices=head.devices,
            processes=tuple(_processes(descriptor, head.layout, head.slots, head.devices, str(path))),
            priority=head.priority,
            recent_kernel=head.recent_kernel,
            utilization_switch=head.utilization_switch,
            last_kernel=head.last_kernel,
        )


@contextmanager
def opened(path: str | Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """The file's descriptor. Raises BadRegion; what another program put there is neither followed nor waited for."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadRegion(f"{path}: {error.strerror}", early=isinstance(error, FileNotFoundError)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Header(Struct, frozen=True):
    """All of a region but its slots; ``slots`` of them are in use."""

    layout: Layout
    devices: tuple[RegionDevice, ...]
    slots: int
    priority: int
    recent_kernel: int
    utilization_switch: int
    last_kernel: int


def header_of(path: str | Path) -> Header:
    """Raises BadRegion."""
    with opened(path) as descriptor:
        return read_header(descriptor, str(path))


def read_header(descriptor: int, path: str) -> Header:
    """Raises BadRegion."""
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise BadRegion(f"{path}: not a regular file")
    head = os.pread(descriptor, V12.slots, 0)
    layout = _layout(head, facts.st_size, path)
    if len(head) < V12.slots:
        raise BadRegion(f"{path}: cut off at byte {len(head)}")
    trailer = _exactly(descriptor, 24 if layout.last_kernel >= 0 else 16, layout.trailer, path)
    count, switch, recent, priority = struct.unpack_from("<4i", trailer)
    return Header(
        layout=layout,
        devices=tuple(_devices(head, layout)),
        slots=min(max(count, 0), MAX_SLOTS),
        priority=min(max(priority, 0), 1),
        recent_kernel=recent,
        utilization_switch=switch,
        last_kernel=_SEQUENCE.unpack_from(trailer, 16)[0] if layout.last_kernel >= 0 else 0,
    )


def _layout(head: bytes, size: int, path: str) -> Layout:
    if len(head) < 12:
        raise BadRegion(f"{path}: {size} bytes are too few for a region", early=True)
    magic, major, minor = struct.unpack_from("<3i", head)
    if magic != MAGIC:
        raise BadRegion(f"{path}: no region yet (magic {magic})", early=True)
    if size == V0_FILE:
        return V0
    if major != 1 or size < V1_BYTES or size == V1_BAD_FILE:
        raise BadRegion(f"{path}: {size} bytes with version {major}.{minor} are no known layout")
    return V12 if minor >= 2 else V11


def _exactly(descriptor: int, length: int, offset: int, path: str) -> bytes:
    data = os.pread(descriptor, length, offset)
    if len(data) != length:
        raise BadRegion(f"{path}: cut off at byte {offset + len(data)}")
    return data


def _devices(head: bytes, layout: Layout) -> Iterator[RegionDevice]:
    (count,) = struct.unpack_from("<Q", head, layout.device_num)
    limits = _LIMITS.unpack_from(head, layout.limits)
    sm_limits = _LIMITS.unpack_from(head, layout.sm_limits)
    for index in range(min(count, MAX_DEVICES)):
        start = layout.uuids + index * UUID_BYTES
        text = head[start : start + UUID_BYTES].split(b"\0", 1)[0]
        if _UUID.fullmatch(text):
            yield RegionDevice(index, text.decode("ascii"), limits[index], sm_limits[index])


def _processes(
    descriptor: int, layout: Layout, count: int, devices: tuple[RegionDevice, ...], path: str
) -> Iterator[RegionProcess]:
    slots = _exactly(descriptor, count * layout.slot_bytes, layout.slots, path) if count else b""
    for number in range(count):
        slot = slots[number * layout.slot_bytes : (number + 1) * layout.slot_bytes]
        if layout.sequence >= 0:
            slot = _settled(descriptor, layout, number, slot)
        pid, host_pid = struct.unpack_from("<2i", slot)
        (status,) = struct.unpack_from("<i", slot, layout.status)
        if status:
            use = {device.index: _use(slot, layout, device.index) for device in devices}
            touched = {index: value for index, value in use.items() if value != DeviceUse()}
            yield RegionProcess(number, pid, host_pid, status, touched)


def _settled(descriptor: int, layout: Layout, number: int, slot: bytes) -> bytes:
    """The slot as it stood between two writes; after a few tries as it is, for its writer may have died in the middle."""
    place = layout.slots + number * layout.slot_bytes
    for _ in range(TRIES):
        (before,) = _SEQUENCE.unpack_from(slot, layout.sequence)
        after = os.pread(descriptor, 8, place + layout.sequence)
        if len(after) < 8 or (before % 2 == 0 and _SEQUENCE.unpack(after)[0] == before):
            break
        again = os.pread(descriptor, layout.slot_bytes, place)
        if len(again) < layout.slot_bytes:
            break
        slot = again
    return slot


def _use(slot: bytes, layout: Layout, device: int) -> DeviceUse:
    context, module, data, offset, total = struct.unpack_from("<5Q", slot, 8 + device * layout.use)
    (sm,) = struct.unpack_from("<Q", slot, layout.util_at + device * layout.util + 16)
    return DeviceUse(context, module, data, offset, total, sm)


# -- The file that the library of soft NPU shares writes for one container (HAMi ascend-device-plugin): a file of 6200 bytes, --


SIZE: Final = 6200
_SLOTS, _FIRST, _SLOT = 64, 1080, 80
_CARDS: Final = 8


@dataclass(frozen=True, slots=True)
class NpuShare:
    """Bytes: what the container may use, and what its active processes use of each card that it sees."""

    limit: int
    used: tuple[int, ...]


def read_npu_share(path: Path) -> NpuShare | None:
    """None where nobody has opened one yet, or it is none."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < SIZE:
        return None
    (limit,) = struct.unpack_from("<Q", content, 0)
    used = [0] * _CARDS
    for at in range(_FIRST, _FIRST + _SLOTS * _SLOT, _SLOT):
        pid, active = struct.unpack_from("<i", content, at)[0], struct.unpack_from("<I", content, at + 72)[0]
        if pid and active:
            for card, amount in enumerate(struct.unpack_from(f"<{_CARDS}Q", content, at + 8)):
                used[card] += amount
    return NpuShare(limit, tuple(used))
