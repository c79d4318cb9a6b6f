"""Processes of containers as /proc shows them, and the sweep by it. Standard library only (see spawner)."""

from __future__ import annotations

import contextlib
import os
import signal

MARK = "PUMICE_CONTAINER"  # in the environment of every process of a container
HOME = "PUMICE_CONTAINERS"  # beside it: which folder its runtime has, since a copy of that folder names the same containers


def home_of(folder: str | os.PathLike[str]) -> str:
    """Return the identity of a folder, which none of its copies shares."""
    found = os.stat(folder)
    return f"{found.st_dev}:{found.st_ino}"


def sweep(idents: list[str], folder: str | os.PathLike[str]) -> int:
    """Kill what an earlier, killed spawner of that folder may have left, told by the markers in its environment. Returns how
    many."""
    if not idents:
        return 0
    marks, home = {f"{MARK}={ident}".encode() for ident in idents}, {f"{HOME}={home_of(folder)}".encode()}
    ended = set[int]()
    for _ in range(2):  # who was born of one of them while the list was read is in the next one
        for pid in pids():
            if pid != os.getpid() and carries(pid, marks) and carries(pid, home):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    ended.add(pid)
    return len(ended)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def mount_namespace(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino
    except OSError:
        return -1


def carries(pid: int, marks: set[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return not marks.isdisjoint(file.read().split(b"\0"))
    except OSError:
        return False


def session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
