"""Looking symbols up in the emulated driver as drivers 11, 12 and 13 do it: by dlsym and by cuGetProcAddress of each ABI."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest
from kit.vgpu_kit import hooks

from pumice_lab.machine import MachineError, create, library_dir, load_model

SYMBOLS = Path(__file__).resolve().parents[2] / "native/src/cuda/symbols.def"
LEGACY, PER_THREAD = 1, 2
FOUND, NOT_FOUND, TOO_NEW = 0, 1, 2

PROBE = """
import ctypes, json, sys
driver = ctypes.CDLL(sys.argv[1])
names = {}
for name in json.loads(sys.argv[2]):
    function = getattr(driver, name, None)
    if function is not None:
        names[ctypes.cast(function, ctypes.c_void_p).value] = name
answers = []
for base, version, flags in json.loads(sys.argv[3]):
    at, status = ctypes.c_void_p(), ctypes.c_int(-1)
    ask = getattr(driver, "cuGetProcAddress_v2", None)
    if ask is not None:
        code = ask(base.encode(), ctypes.byref(at), version, ctypes.c_uint64(flags), ctypes.byref(status))
    else:
        code = driver.cuGetProcAddress(base.encode(), ctypes.byref(at), version, ctypes.c_uint64(flags))
    answers.append([code, status.value, names.get(at.value) if at.value else None])
print(json.dumps([sorted(names.values()), answers]))
"""


def _symbols() -> Iterator[tuple[str, int, bool, str]]:
    for base, version, thread, name in re.findall(
        r"^(?:SYMBOL|UNSERVED)\((\w+), (\d+), (\d), (\w+)\)$", SYMBOLS.read_text(), re.M
    ):
        yield base, int(version), thread == "1", name


def _of_nvidias_runtime() -> list[Path]:
    try:
        listed = files("nvidia-cuda-runtime") or []
    except PackageNotFoundError:
        pytest.skip("NVIDIA's runtime and headers are not installed: pip install nvidia-cuda-runtime")
    return [Path(str(path.locate())) for path in listed]


def _header_names() -> Iterator[tuple[str, int, bool]]:
    """Base name, version and kind of stream of every function type in NVIDIA's ``cuda*Typedefs.h``."""
    for header in _of_nvidias_runtime():
        if header.name.endswith("Typedefs.h"):
            names = re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", header.read_text())
            yield from ((base, int(version), bool(thread)) for base, version, thread in names)


def _probe(
    folder: Path, cuda: str, library: Path, questions: list[tuple[str, int, int]]
) -> tuple[list[str], list[list[object]]]:
    import json

    create(load_model(f"machine: n1\ncuda: '{cuda}'\ncards: [{{preset: A100-SXM4-40GB}}]\n"), folder).close()
    names = json.dumps(sorted({name for *_, name in _symbols()}))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(library), names, json.dumps(questions)],
        env={**os.environ, "PUMICE_MACHINE": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    exported, answers = json.loads(done.stdout)
    return exported, answers


@pytest.fixture
def newest() -> Path:
    try:
        return library_dir() / "libcuda.so.1"
    except MachineError as error:
        pytest.skip(str(error))


def _older(newest: Path, driver: str) -> Path:
    library = newest.parent / driver / "libcuda.so.1"
    if not library.exists():
        pytest.skip(f"{library} is not built")
    return library


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("cuMemAlloc", 2000, 0), "cuMemAlloc"),
        (("cuMemAlloc", 3020, 0), "cuMemAlloc_v2"),
        (("cuMemAlloc", 13000, 0), "cuMemAlloc_v2"),
        (("cuMemAlloc_v2", 12000, 0), "cuMemAlloc_v2"),
        (("cuCtxCreate", 3010, 0), "cuCtxCreate"),
        (("cuCtxCreate", 11030, 0), "cuCtxCreate_v2"),
        (("cuCtxCreate", 11040, 0), "cuCtxCreate_v3"),
        (("cuCtxCreate", 12050, 0), "cuCtxCreate_v4"),
        (("cuMemPrefetchAsync", 12010, 0), "cuMemPrefetchAsync"),
        (("cuMemPrefetchAsync", 12020, 0), "cuMemPrefetchAsync_v2"),
        (("cuGraphInstantiate", 10000, 0), "cuGraphInstantiate"),
        (("cuGraphInstantiate", 11000, 0), "cuGraphInstantiate_v2"),
        (("cuGraphInstantiate", 12000, 0), "cuGraphInstantiateWithFlags"),
        (("cuLaunchKernel", 12000, 0), "cuLaunchKernel"),
        (("cuLaunchKernel", 12000, LEGACY), "cuLaunchKernel"),
        (("cuLaunchKernel", 12000, PER_THREAD), "cuLaunchKernel_ptsz"),
        (("cuMemcpyHtoD", 12000, PER_THREAD), "cuMemcpyHtoD_v2_ptds"),
        (("cuMemAlloc", 12000, PER_THREAD), "cuMemAlloc_v2"),
        (("cuGetProcAddress", 11030, 0), "cuGetProcAddress"),
        (("cuGetProcAddress", 12000, 0), "cuGetProcAddress_v2"),
    ],
)
def test_a_base_name_means_the_newest_variant_not_newer_than_asked(
    tmp_path: Path, newest: Path, question: tuple[str, int, int], answer: str
) -> None:
    _, [[code, status, name]] = _probe(tmp_path / "m", "13.0", newest, [question])
    assert (code, status, name) == (0, FOUND, answer)


def test_what_is_not_there_and_what_is_too_new_are_told_apart(tmp_path: Path, newest: Path) -> None:
    questions = [("cuMemAllocAsync", 11010, 0), ("cuNoSuchThing", 12000, 0)]
    _, answers = _probe(tmp_path / "m", "12.2", newest, questions)
    assert answers == [[0, TOO_NEW, None], [0, NOT_FOUND, None]]


def test_a_driver_does_not_have_what_came_after_it(tmp_path: Path, newest: Path) -> None:
    questions = [("cuCtxCreate", 13000, 0), ("cuLibraryLoadData", 13000, 0), ("cuMemGetDefaultMemPool", 13000, 0)]
    _, answers = _probe(tmp_path / "m", "12.2", newest, questions)
    assert answers == [[0, FOUND, "cuCtxCreate_v3"], [0, FOUND, "cuLibraryLoadData"], [0, NOT_FOUND, None]]


@pytest.mark.parametrize(
    ("driver", "cuda", "most"),
    [("driver-11080", "11.8", 11080), ("driver-12090", "12.9", 12090), ("driver-13000", "13.0", 13000)],
)
def test_an_older_driver_exports_its_own_names_and_no_later_one(
    tmp_path: Path, newest: Path, driver: str, cuda: str, most: int
) -> None:
    library = _older(newest, driver)
    exported, answers = _probe(tmp_path / "m", cuda, library, [("cuLaunchKernel", most, 0)])
    assert exported == sorted({name for _, version, _, name in _symbols() if version <= most})
    assert answers[0][2] == "cuLaunchKernel"


def test_every_symbol_of_the_list_is_exported_and_every_export_is_listed(newest: Path) -> None:
    listed = {name for *_, name in _symbols()}
    output = subprocess.run(["nm", "-D", "--defined-only", str(newest)], capture_output=True, text=True, timeout=30)
    if output.returncode != 0:
        pytest.skip("nm is not installed")
    exported = {line.split()[2] for line in output.stdout.splitlines()}
    assert {name for name in exported if name.startswith("cu")} == listed
    assert all(name.startswith(("cu", "pumice_machine_")) for name in exported)


def test_every_name_can_be_found_by_its_base_version_and_kind_of_stream(tmp_path: Path, newest: Path) -> None:
    rows = list(_symbols())
    questions = [(base, version, PER_THREAD if thread else 0) for base, version, thread, _ in rows]
    _, answers = _probe(tmp_path / "m", "13.5", newest, questions)
    for (base, version, thread, name), (code, status, got) in zip(rows, answers, strict=True):
        rivals = {n for b, v, t, n in rows if b == base and v == version and t == thread}
        assert (code, status) == (0, FOUND), name
        assert got in rivals, f"{base} at {version} is {got}, not {name}"


def test_the_list_has_the_names_and_versions_of_nvidias_header() -> None:
    of_windows = {"cuWGLGetDevice"}
    renamed = {("cuGraphInstantiate", 12000, False)}  # cuda.h defines the name as that of WithFlags since 12.0
    wanted = {row for row in _header_names() if row[0] not in of_windows} | renamed
    assert len(wanted) > 700
    assert {(base, version, thread) for base, version, thread, _ in _symbols()} == wanted


def test_the_limit_library_has_the_versions_of_nvidias_header() -> None:
    wanted = {(base, version) for base, version, _ in _header_names()}
    hooked = {hook.name: hook.since for hook in hooks() if hook.library == "CUDA"}
    exported = {name: base for base, _, _, name in _symbols()}
    assert {name for name, since in hooked.items() if (exported[name], since) not in wanted} == set()


def test_nvidias_runtime_ends_with_an_error_on_a_driver_that_is_not_nvidias(tmp_path: Path, newest: Path) -> None:
    found = [path for path in _of_nvidias_runtime() if path.name.startswith("libcudart.so")]
    create(load_model("machine: n1\ncuda: '13.0'\ncards: [{preset: A100-SXM4-40GB}]\n"), tmp_path / "m").close()
    program = (
        "import ctypes, sys; at = ctypes.c_void_p(); print(ctypes.CDLL(sys.argv[1]).cudaMalloc(ctypes.byref(at), 4096))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(found[0])],
        env={**os.environ, "PUMICE_MACHINE": str(tmp_path / "m"), "LD_LIBRARY_PATH": str(newest.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "500\n"), done.stderr


def test_errors_have_the_drivers_names_and_texts(newest: Path) -> None:
    driver = ctypes.CDLL(str(newest))
    text = ctypes.c_char_p()
    assert driver.cuGetErrorName(2, ctypes.byref(text)) == 0
    assert text.value == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert driver.cuGetErrorString(2, ctypes.byref(text)) == 0
    assert text.value == b"out of memory"
    assert driver.cuGetErrorName(12345, ctypes.byref(text)) == 1
    assert text.value is None
