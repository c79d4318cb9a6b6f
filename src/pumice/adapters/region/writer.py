"""Making a region before anybody uses it, and what may be changed in a living one: its limits and a monitor's feedback.

What is written here is what ``libvgpu.so`` writes when it is the first (native/vgpu/src/core/region_format.c); it joins a
file that it finds whole. Living processes look at their limits anew at each allocation and within 20 ms of launching.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pumice.adapters.region.extension import BYTES, FILE_BYTES, MADE_LIMITS_AT, MAGIC, OFFSET, VERSION
from pumice.adapters.region.folders import lift_core_limits
from pumice.adapters.region.reader import MAGIC as REGION_MAGIC
from pumice.adapters.region.reader import V12, opened, read_header, read_region
from pumice.adapters.regular_files import replacing
from pumice.model.errors import Unavailable
from pumice.ports.region import MAX_DEVICES

_POSTED = struct.pack("<Q", 1) + struct.pack("<I", 0x80) + bytes(20)
"""A glibc semaphore of value 1 shared by processes, which upstream's library waits on."""
ACTIVE: Final = 2
PULSE: Final = struct.Struct("<II")
"""Beats so far and milliseconds between two of them."""


Limits = Mapping[int, tuple[int, int]]
"""Bytes and percent (0: no limit) by NVML's index of the card. A card that is not named gets the least of what others have."""


def create_region(path: Path, limits: Limits, priority: int = 1) -> None:
    """A whole, empty region with these limits.

    It appears by a rename, so that nobody meets half of it. Raises Unavailable.
    """
    try:
        path.parent.mkdir(parents=True)
        # children that run as another user share the limits
        with replacing(path, 0o666, draft=path.with_name(f".{path.name}.new"), durable=False) as file:
            descriptor = file.fileno()
            os.posix_fallocate(descriptor, 0, FILE_BYTES)
            os.pwrite(descriptor, struct.pack("<3I", MAGIC, VERSION, BYTES), OFFSET)
            os.pwrite(descriptor, struct.pack("<4iQ", 0, 1, ACTIVE, priority, 0) + _POSTED, V12.trailer)
            words = struct.pack(f"<{2 * MAX_DEVICES}Q", *_memory(limits), *_cores(limits))
            os.pwrite(descriptor, words, MADE_LIMITS_AT)  # by them a later change is known from an environment that differs
            os.pwrite(descriptor, words, V12.limits)
            os.pwrite(descriptor, struct.pack("<iIIiQ", REGION_MAGIC, 1, 2, 0, 0) + _POSTED, 0)
    except OSError as error:
        raise Unavailable(f"{path}: the region cannot be made: {error.strerror}") from error


def set_limits(path: Path, limits: Limits) -> None:
    """New limits of a living region. Raises BadRegion or Unavailable.

    By writing eight bytes at a time, never through a mapping: somebody may cut the file short meanwhile.
    """
    read_region(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for device, (memory, cores) in enumerate(zip(_memory(limits), _cores(limits), strict=True)):
                os.pwrite(descriptor, struct.pack("<Q", memory), V12.limits + 8 * device)
                os.pwrite(descriptor, struct.pack("<Q", cores), V12.sm_limits + 8 * device)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Unavailable(f"{path}: the limits cannot be changed: {error.strerror}") from error


def _memory(limits: Limits) -> list[int]:
    least = min(memory for memory, _ in limits.values())
    return [limits[device][0] if device in limits else least for device in range(MAX_DEVICES)]


def _cores(limits: Limits) -> list[int]:
    least = min(cores or 100 for _, cores in limits.values())
    return [limits[device][1] or 100 if device in limits else least for device in range(MAX_DEVICES)]


def write_pulse(path: str | Path, every: float | None) -> None:
    """One more beat of who lets a region's launches wait, the next one in ``every`` seconds; None: no beat is to be expected.

    The library goes on by itself after four missed beats. Files of other libraries have no place for it. Raises Unavailable.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            head = os.pread(descriptor, PULSE.size + 16, OFFSET)
            if len(head) == PULSE.size + 16 and struct.unpack_from("<3I", head) == (MAGIC, VERSION, BYTES):
                beats, _ = PULSE.unpack_from(head, 16)
                beat = (0, 0) if every is None else (beats % 0xFFFFFFFF + 1, max(1, round(1000 * every)))
                os.pwrite(descriptor, PULSE.pack(*beat), OFFSET + 16)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Unavailable(f"{path}: the pulse cannot be written: {error.strerror}") from error


def write_feedback(path: str | Path, recent: int | None = None, limited: bool | None = None) -> None:
    """Write a monitor's feedback into a region of any layout: ``recent_kernel`` and ``utilization_switch``; None leaves a
    field as it is. The switch is written on the container's limits page, too, where the container cannot.

    A launch of the same moment may be forgotten by this; the library repeats itself half a second later.
    Raises BadRegion or Unavailable.
    """
    with opened(path, os.O_RDWR) as descriptor:
        layout = read_header(descriptor, str(path)).layout
        try:
            if limited is not None:
                os.pwrite(descriptor, struct.pack("<i", limited), layout.trailer + 4)
                lift_core_limits(Path(path), not limited)
            if recent is not None:
                os.pwrite(descriptor, struct.pack("<i", recent), layout.trailer + 8)
        except OSError as error:
            raise Unavailable(f"{path}: the feedback cannot be written: {error.strerror}") from error


def write_host_pid(path: str | Path, slot: int, pid: int, host: int) -> None:
    """Write the host's number of the process that a region knows as ``pid``, unless its slot has a number or another process
    by now (HAMi-core src/utils.c). Raises BadRegion or Unavailable."""
    with opened(path, os.O_RDWR) as descriptor:
        layout = read_header(descriptor, str(path)).layout
        place = layout.slots + slot * layout.slot_bytes
        try:
            if os.pread(descriptor, 8, place) == struct.pack("<2i", pid, 0):
                os.pwrite(descriptor, struct.pack("<i", host), place + 4)
        except OSError as error:
            raise Unavailable(f"{path}: the pid cannot be written: {error.strerror}") from error
