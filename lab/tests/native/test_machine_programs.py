"""The C programs that try the emulated machine against their own prototypes (lab/native/tests)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kit.native_build import MACHINE, NATIVE, build

SOURCES = {path.stem for path in (MACHINE / "tests").glob("test_*.c")}
PROGRAMS = sorted(SOURCES - {"test_runtime"} | {f"test_runtime_{name}" for name in ("11.0", "12", "13")})  # one source


@pytest.fixture(scope="session")
def built() -> Path:
    if not shutil.which("make") or not shutil.which("cc"):
        pytest.skip("no C compiler")
    build(*(f"build/machine/tests/{name}" for name in PROGRAMS))
    return NATIVE / "build/machine/tests"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_the_machine_as_it_should_be(built: Path, name: str) -> None:
    done = subprocess.run([str(built / name)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_ten_thousand_killed_processes_leave_the_machine_usable(built: Path) -> None:
    done = subprocess.run([str(built / "test_memory"), "10000"], capture_output=True, text=True, timeout=2900)
    assert done.returncode == 0, done.stderr
