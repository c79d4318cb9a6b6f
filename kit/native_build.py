"""Building what the tests of the native libraries run."""

from __future__ import annotations

import fcntl
import os
import subprocess
from functools import cache
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"
MACHINE = NATIVE.parent / "lab" / "native"
"""The emulated machine's sources."""


@cache
def build(*targets: str) -> None:
    """Makes them; nothing to do takes a few milliseconds. Tests that run side by side build one after the other."""
    folder = os.open(NATIVE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        done = subprocess.run(["make", "-s", "-C", NATIVE, *targets], capture_output=True, text=True)
    finally:
        os.close(folder)
    assert done.returncode == 0, done.stderr
