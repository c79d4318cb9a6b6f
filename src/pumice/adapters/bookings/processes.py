"""Which processes live, told apart from later ones that were given the same number, and which regions are held.

A program takes a lock along into whatever it becomes and starts. The kernel gives it back when the last of them has ended or
has closed its files, and tells of it to every user and in every PID namespace, where /proc tells little.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from pumice.adapters.region.extension import FILE_BYTES

REGION_VARIABLE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"


HELD_AT: Final = FILE_BYTES
"""The byte of a region, behind its end, whose lock its programs hold."""
HIGH: Final = 64
"""From here on lies the descriptor of the lock: scripts count on low ones being free."""
_FLOCK = struct.Struct("hhqqi4x")


def hold(region: str | Path) -> None:
    """Hold the region from now on until this process and all that inherit its files have ended. Raises OSError."""
    descriptor = os.open(region, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, HELD_AT, 1, 0))
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH)  # without close-on-exec
    finally:
        os.close(descriptor)


def is_held(region: str | Path) -> bool:
    """Whether anybody holds the region; False where there is none or no lock is to be had on its file system."""
    try:
        descriptor = os.open(region, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, HELD_AT, 1, 0))
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOLCK):
            raise
        return False
    finally:
        os.close(descriptor)


def start_time(pid: int) -> int:
    """Clock ticks since boot at which the process started; 0 when it is gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = text[text.rfind(b")") + 2 :].split()  # the command in parentheses may hold blanks and parentheses itself
    if len(fields) < 20 or fields[0] in (b"Z", b"X", b"x"):
        return 0
    return int(fields[19])


def lives(pid: int, start: int) -> bool:
    return pid > 0 and start_time(pid) == start != 0


def region_of(pid: int) -> str:
    """The region that a process's environment names; empty when it names none or is another user's."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = f"{REGION_VARIABLE}=".encode()
    return next((os.fsdecode(line.removeprefix(prefix)) for line in environment if line.startswith(prefix)), "")


def heirs(region: str) -> tuple[int, ...]:
    """Processes whose environment names this region: they may open the card at any time. Other users' are not seen."""
    wanted = f"{REGION_VARIABLE}={region}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and start_time(int(entry.name)):
            found.append(int(entry.name))
    return tuple(sorted(found))
