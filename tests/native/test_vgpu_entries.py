"""Every entry of the hook table does its work: what allocates, frees, tracks, asks or launches is tried one by one.

``hooks.def`` is enumerated: an entry that no table here (or, for what allocates, ``entries.py``) speaks of fails the suite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.vgpu_kit import MIB, Container, Hook, build, hooks, on_a_switch, read_region

from pumice_lab import machine

LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "LIBCUDA_LOG_LEVEL": "0"}
BLOCK, TOTAL, OUT_OF_MEMORY, UNINITIALIZED, NOT_SUPPORTED = 64 * MIB, 3000 * MIB, 2, 1, 801
GIVEN_BACK = [BLOCK, 0]
CHARGED_AND_GONE = [True, BLOCK, 0]  # a context costs something, its block is counted, nothing is left of either

BOOKS: dict[str, list[Any]] = {
    "cuMemFree": [True, 0],  # the driver's own answer: it hands out no 32-bit pointers
    "cuMemFree_v2": GIVEN_BACK,
    "cuMemFreeAsync": GIVEN_BACK,
    "cuMemFreeAsync_ptsz": GIVEN_BACK,
    "cuArrayDestroy": [2 * MIB, 0],  # whole blocks: which arrays share one nobody tells
    "cuMipmappedArrayDestroy": [2 * MIB, 0],
    "cuMemPoolCreate": [0, 0],
    "cuMemPoolTrimTo": GIVEN_BACK,
    "cuMemPoolDestroy": GIVEN_BACK,
    "cuMemPoolSetAttribute": [0],
    "cuMemMap": [BLOCK, BLOCK, 0],  # released, yet still mapped: it stays the container's
    "cuMemUnmap": [BLOCK, BLOCK, 0],
    "cuMemRelease": [BLOCK, 0, 0],  # the last: memory of the host, which is not the card's
    "cuMemRetainAllocationHandle": GIVEN_BACK,
    "cuMemImportFromShareableHandle": [BLOCK, BLOCK, 0],
    "cuMemExportToShareableHandle": GIVEN_BACK,  # while another process holds it, and when that ended
    "cuIpcGetMemHandle": GIVEN_BACK,
    "cuIpcOpenMemHandle": [0, 0, -BLOCK],  # paid for by who made it, then by who opened it
    "cuIpcOpenMemHandle_v2": [0, 0, -BLOCK],
    "cuIpcCloseMemHandle": [0, 0, -BLOCK],
    "cuMemPoolImportPointer": [True, 0],  # of a pool that was not imported
    "cuCtxCreate": CHARGED_AND_GONE,
    "cuCtxCreate_v2": CHARGED_AND_GONE,
    "cuCtxCreate_v3": CHARGED_AND_GONE,
    "cuCtxCreate_v4": CHARGED_AND_GONE,
    "cuCtxDestroy": CHARGED_AND_GONE,
    "cuCtxDestroy_v2": CHARGED_AND_GONE,
    "cuDevicePrimaryCtxRetain": CHARGED_AND_GONE,
    "cuDevicePrimaryCtxRelease": CHARGED_AND_GONE,
    "cuDevicePrimaryCtxRelease_v2": CHARGED_AND_GONE,
    "cuDevicePrimaryCtxReset": CHARGED_AND_GONE,
    "cuDevicePrimaryCtxReset_v2": CHARGED_AND_GONE,
    "cuCtxDetach": [0, 0],  # with the last user it goes
    "cuGreenCtxCreate": CHARGED_AND_GONE,
    "cuGreenCtxDestroy": [0, 64 * MIB, 0],
    "cuImportExternalMemory": [OUT_OF_MEMORY, BLOCK, 0],
    "cuDestroyExternalMemory": [OUT_OF_MEMORY, BLOCK, 0],
    "cuMulticastCreate": [0, BLOCK, 0],  # it takes nothing, and what is bound goes with it
    "cuMulticastUnbind": [2 * BLOCK, BLOCK, 0],
    "cuMulticastBindMem": [2 * BLOCK, BLOCK, 0],
    "cuMulticastBindMem_v2": [2 * BLOCK, BLOCK, 0],
    "cuMulticastBindAddr": GIVEN_BACK,
    "cuMulticastBindAddr_v2": GIVEN_BACK,
    "nvmlShutdown": [[0, 0], [0, UNINITIALIZED, UNINITIALIZED], [UNINITIALIZED, 0, 0]],
    "cuCtxSetLimit": GIVEN_BACK,
    "cuModuleUnload": GIVEN_BACK,
    "cuModuleGetFunction": [0, BLOCK, 0],  # code is loaded when it is first asked for
    "cuLibraryLoadData": [0, 0],
    "cuLibraryLoadFromFile": [0, 0],
    "cuLibraryUnload": [0, BLOCK, 0],
    "cuLibraryGetGlobal": [0, BLOCK, 0],
    "cuLibraryGetModule": [0, 0],
    "cuKernelGetFunction": [0, 0],
    "cuGraphInstantiate": [OUT_OF_MEMORY, 0],
    "cuGraphInstantiate_v2": [OUT_OF_MEMORY, 0],
    "cuGraphInstantiateWithFlags": [OUT_OF_MEMORY, 0],
    "cuGraphInstantiateWithParams": [OUT_OF_MEMORY, 0],
    "cuGraphInstantiateWithParams_ptsz": [OUT_OF_MEMORY, 0],
    "cuGraphExecUpdate": [True, 0],
    "cuGraphExecUpdate_v2": [True, 0],
    "cuGraphExecDestroy": GIVEN_BACK,
    "cuDeviceGraphMemTrim": GIVEN_BACK,
    "cuDeviceTotalMem": [TOTAL],
    "cuDeviceTotalMem_v2": [TOTAL],
    "cuPointerGetAttribute": [0, 1],  # managed memory that a program asked for is told as such
    "cuPointerGetAttributes": [0, 1],
    "cuMemGetInfo": [TOTAL, 0],
    "cuMemGetInfo_v2": [TOTAL, 0],
}
UPLOADS = {"cuGraphUpload", "cuGraphUpload_ptsz"}  # they take memory (test_vgpu_memory.py) and no GPU time


def of_kind(*kinds: str, library: str = "CUDA") -> list[str]:
    return [hook.name for hook in hooks() if hook.kind in kinds and hook.library == library]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    build()
    folder = tmp_path_factory.mktemp("books")
    machine.create(on_a_switch("2xH100-SXM5-80GB"), folder / "m")
    found = Container(folder / "m", folder, LIMIT).child("hook_effects.py").json()
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("entry", [*of_kind("FREE", "TRACK", "CONTEXT", "QUERY"), *of_kind("TRACK", library="NVML")])
def test_the_books_are_right_after_every_entry(entry: str, books: dict[str, Any]) -> None:
    assert entry in BOOKS, (
        f"nobody tries what {entry} does to the books: add it to hook_effects.py and to the table here"
    )
    assert books[entry] == BOOKS[entry]


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Milliseconds of machine time that 300 kernels of 1 ms take through each entry at 40 %."""
    build()
    folder = tmp_path_factory.mktemp("launches")
    machine.create(machine.machine_of("A100-SXM4-40GB", virtual_time=True), folder / "m")
    limits = {"CUDA_DEVICE_SM_LIMIT": "40", "GPU_CORE_UTILIZATION_POLICY": "force"}
    found = Container(folder / "m", folder, limits).child("launches.py").json()
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("entry", [name for name in of_kind("LAUNCH") if name not in UPLOADS])
def test_every_way_to_launch_is_limited(entry: str, spans: dict[str, float]) -> None:
    assert entry in spans, f"{entry} launches and nobody times it: add it to launches.py"
    assert spans[entry] == pytest.approx(300 / 0.4, rel=0.03)


def test_a_thread_that_captures_never_waits_for_its_turn(spans: dict[str, float]) -> None:
    assert spans["capture"] == 0


@pytest.mark.parametrize("entry", of_kind("REFUSE"))
def test_what_nobody_could_account_for_is_refused_where_there_is_a_limit(entry: str, tmp_path: Path) -> None:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    assert Container(tmp_path / "m", tmp_path, LIMIT).child("refused.py", entry).json() == NOT_SUPPORTED


@pytest.mark.parametrize("entry", of_kind("INIT", library="NVML"))
def test_every_way_to_start_nvml_fills_the_region(entry: str, tmp_path: Path) -> None:
    build()
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), tmp_path / "m")
    container = Container(tmp_path / "m", tmp_path, LIMIT)
    ran = container.child("nvml_only.py", entry)
    assert ran.json() == [2, [[TOTAL] * 2] * 2]  # known at once; both cards by both versions of the question
    region = read_region(container.region)
    assert region.device_num == 2
    assert all(uuid.startswith(b"GPU-") for uuid in region.uuids[:2])


def test_every_hook_is_of_a_kind_that_is_tried() -> None:
    tried = {"ENTRY", "INIT", "ALLOC", "FREE", "CONTEXT", "TRACK", "LAUNCH", "QUERY", "REFUSE"}
    unknown = [hook for hook in hooks() if hook.kind not in tried]
    assert unknown == []
    nvml = {hook for hook in hooks() if hook.library == "NVML"}
    assert {hook.kind for hook in nvml} == {"INIT", "QUERY", "TRACK"}
    requested = {Hook(name, "QUERY", 0, "NVML") for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")}
    assert {hook for hook in nvml if hook.kind == "QUERY"} == requested  # what nvml_only.py and holder.py ask
