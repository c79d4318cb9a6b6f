"""The long counts of libvgpu, by ``make soak``: kills at ten thousand random moments, 10^8 made-up inputs, ten million grants."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit.native_build import NATIVE, build
from kit.vgpu_kit import PROGRAMS, Container

from pumice_lab import machine

pytestmark = pytest.mark.soak
TESTS = NATIVE / "build/vgpu/tests"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build("vgpu", "vgpu-programs", "build/vgpu/tests/test_memory", "build/vgpu/tests/test_fuzz")


def test_ten_thousand_kills_lose_no_byte_and_leave_no_lock(tmp_path: Path) -> None:
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    container = Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3g", "LIBCUDA_LOG_LEVEL": "0"})
    rounds, longest_wait_ns, _, given_up = container.run(PROGRAMS / "chaos", "0", "4", "10000", timeout=3000).json()
    assert rounds >= 10_000
    assert given_up == 0
    assert longest_wait_ns <= 50_000_000


@pytest.mark.parametrize(
    ("program", "knobs"),
    [
        ("test_fuzz", {"VGPU_FUZZ": "100000000"}),
        ("test_memory", {"VGPU_GRANTS": "10000000", "VGPU_LARGEST": "2000000"}),
    ],
)
def test_long_counts(program: str, knobs: dict[str, str]) -> None:
    environment = {**os.environ, "LIBCUDA_LOG_LEVEL": "0", **knobs}
    done = subprocess.run([TESTS / program], env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
