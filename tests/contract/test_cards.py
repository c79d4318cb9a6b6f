"""NVML and CUDA's driver API keep the same promises on the emulated machine and, where there is one, on a real card."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.machine import MachineError, create, library_dir, machine_of
from tests.kit.card_checks import CHECKS
from tests.kit.machines import Programs

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["emulated", "real"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment in which a program meets the card."""
    if request.param == "real":
        try:
            present = ctypes.CDLL("libcuda.so.1").cuInit(0) == 0 and "PUMICE_MACHINE" not in os.environ
        except OSError:
            present = False
        if not present:
            pytest.skip("no NVIDIA card on this computer")
        return dict(os.environ)
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    with create(machine_of("H200"), tmp_path / "machine") as machine:
        return Programs(machine).environment


@pytest.mark.parametrize("name", list(CHECKS))
def test_what_holds_for_every_card(name: str, environment: dict[str, str]) -> None:
    words = (sys.executable, "-m", "tests.kit.card_checks", name)
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
