"""What /proc tells of the processes of containers, and the sweep by it. Standard library only (see spawner)."""

from __future__ import annotations

import contextlib
import os
import signal

MARK = "PUMICE_CONTAINER"  # in the environment of every process of a container


def sweep(idents: list[str]) -> int:
    """Kill what an earlier, killed spawner may have left, told by the marker in its environment. Returns how many."""
    if not idents:
        return 0
    marks, count = {f"{MARK}={ident}".encode() for ident in idents}, 0
    for pid in pids():
        if pid != os.getpid() and carries(pid, marks):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


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
