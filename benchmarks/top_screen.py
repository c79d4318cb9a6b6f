"""The processor time of `pumice top` on an idle machine, with its screen and with its tables.

    python -m benchmarks.top_screen [--quick] [--save]

Each at a terminal of its own, on an emulated machine with two cards on which nothing runs, at the default of a look a second:
percent of a core over 20 s (--quick: 5 s), median of three runs (--quick: one). The start is not counted.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from kit.one_machine import PUMICE, OneMachine
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median

SIZES = ((80, 24), (200, 60))
KINDS = {"screen": ((), "PROGRAMS"), "tables": (("--plain",), "MEMORY IN USE")}
SETTLED = 5.0
"""Seconds after the first frame, in which what is imported late is imported."""
MINUTES = 6


def percent(here: OneMachine, options: tuple[str, ...], words: str, size: tuple[int, int], seconds: float) -> float:
    """Percent of a core that it takes while nobody does anything. Raises AssertionError where it shows no page, or stops."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    program = subprocess.Popen([*PUMICE, "top", "--emulated", str(here.directory), *options], stdin=theirs, stdout=theirs,
                               stderr=theirs, env={**here.environment, "TERM": "xterm-256color"})  # fmt: skip
    os.close(theirs)
    try:
        seen = b""
        while words.encode() not in seen:
            assert select.select([ours], [], [], 60)[0], f"no page: {seen[-500:]!r}"
            seen += os.read(ours, 65536)
        drained(ours, SETTLED)
        before, began = used(program.pid), time.monotonic()
        assert drained(ours, seconds), "it draws nothing any more"
        return 100 * (used(program.pid) - before) / (time.monotonic() - began)
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def drained(terminal: int, seconds: float) -> int:
    """Read what comes for so long, and return how many bytes that were."""
    end, count = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            count += len(os.read(terminal, 65536))
    return count


def used(pid: int) -> float:
    """Seconds of processor time of a process, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="one run of 5 s each")
    given = parser.parse_args(argv)
    runs, seconds = (1, 5.0) if given.quick else (3, 20.0)
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        here = OneMachine(Path(folder) / "node" / "machine")
        try:
            for kind, (options, words) in KINDS.items():
                for size in SIZES:
                    name = f"{kind} of {size[0]} columns, idle"
                    result[name] = median([percent(here, options, words, size, seconds) for _ in range(runs)], 2)
        finally:
            here.close()
    goals = goals_of("top_screen", {name: found["median"] for name, found in result.items() if name.startswith("screen")})
    return conclude("top_screen", result, goals, keep=given.save, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
