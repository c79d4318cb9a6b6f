"""Modules of every form that CUDA's tools make, on the emulated driver: their kernels and variables are known by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.tests.native.cuda_images import CUBIN, LZ4, PTX, ZSTD, Kernel, Variable, cubin, fat

from pumice_lab.machine import MachineError, create, library_dir, machine_of

NOT_FOUND = 500
LONG = "_Z" + "a_name_that_templates_made_" * 40 + "v"
REGISTERS, SHARED = 4, 1

PROBE = r"""
import ctypes, json, sys
driver = ctypes.CDLL(sys.argv[1])
order = json.load(sys.stdin)
pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
assert driver.cuInit(0) == 0
context, module, library = pointer(), pointer(), pointer()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
parts = [ctypes.create_string_buffer(bytes.fromhex(part), len(part) // 2) for part in order["parts"]]
image = ctypes.addressof(parts[0])
if order["wrapper"]:
    listed = (ctypes.c_uint64 * (len(parts) + 1))(*map(ctypes.addressof, parts), 0)
    wrapper = (ctypes.c_uint64 * 3)(0x466243B1 | order["wrapper"] << 32, image, ctypes.addressof(listed))
    image = ctypes.addressof(wrapper)
answer = {"load": driver.cuModuleLoadData(ctypes.byref(module), pointer(image)), "kernels": {}, "variables": {}}
if answer["load"] == 0:
    count = ctypes.c_uint()
    assert driver.cuModuleGetFunctionCount(ctypes.byref(count), module) == 0
    found = (pointer * 8)()
    assert driver.cuModuleEnumerateFunctions(found, 8, module) == 0
    answer["listed"] = []
    for function in found[: count.value]:
        text = ctypes.c_char_p()
        assert driver.cuFuncGetName(ctypes.byref(text), pointer(function)) == 0
        answer["listed"].append(text.value.decode())
    for name in order["kernels"]:
        function, value, offset, length = pointer(), number(), size(), size()
        code = driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        if code:
            answer["kernels"][name] = code
            continue
        facts = []
        for attribute in (4, 1):
            assert driver.cuFuncGetAttribute(ctypes.byref(value), attribute, function) == 0
            facts.append(value.value)
        parameters = []
        while driver.cuFuncGetParamInfo(function, size(len(parameters)), ctypes.byref(offset), ctypes.byref(length)) == 0:
            parameters.append([offset.value, length.value])
        launched = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        answer["kernels"][name] = [*facts, parameters, launched]
    for name in order["variables"]:
        at, length = pointer(), size()
        code = driver.cuModuleGetGlobal_v2(ctypes.byref(at), ctypes.byref(length), module, name.encode())
        into = ctypes.create_string_buffer(8)
        if code == 0:
            assert driver.cuMemcpyDtoH_v2(into, at, size(min(8, length.value))) == 0
        answer["variables"][name] = code or [length.value, into.raw[: min(8, length.value)].hex()]
    assert driver.cuModuleUnload(module) == 0
print(json.dumps(answer))
"""

Tried = Callable[..., dict[str, Any]]


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    try:
        library = library_dir() / "libcuda.so.1"
    except MachineError as error:
        pytest.skip(str(error))
    create(machine_of("A100-SXM4-40GB"), tmp_path / "m").close()

    def run(
        *parts: bytes, kernels: tuple[str, ...] = (), variables: tuple[str, ...] = (), wrapper: int = 0
    ) -> dict[str, Any]:
        order = {
            "parts": [part.hex() for part in parts],
            "kernels": kernels,
            "variables": variables,
            "wrapper": wrapper,
        }
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(library)],
            input=json.dumps(order),
            env={**os.environ, "PUMICE_MACHINE": str(tmp_path / "m")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


IMAGE = cubin(
    Kernel("plain", registers=15, shared=1024, parameters=(8, 4, 8)),
    Kernel(LONG),
    Variable("table", 4000, b"\1\2\3\4"),
    Variable("counter", 4),
    Variable("everywhere", 8, managed=True),
)


def test_a_cubin_has_the_kernels_and_variables_that_it_names_and_no_others(tried: Tried) -> None:
    answer = tried(IMAGE, kernels=("plain", LONG, "other"), variables=("table", "counter", "everywhere", "other"))
    assert sorted(answer["listed"]) == sorted(("plain", LONG))
    assert answer["kernels"] == {
        "plain": [15, 1024, [[0, 8], [8, 4], [16, 8]], 0],
        LONG: [32, 0, [], 0],
        "other": NOT_FOUND,
    }
    assert answer["variables"] == {
        "table": [4000, "0102030400000000"],
        "counter": [4, "00000000"],
        "everywhere": [8, "0000000000000000"],
        "other": NOT_FOUND,
    }


def ptx(arch: int, *kernels: str) -> bytes:
    entries = "".join(f".visible .entry {name}() {{ ret; }}\n" for name in kernels)
    return f".version 7.0\n.target sm_{arch}\n.address_size 64\n{entries}".encode() + b"\0"


@pytest.mark.parametrize("wrapper", [0, 1])
def test_of_a_fat_binary_the_part_for_the_card_counts(tried: Tried, wrapper: int) -> None:
    """The machine's card is an sm_80: a cubin of its generation, at most as new, is better than any PTX."""
    newer, older, other = cubin(Kernel("newer")), cubin(Kernel("older")), cubin(Kernel("other"))
    whole = fat((CUBIN, 70, other), (PTX, 80, ptx(80, "text")), (CUBIN, 80, older), (CUBIN, 86, newer))
    assert tried(whole, wrapper=wrapper)["listed"] == ["older"]
    assert tried(fat((CUBIN, 70, other), (PTX, 75, ptx(75, "text")), (PTX, 90, ptx(90, "late"))), wrapper=wrapper)[
        "listed"
    ] == ["text"]


def test_a_list_of_fat_binaries_is_one_module(tried: Tried) -> None:
    parts = [fat((CUBIN, 80, cubin(Kernel(name)))) for name in ("one", "two", "three")]
    assert tried(*parts, wrapper=2)["listed"] == ["one", "two", "three"]


@pytest.mark.parametrize("compression", [LZ4, ZSTD])
def test_what_is_compressed_is_taken_on_trust(tried: Tried, compression: int) -> None:
    answer = tried(fat((CUBIN, 80, b"packed" * 20, compression)), kernels=("whatever", LONG))
    assert [facts[-1] for facts in answer["kernels"].values()] == [0, 0]


def test_names_of_any_length_are_found_in_every_form(tried: Tried) -> None:
    text = f"pumice-kernel name={LONG} ns=1000\npumice-global name={LONG}_v bytes=4\n".encode() + b"\0"
    for image in (text, ptx(80, LONG), cubin(Kernel(LONG)), fat((PTX, 80, ptx(80, LONG)))):
        answer = tried(image, kernels=(LONG, LONG[:-1], LONG[:119]))
        assert isinstance(answer["kernels"].pop(LONG), list)
        assert set(answer["kernels"].values()) == {NOT_FOUND}


def test_ptx_says_what_a_kernel_takes_and_how_large_a_variable_is(tried: Tried) -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[16] = {0, 0, 128, 63};
.const .align 4 .b8 k[256];
.global .attribute(.managed) .align 4 .u32 everywhere;
.global .v4 .f32 four;
.visible .entry plain(
    .param .u64 .ptr .align 1 plain_param_0,
    .param .f32 plain_param_1,
    .param .align 16 .b8 plain_param_2[24],
    .param .u8 plain_param_3
)
.maxntid 128, 1, 1
{
    .reg .b64 %rd<3>;
    ret;
}
"""
    variables = ("table", "k", "everywhere", "four")
    answer = tried(text.encode() + b"\0", kernels=("plain",), variables=variables)
    assert answer["kernels"]["plain"][2] == [[0, 8], [8, 4], [16, 24], [40, 1]]
    assert [answer["variables"][name][0] for name in variables] == [16, 256, 4, 16]


def test_a_damaged_cubin_harms_nobody(tried: Tried) -> None:
    for at in range(0, len(IMAGE), len(IMAGE) // 12):
        damaged = bytearray(IMAGE)
        damaged[at : at + 8] = b"\xff" * 8
        tried(bytes(damaged[: len(IMAGE) - at // 2]), kernels=("plain",))
