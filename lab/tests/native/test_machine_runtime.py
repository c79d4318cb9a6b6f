"""The CUDA runtime of the emulated machine, as programs that load libcudart by name find it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest
from kit.one_machine import OneMachine

from pumice_lab.machine import MachineError, library_dir

RUNTIMES = ["libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"]
CUPTI = "libcupti.so.13"
ALLOCATES = """
import ctypes, sys
runtime = ctypes.CDLL(sys.argv[1])
runtime.cudaGetErrorString.restype = ctypes.c_char_p
free, total, held = ctypes.c_size_t(), ctypes.c_size_t(), 0
assert runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
while not (error := runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(10 << 20))):
    held += 10
print(total.value >> 20, (free.value >> 20) - held < 10, runtime.cudaGetErrorString(error).decode())
"""
TRACES = """
import ctypes
driver, tools = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcupti.so.13")
assert driver.cuInit(0) == 0
version, text = ctypes.c_uint32(), ctypes.c_char_p()
assert tools.cuptiGetVersion(ctypes.byref(version)) == 0
refused = tools.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None)
assert tools.cuptiGetResultString(refused, ctypes.byref(text)) == 0
print(version.value // 10000, text.value.decode())
"""

VENDOR = """
int puts(const char *);
__attribute__((constructor)) void say(void) { puts("vendor"); }
int cudaRuntimeGetVersion(int *version) { return *version = 1; }
"""
USER = """
int cudaRuntimeGetVersion(int *);
int main(void) { int version; return cudaRuntimeGetVersion(&version) || version < 13000; }
"""


def _folder() -> Path:
    try:
        return library_dir() / "runtime"
    except MachineError as error:
        pytest.skip(str(error))


@pytest.fixture
def one_card(tmp_path: Path) -> Iterator[OneMachine]:
    machine = OneMachine(tmp_path / "machine", "1xA100-SXM4-40GB")
    yield machine
    machine.close()


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_program_that_loads_libcudart_by_name_is_held_to_its_limit(one_card: OneMachine, name: str) -> None:
    done = one_card.run("--memory", "3000", "--", sys.executable, "-c", ALLOCATES, name)
    assert (done.returncode, done.stdout) == (0, "3000 True out of memory\n"), done.stderr


def test_a_library_that_names_nvidias_runtime_by_rpath_finds_the_machines(one_card: OneMachine, tmp_path: Path) -> None:
    """As PyTorch's wheels do; what lies in that folder here says so."""
    folder = tmp_path / "vendor"
    folder.mkdir()
    (tmp_path / "vendor.c").write_text(VENDOR)
    (tmp_path / "vendor.map").write_text("libcudart.so.13 { global: cuda*; local: *; };\n")
    (tmp_path / "user.c").write_text(USER)
    vendor = "vendor/libcudart.so.13"
    for words in (
        ["-shared", "-fPIC", "-Wl,-soname,libcudart.so.13,--version-script=vendor.map", "-o", vendor, "vendor.c"],
        ["-o", "user", "user.c", vendor, f"-Wl,--disable-new-dtags,-rpath,{folder}"],
    ):
        subprocess.run(["gcc", *words], cwd=tmp_path, check=True, timeout=60)
    done = one_card.run("--", str(tmp_path / "user"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_program_that_loads_cupti_by_name_is_told_that_nothing_is_traced(one_card: OneMachine) -> None:
    done = one_card.run("--memory", "3000", "--", sys.executable, "-c", TRACES)
    assert (done.returncode, done.stdout) == (0, "13 CUPTI_ERROR_NOT_SUPPORTED\n"), done.stderr


@pytest.mark.parametrize("name", [*RUNTIMES, CUPTI])
def test_every_name_of_nvidias_library_is_there(name: str) -> None:
    """The refused ones, too: a program that names one that it never calls is not to fail before it begins."""
    generation = int(name.partition(".so.")[2].split(".")[0])
    package = "nvidia-cuda-" + ("cupti" if name == CUPTI else "runtime") + (f"-cu{generation}" if generation < 13 else "")
    try:
        listed = [Path(str(path.locate())) for path in files(package) or []]
    except PackageNotFoundError:
        pytest.skip(f"NVIDIA's library is not installed: pip install {package}")
    theirs, ours = _names(next(path for path in listed if path.name == name)), _names(_folder() / name)
    assert theirs - ours <= {"__cudaGetProcAddress"}


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_runtime_asks_the_driver_for_no_private_table(name: str) -> None:
    """It passes for nobody, and works over any driver (ADR 91, 92)."""
    assert b"cuGetExportTable" not in (_folder() / name).read_bytes()


ASKS_FOR_TABLES = """
import ctypes
cuda, table = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(1)
print(*(cuda.cuGetExportTable(ctypes.byref(table), bytes(16)) for _ in range(3)), table.value)
"""


def test_who_asks_for_private_tables_is_told_once_that_the_card_is_emulated_and_what_to_read(one_card: OneMachine) -> None:
    """As the runtime inside cuBLAS does: PyTorch's product then ends in an error that says nothing of it."""
    done = one_card.run("--", sys.executable, "-c", ASKS_FOR_TABLES)
    assert done.stdout == "500 500 500 None\n"
    reported = [line for line in done.stderr.splitlines() if "private tables" in line]
    assert len(reported) == 1
    for words in ("emulated", "a real card runs it", "docs/reference/emulated-machine.md"):
        assert words in reported[0]


def test_a_preload_of_ones_own_stays_behind_the_library_and_the_runtime(one_card: OneMachine) -> None:
    one_card.environment["LD_PRELOAD"] = "libm.so.6"
    done = one_card.run("--", sys.executable, "-c", "import os; print(os.environ['LD_PRELOAD'])")
    names = [Path(path).name for path in done.stdout.strip().split(":")]
    assert names == ["libvgpu.so", *RUNTIMES, CUPTI, "libm.so.6"]


def _names(library: Path) -> set[str]:
    said = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True, timeout=60)
    return set(re.findall(r" T ((?:__)?cu(?:da|pti)\w+)", said.stdout))
