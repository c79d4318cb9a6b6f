"""Reservations of one thread that the driver has not taken yet stay, whatever other threads of the process do."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.vgpu_kit import MIB, Container, build

from pumice_lab import machine
from pumice_lab.machine.model import FaultModel

LIMIT = 2000 * MIB


@pytest.mark.parametrize(("what", "slow", "nth"), [("graph", "cuGraphLaunch", 1), ("hole", "cuMemAllocAsync", 3)])
def test_a_slow_call_gets_what_it_was_granted_and_the_limit_holds(
    tmp_path: Path, what: str, slow: str, nth: int
) -> None:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    with machine.open_machine(tmp_path / "m") as emulated:
        emulated.set_fault(FaultModel(slow, 0, nth, 1, 1_000_000_000))
    quiet = {"CUDA_DEVICE_MEMORY_LIMIT": str(LIMIT), "PUMICE_VGPU_RECONCILE_MS": "0"}
    ran = Container(tmp_path / "m", tmp_path, quiet).child("amid.py", what)
    assert ran.json() == 0
    assert LIMIT - 34 * MIB < machine.open_machine(tmp_path / "m").peak(0) <= LIMIT
