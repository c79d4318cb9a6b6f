"""Workers under the library on an emulated machine in virtual time, and what the machine served each (programs/conduct.c)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from kit.vgpu_kit import LIBRARY, PROGRAMS

from pumice_lab import machine

MS = 1_000_000


def conduct(where: Path, directory: Path, milliseconds: int, *players: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [PROGRAMS / "conduct", LIBRARY, directory, str(milliseconds), *players],
        env={**os.environ, "PUMICE_MACHINE": str(where), "LD_LIBRARY_PATH": str(machine.library_dir())},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")
    workers: list[dict[str, Any]] = json.loads(done.stdout)["workers"]
    return workers


def busy(worker: dict[str, Any], from_ms: int, to_ms: int) -> float:
    served = worker["served"]
    return 100 * float(served[to_ms // 10] - served[from_ms // 10]) / ((to_ms - from_ms) * MS)
