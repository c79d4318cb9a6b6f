"""Every daemon takes clock, dice and transport as arguments: ten minutes of a whole cluster pass in seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pumice import machine


def test_ten_minutes_of_a_cluster_pass_in_seconds_and_a_waiting_pod_gets_the_card_that_becomes_free(tmp_path: Path) -> None:
    machine.create(machine.machine_of("GeForce-GTX-1080-Ti"), tmp_path / "machine").close()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="house") as short:  # a unix socket's path has at most 107 bytes
        done = subprocess.run(
            [sys.executable, "-m", "tests.kit.virtual_house", short], capture_output=True, text=True, timeout=100,
            env={**os.environ, "PUMICE_MACHINE": str(tmp_path / "machine")})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["violations"] == []
    assert (result["second_before"], result["second_after"], result["never"]) == ("Pending", "Running", "Pending")
    assert result["virtual_seconds"] >= 600 > time.monotonic() - began
