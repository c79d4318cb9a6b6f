"""What the system tells of this process."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from pumice.metrics.process import ProcessReading

SELF = Path("/proc/self")
_MACHINE_STARTED = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
"""Unix seconds, from which a process's start is counted."""


def read_process(place: Path = SELF) -> ProcessReading | None:
    """None where the system does not tell (/proc is Linux's)."""
    try:
        stat = (place / "stat").read_text().rpartition(")")[2].split()  # a program's name may hold anything
        descriptors = len(os.listdir(place / "fd"))
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessReading(
        cpu_seconds=(int(stat[11]) + int(stat[12])) / ticks,
        resident=int(stat[21]) * os.sysconf("SC_PAGE_SIZE"),
        virtual=int(stat[20]),
        started=round(_MACHINE_STARTED + int(stat[19]) / ticks, 2),
        open_files=descriptors,
        most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
