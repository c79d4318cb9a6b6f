"""Whichever way a program finds a driver function, it gets ours with the ABI it asked for; the rest is as without us."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.native_build import NATIVE
from kit.vgpu_kit import LIBRARY, PROGRAMS, Container, build, hooks

from pumice_lab import machine

DRIVERS = ["", "driver-13000", "driver-12090", "driver-11080"]
NAMES = {hook.name for hook in hooks()}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine") / "m"
    machine.create(machine.machine_of("A100-SXM4-40GB"), directory)
    return directory


def answers(container: Container, *mode: str, **more: str) -> Iterator[tuple[str, str, str, str]]:
    ran = container.run(PROGRAMS / "symbols", *mode, **more)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    for line in ran.out.splitlines():
        path, query, tenant, name = line.split()
        yield path, query, tenant, name


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_hooked_name_is_ours_where_the_driver_has_it(card: Path, tmp_path: Path, driver: str) -> None:
    container = Container(card, tmp_path, driver=driver)
    native = {(path, query): name for path, query, _, name in answers(container, LD_PRELOAD="<unset>")}
    for path, query, tenant, name in answers(container):
        assert name == native[path, query], (path, query)
        if query in NAMES and name != "-":
            assert (tenant, name) == ("libvgpu.so", query)
        else:
            assert tenant != "libvgpu.so"


@pytest.mark.parametrize("driver", DRIVERS)
def test_get_proc_address_answers_with_the_version_and_stream_flavour_asked_for(
    card: Path, tmp_path: Path, driver: str
) -> None:
    container = Container(card, tmp_path, driver=driver)
    native = {
        (path, query): (tenant, name) for path, query, tenant, name in answers(container, "proc", LD_PRELOAD="<unset>")
    }
    ours = {(path, query): (tenant, name) for path, query, tenant, name in answers(container, "proc")}
    assert ours.keys() == native.keys()
    translated = 0
    for (path, query), (tenant, name) in ours.items():
        if path == "status":
            assert (tenant, name) == native[path, query]  # return code and symbol status are the driver's
            continue
        assert name == native[path, query][1], (path, query)
        assert (tenant == "libvgpu.so") == (name in NAMES), (path, query, tenant, name)
        translated += tenant == "libvgpu.so"
    assert translated > 500


def test_a_driver_that_hands_out_other_addresses_than_it_exports_is_translated_by_version_and_flag(
    card: Path, tmp_path: Path
) -> None:
    """Nothing promises that cuGetProcAddress answers with exported symbols. This driver's are jumps to what it hands out."""
    container = Container(card, tmp_path, driver=str(NATIVE / "build/vgpu/jumping"))
    native = {
        (path, query): (tenant, name.removeprefix("inner_"))
        for path, query, tenant, name in answers(container, "proc", LD_PRELOAD="<unset>")
    }
    translated = set()
    for path, query, tenant, name in answers(container, "proc"):
        if path == "status":
            assert (tenant, name) == native[path, query]
            continue
        assert name.removeprefix("inner_") == native[path, query][1], (path, query)
        assert (tenant == "libvgpu.so") == (name in NAMES), (path, query, tenant, name)
        translated |= {name} & NAMES
    known = machine.machine_of("A100-SXM4-40GB").cuda
    assert translated == {hook.name for hook in hooks() if hook.library == "CUDA" and hook.since <= known}


def test_a_program_linked_against_the_driver_meets_us(card: Path, tmp_path: Path) -> None:
    container = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"})
    assert container.run(PROGRAMS / "direct").json() == [3000 << 20, 3000 << 20]


def test_without_a_driver_its_names_are_not_there(card: Path, tmp_path: Path) -> None:
    found = Container(card, tmp_path).run(PROGRAMS / "symbols", "absent").out.splitlines()
    assert found[:3] == ["default cuInit - -", "next cuInit - -", "default curl_easy_init - -"]
    assert found[3] == "error kept"
    assert found[4].startswith("default puts libc.so")


@pytest.mark.parametrize("order", ["before", "after"])
def test_another_preloaded_library_still_finds_the_next_definition(card: Path, tmp_path: Path, order: str) -> None:
    pair = [str(LIBRARY), str(PROGRAMS / "interposer.so")]
    preload = ":".join(pair if order == "after" else reversed(pair))
    assert Container(card, tmp_path).run(PROGRAMS / "chain", LD_PRELOAD=preload).code == 0


@pytest.mark.parametrize("sanitizer", ["address", "undefined", "thread"])
def test_a_program_with_a_sanitizer_starts_under_the_preload(card: Path, tmp_path: Path, sanitizer: str) -> None:
    program = tmp_path / "program"
    source = NATIVE / "vgpu/tests/programs/claim.c"
    built = subprocess.run(
        ["cc", f"-fsanitize={sanitizer}", str(source), "-o", str(program)], capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"the compiler has no sanitizer for {sanitizer}")
    # Its runtime asks for symbols before it is ready itself, and wants to be the first library.
    options = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0", "TSAN_OPTIONS": "report_bugs=0"}
    ran = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "LIBCUDA_LOG_LEVEL": "0"}).run(
        program, str(3000 << 20), str(1 << 20), **options
    )
    assert ran.out.split() == ["2", "0"], ran.err


def test_a_million_look_ups_leak_nothing(card: Path, tmp_path: Path) -> None:
    assert int(Container(card, tmp_path).run(PROGRAMS / "symbols", "many").out) == 0


# ---- the file itself ----


def readelf(*options: str) -> str:
    build()
    return subprocess.run(["readelf", "-W", *options, str(LIBRARY)], capture_output=True, text=True, check=True).stdout


def test_it_exports_what_it_hooks_and_nothing_else() -> None:
    exported = {
        fields[7].split("@")[0]
        for fields in (line.split() for line in readelf("--dyn-syms").splitlines())
        if len(fields) == 8 and fields[6].isdigit() and fields[4] in {"GLOBAL", "WEAK"}
    }
    assert exported == NAMES | {"dlsym", "dlvsym"}


def test_it_needs_only_the_c_library_and_an_old_one_will_do() -> None:
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", readelf("-d")))
    assert {name for name in needed if not name.startswith("ld-linux")} <= {
        "libc.so.6",
        "libdl.so.2",
        "libpthread.so.0",
    }
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", readelf("-V"))}
    assert max(versions) <= (2, 17)


def test_nothing_of_ours_runs_when_it_is_loaded() -> None:
    sections = readelf("-S")
    for name in (".init_array", ".fini_array"):
        found = re.search(rf"\{name}\s+\w+\s+\w+\s+\w+\s+(\w+)", sections)
        assert found is not None
        assert int(found[1], 16) == 8  # the compiler's own stub


def test_a_process_that_never_uses_the_gpu_touches_no_region(card: Path, tmp_path: Path) -> None:
    ran = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"}).run("/bin/sh", "-c", "ls / | wc -l; true")
    assert ran.code == 0
    assert ran.err == ""
    assert list(tmp_path.iterdir()) == []


def test_the_policy_includes_no_driver_header() -> None:
    for folder in ("core", "policy", "book"):
        for source in (NATIVE / "vgpu/src" / folder).glob("*.[ch]"):
            assert "driver/" not in source.read_text(), source


def test_the_look_up_that_the_c_library_hands_out_is_ours(card: Path, tmp_path: Path) -> None:
    program = """
import ctypes as c
libc = c.CDLL("libc.so.6")
look = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)
theirs = look(look(c.cast(c.CDLL(None).dlsym, c.c_void_p).value)(libc._handle, b"dlsym"))
cuda = c.CDLL("libcuda.so.1")
print(theirs(cuda._handle, b"cuMemAlloc_v2") == c.cast(cuda.cuMemAlloc_v2, c.c_void_p).value)
"""
    ran = Container(card, tmp_path).run(sys.executable, "-I", "-S", "-c", program)
    assert (ran.code, ran.out.strip()) == (0, "True"), ran.err
