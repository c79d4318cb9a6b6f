"""Everything that enforces goes through one seam: a library with another back end holds that one's limits, not the region's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from kit.vgpu_kit import MIB, PROGRAMS, Container, build, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine

HALVES = PROGRAMS / "halves.so"  # half of the memory limit, a quarter of the time
OUT_OF_MEMORY, CONTEXT = 2, 414


def test_memory_is_granted_by_the_back_end_and_booked_in_the_region(tmp_path: Path) -> None:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    container = Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "4000m", "LD_PRELOAD": str(HALVES)})
    with Tenant(container) as tenant:
        assert tenant.ask("info")[1] == 4000 * MIB  # the view is not the back end's
        half = 2000 - CONTEXT
        assert tenant.ask(f"alloc {(half + 2) * MIB}") == OUT_OF_MEMORY
        assert tenant.ask(f"module pumice-global,name=g,bytes={(half + 2) * MIB}") == OUT_OF_MEMORY
        assert tenant.ask(f"alloc {half * MIB}") == 0
        assert tenant.ask("alloc 1") == OUT_OF_MEMORY
        assert read_region(container.region).total() == 2000 * MIB
        assert tenant.ask("free") == 0
        assert read_region(container.region).total() == CONTEXT * MIB


@pytest.mark.parametrize("limit", [0, 60])
def test_launches_are_held_to_the_share_of_the_back_end(tmp_path: Path, limit: int) -> None:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB", virtual_time=True), tmp_path / "m")
    done = subprocess.run(
        [PROGRAMS / "conduct", HALVES, tmp_path, "3000", f"limit={limit},kernel=1000000"],
        env={**os.environ, "PUMICE_MACHINE": str(tmp_path / "m"), "LD_LIBRARY_PATH": str(machine.library_dir())},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)["workers"][0]["served"]
    assert (served[299] - served[100]) / 1.99e9 == pytest.approx(0.25, abs=0.01)
