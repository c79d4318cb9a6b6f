"""The test programs of HAMi-core, out of a git repository that one has (`PUMICE_HAMI_CORE`), on the emulated machine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.one_machine import MIB, OneMachine

from pumice_lab.machine.native import library_dir
from tests.native.foreign_suites import Suite, install, root_of_tests

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

CORE = Suite(
    name="hami-core",
    requirements=(
        "nvidia-cuda-runtime==13.5.37", "nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-nvvm==13.5.37",
        "nvidia-nvml-dev==13.5.37",
    ),
    runner="none: programs",
    tests=(),
    libraries=(),
    not_passing={},
    checkout="hami-core",  # https://github.com/Project-HAMi/HAMi-core
    commit="8f3a89c67b037d8fdfe6c4cd4d8c4f0cd6504811",
)  # fmt: skip
ENDING = (
    "test_alloc", "test_alloc_host", "test_alloc_managed", "test_alloc_pitch", "test_create_3d_array", "test_create_array",
    "test_host_alloc", "test_host_register", "test_mem_create", "test_runtime_alloc", "test_runtime_alloc_host",
    "test_runtime_alloc_managed", "test_runtime_host_alloc", "test_runtime_host_register",
    "test_runtime_launch", "test_multi_gpu_utilization",
)  # fmt: skip
HOLDING = "test_alloc_hold"
ENOUGH, TOO_LITTLE = 12000, 650
OUT_OF_MEMORY = 2

OWN_TO_A_RUN = (
    r"Current usage: (\d+) bytes, diff: \1 bytes",  # the first: of the whole card, or of the share
    r"Current usage: \d+ bytes|total: \d+ bytes",
    r"[\d.]+ seconds",
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return root_of_tests(CORE, tmp_path_factory.mktemp("hami-core"))


@pytest.fixture(scope="module")
def programs(checkout: Path) -> Path:
    """The folder of the programs, each compiled by NVIDIA's nvcc and linked with the machine's libraries alone."""
    install(CORE)
    compilers = list(CORE.packages.glob("nvidia/cu*/bin/nvcc"))
    built, libraries = checkout / "built", library_dir()
    built.mkdir()
    for source in [*checkout.glob("test/*.c"), *checkout.glob("test/*.cu")]:
        subprocess.run(
            [
                str(compilers[0]), "-w", "--cudart", "none", "-arch=sm_80", f"-I{checkout}", f"-I{checkout}/src",
                str(source), "-o", str(built / source.stem), f"-L{libraries}", f"-L{libraries}/runtime",
                "-l:libcuda.so.1", "-l:libnvidia-ml.so.1", "-l:libcudart.so.13",
            ],
            check=True, timeout=300,
        )  # fmt: skip
    assert {program.name for program in built.iterdir()} == {*ENDING, HOLDING}
    return built


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[OneMachine]:
    machine = OneMachine(tmp_path / "machine", "2xA100-SXM4-40GB")
    yield machine
    machine.close()


def _steps(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return a program's report without the parts that differ by run. Threads report in any order."""
    said = done.stdout + done.stderr
    for words in OWN_TO_A_RUN:
        said = re.sub(words, "", said)
    return sorted(line for line in said.splitlines() if not line.startswith("pumice run:"))


@pytest.mark.parametrize("name", ENDING)
def test_a_program_does_with_the_library_what_it_does_without(machine: OneMachine, programs: Path, name: str) -> None:
    plain = machine.environment | machine.machine.environment() | {"CUDA_VISIBLE_DEVICES": "0"}
    without = subprocess.run([str(programs / name)], capture_output=True, text=True, timeout=300, env=plain)
    assert without.returncode == 0, without.stderr
    limited = machine.run("--memory", str(ENOUGH), "--", str(programs / name))
    assert (limited.returncode, _steps(limited)) == (0, _steps(without)), limited.stderr
    totals = {int(total) // MIB for total in re.findall(r"total: (\d+) bytes", limited.stdout)}
    assert totals <= {ENOUGH}, "its share is the card it is shown"


@pytest.mark.parametrize("name", [HOLDING, "test_runtime_alloc"])
def test_a_program_that_asks_for_more_than_its_share_is_told_that_memory_is_out(
    machine: OneMachine, programs: Path, name: str
) -> None:
    done = machine.run("--memory", str(TOO_LITTLE), "--", str(programs / name))
    assert done.returncode != 0
    assert re.search(rf"CUDA .* error at line .*: {OUT_OF_MEMORY}$", done.stderr, re.MULTILINE), done.stderr
    assert TOO_LITTLE // 2 < machine.machine.peak(0) // MIB <= TOO_LITTLE


def test_a_program_that_goes_on_past_a_refusal_holds_what_its_share_is(machine: OneMachine, programs: Path) -> None:
    """It asks for a gibibyte and two bytes ten times and looks at no answer."""
    done = machine.run("--memory", "4000", "--", str(programs / "test_alloc"))
    assert done.returncode == 0, done.stderr
    most, ended = (int(usage) // MIB for usage in re.findall(r"Current usage: (\d+) bytes", done.stdout)[-3::2])
    assert most - ended == 3 * 1026
    assert machine.machine.peak(0) <= 4000 * MIB


def test_two_cards_are_worked_on_side_by_side(machine: OneMachine, programs: Path) -> None:
    done = machine.run("--gpus", "2", "--memory", "1000", "--cores", "25", "--", str(programs / "test_multi_gpu_utilization"))
    assert done.returncode == 0, done.stderr
    assert "Found 2 GPU(s)" in done.stdout
    assert [f"[GPU {card}] Completed 5 kernels" in done.stdout for card in (0, 1)] == [True, True]


def test_pytorch_holds_a_tensor_that_fits_its_share_and_no_other(
    machine: OneMachine, checkout: Path, torch_python: str
) -> None:
    program = [torch_python, str(checkout / "test/python/limit_pytorch.py"), "--tensor_shape", "256,1024,1024"]
    done = machine.run("--memory", "2000", "--", *program)
    assert done.returncode == 0, done.stderr
    assert "Tensor sum: " in done.stdout
    done = machine.run("--memory", "1200", "--", *program)
    assert done.returncode == 1
    assert "OutOfMemoryError" in done.stderr
    assert "1.17 GiB" in done.stderr, "the share stands in the error"
