"""Processes that live, told apart from later ones that were given the same number, and regions that are held.

A program takes two things along into whatever it becomes and starts. A lock: the kernel gives it back when the last of them has
ended or has closed its files, and tells of it to every user and in every PID namespace, where /proc tells little. And a mark,
for those who close their files: a resource limit that limits nothing, whose value is the leader's own. It is inherited like an
environment, cannot be lost by clearing one, and /proc shows it to all users.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pumice.adapters.region.extension import FILE_BYTES
from pumice.adapters.regular_files import variable_of
from pumice.wire import variables

REGION_VARIABLE = variables.SHARED_CACHE


HELD_AT: Final = FILE_BYTES
"""The byte of a region, behind its end, whose lock its programs hold."""
HIGH: Final = 64
"""From here on lies the descriptor of the lock: scripts count on low ones being free."""
_FLOCK = struct.Struct("hhqqi4x")
_MARK: Final = 1 << 62
"""Microseconds that no real-time thread will ever run without a pause, so a limit of so many and some more limits nothing."""
_MARK_LINE: Final = b"\nMax realtime timeout "


def hold(region: str | Path) -> int:
    """Hold the region until this process and all that inherit its files have ended or closed the descriptor that is returned.

    Raises OSError.
    """
    descriptor = os.open(region, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, HELD_AT, 1, 0))
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH)  # without close-on-exec
    finally:
        os.close(descriptor)


def is_held(region: str | Path) -> bool:
    """Return whether anybody holds the region; False where there is none or no lock is to be had on its file system."""
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


def mark(pid: int, start: int) -> int:
    """The mark in the environment of all descendants of this leader, unique until the next boot."""
    return _MARK | start << 22 | pid  # pid_max is 2^22 at most


def put_mark(pid: int, start: int, on: int = 0) -> None:
    """Let this process, or ``on``, carry the mark from now on. Where that is not allowed, lock and environment have to do."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.prlimit(on, resource.RLIMIT_RTTIME)[1]
        resource.prlimit(on, resource.RLIMIT_RTTIME, (mark(pid, start), hard))


def boot() -> str:
    """The kernel's name for the time since it started; empty where it tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


FIRST_NAMESPACE: Final = 0xEFFFFFFC
"""The number of the machine's own PID namespace (Linux, include/linux/proc_ns.h), where /proc tells of all processes."""


def pid_namespace() -> int:
    """The number of this process's PID namespace; 0 where the kernel tells none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


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
    return os.fsdecode(variable_of(pid, REGION_VARIABLE))


def heirs(region: str, marked: int, container: str = "", *, mounted: bool = False) -> tuple[int, ...]:
    """Processes that carry this mark, whose environment names this region (only one's own are seen), or that run in this
    container: they may open the card at any time. ``mounted``: also those that have the region at its path as a mount, as every
    container of a share has and nobody else."""
    named = f"{REGION_VARIABLE}={region}".encode()
    number = str(marked).encode()
    has = _having(region) if mounted else None
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        its = (_carries(entry.path, number) or _names(entry.path, named)
               or (container and _within(entry.path, container.encode())) or (has and has(entry.path)))  # fmt: skip
        if its and start_time(int(entry.name)):
            found.append(int(entry.name))
    return tuple(sorted(found))


def _carries(process: str, number: bytes) -> bool:
    try:
        limits = Path(process, "limits").read_bytes()
    except OSError:
        return False
    return limits.partition(_MARK_LINE)[2].split(maxsplit=1)[:1] == [number]


def _within(process: str, container: bytes) -> bool:
    """Return whether a process runs in a container: engines name its cgroup by the id, and /proc tells every user. Podman's
    process beside it, which is told its end, has a cgroup of that id, too."""
    try:
        groups = Path(process, "cgroup").read_bytes().replace(b"\n", b"/").split(b"/")
    except OSError:
        return False
    return any(container in group and b"conmon" not in group for group in groups)


def _having(region: str) -> Callable[[str], bool]:
    """Tell of processes whether they have a mount at the region's path, or below where their root is about to be. /proc shows the
    mounts to every user, also before a container's program begins.

    Each mount namespace is read once: it is known by its first mount's number, which no other has. Ours has no container's.
    """
    ending = region.encode()
    known = {_mounts("/proc/self", first=True): False, b"": False}

    def has(process: str) -> bool:
        space = _mounts(process, first=True)
        if space not in known:
            lines = (line.split(b" ", 5) for line in _mounts(process).split(b"\n"))
            known[space] = any(_unescaped(line[4]).endswith(ending) for line in lines if len(line) > 4)
        return known[space]

    return has


def _mounts(process: str, *, first: bool = False) -> bytes:
    """The mounts that a process sees, or the number of the first; empty where it cannot be told."""
    try:
        with open(f"{process}/mountinfo", "rb", buffering=0) as file:
            return file.read(16).split(maxsplit=1)[0] if first else file.readall()
    except (OSError, IndexError):  # ended; or it has no mounts any more
        return b""


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 255]), path)


def _names(process: str, variable: bytes) -> bool:
    try:
        return variable in Path(process, "environ").read_bytes().split(b"\0")
    except OSError:
        return False
