"""Which processes live, told apart from later ones that were given the same number."""

from __future__ import annotations

import os
from pathlib import Path

REGION_VARIABLE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"


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
