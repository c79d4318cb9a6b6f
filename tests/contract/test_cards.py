"""NVML and CUDA's driver API keep the same promises on the emulated machine and, where there is one, on a real card."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from kit.machines import Programs

from pumice_lab.machine import MachineError, create, library_dir, machine_of
from tests.contract.card_checks import CHECKS, UNSUPPORTED

ROOT = Path(__file__).parents[2]

# In a process of its own: initialising the driver here would stay with every later test.
LOOK = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    ctypes.CDLL("libnvidia-ml.so.1")
except OSError as error:
    sys.exit(f"no NVIDIA driver on this computer: {error}")
if hasattr(cuda, "pumice_machine_now_ns"):
    sys.exit("the driver found is the emulated one")
count = ctypes.c_int()
if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
    sys.exit("the driver finds no card that may be used")
mode = ctypes.c_int()
if cuda.cuDeviceGetAttribute(ctypes.byref(mode), 20, 0) == 0 and mode.value == 2:
    sys.exit("the card is in compute mode prohibited")
"""


def outside() -> dict[str, str]:
    """The environment without anything that leads to the emulated machine or into a container."""
    return {name: value for name, value in os.environ.items() if name not in ("PUMICE_MACHINE", "LD_PRELOAD")}


@cache
def why_no_real_card() -> str:
    """Empty where there is one."""
    words = (sys.executable, "-c", LOOK)
    looked = subprocess.run(words, env=outside(), capture_output=True, text=True, timeout=60)
    return looked.stderr.strip() if looked.returncode else ""


@pytest.fixture(params=["emulated", "real"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment in which a program meets the card."""
    if request.param == "real":
        if why_no_real_card():
            pytest.skip(why_no_real_card())
        return outside()
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    with create(machine_of("H200"), tmp_path / "machine") as machine:
        return Programs(machine).environment


@pytest.mark.parametrize("name", list(CHECKS))
def test_what_holds_for_every_card(name: str, environment: dict[str, str]) -> None:
    words = (sys.executable, "-m", "tests.contract.card_checks", name)
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    if done.returncode == UNSUPPORTED and "PUMICE_MACHINE" not in environment:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
