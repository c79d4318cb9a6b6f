"""The usual metrics of the process itself, by the names that every runtime's client library uses (spec volcano-core 22)."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from pumice.metrics.primitives import family

SELF = Path("/proc/self")
_STARTED = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
"""Unix seconds of the machine's start, from which a process's start is counted."""


def process_lines(place: Path = SELF) -> Iterator[str]:
    """Lines of Prometheus' text format; none where the system does not tell (/proc is Linux's)."""
    try:
        stat = (place / "stat").read_text().rpartition(")")[2].split()  # a program's name may hold anything
        descriptors = len(os.listdir(place / "fd"))
    except OSError:
        return
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    seconds = (int(stat[11]) + int(stat[12])) / ticks
    started = round(_STARTED + int(stat[19]) / ticks, 2)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for name, kind, text, value in (
        ("cpu_seconds_total", "counter", "User and system time", seconds),
        ("resident_memory_bytes", "gauge", "Resident memory", int(stat[21]) * page),
        ("virtual_memory_bytes", "gauge", "Virtual memory", int(stat[20])),
        ("start_time_seconds", "gauge", "Start, in Unix seconds", started),
        ("open_fds", "gauge", "Open file descriptors", descriptors),
        ("max_fds", "gauge", "File descriptors that may be open", most),
    ):
        yield from family(f"process_{name}", kind, text, [({}, value)])
