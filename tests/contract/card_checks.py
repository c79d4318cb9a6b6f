"""Statements about NVML and CUDA's driver API that hold on every NVIDIA card, one function per statement.

    python -m tests.contract.card_checks NAME

Each check runs in a process of its own, on the emulated machine or on a real card, and fails by an exception. A check changes
no setting of the card: plain allocations, small kernels, questions. What a real card or its driver cannot do at all (an
integrated card without memory information, a container without the PTX compiler) ends with ``Unsupported``, exit code 5; what
somebody else on the card may disturb is tried a few times.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

import pynvml

from pumice.adapters.load import NOT_FOUND, SPIN, CudaError, Driver

MIB = 1 << 20
UNSUPPORTED = 5  # the exit code of a check that this card cannot be asked
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


class Unsupported(Exception):
    """The feature does not exist on this card; never on the emulated machine."""


def beside_others(function: Callable[[], None]) -> Callable[[], None]:
    """Programs of others may come and go on a real card: the statement has to hold in one of five tries."""

    @functools.wraps(function)
    def tried() -> None:
        for attempt in range(5):
            try:
                return function()
            except AssertionError:
                if attempt == 4 or emulated():
                    raise
                time.sleep(0.5)
        return None

    return tried


def emulated() -> bool:
    return hasattr(ctypes.CDLL("libcuda.so.1"), "pumice_machine_now_ns")


def close(one: int, other: int) -> bool:
    """Equal; on a real card up to a granule or two that the driver took or gave back for itself."""
    return abs(one - other) <= (0 if emulated() else 4 * MIB)


def refused(call: Callable[..., object], *arguments: object) -> str:
    """The name of the error that the call is refused with; fails when it is not refused."""
    try:
        call(*arguments)
    except CudaError as error:
        return error.name
    except pynvml.NVMLError as error:
        return type(error).__name__
    raise AssertionError(f"{call} was not refused")


def ready() -> Driver:
    """A driver with the primary context of card 0 current."""
    driver = Driver()
    driver.use(driver.device(0))
    return driver


# ---- the driver API


@check
def nothing_works_before_init() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    count = c_int()
    assert cuda.cuDeviceGetCount(byref(count)) == 3  # CUDA_ERROR_NOT_INITIALIZED
    assert cuda.cuInit(1) == 1  # flags must be 0: CUDA_ERROR_INVALID_VALUE
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGetCount(byref(count)) == 0
    assert count.value >= 1


@check
def a_card_that_is_not_there_is_an_invalid_device() -> None:
    driver = Driver()
    assert refused(driver.device, 99) == "CUDA_ERROR_INVALID_DEVICE"
    assert refused(driver.device, -1) in ("CUDA_ERROR_INVALID_DEVICE", "CUDA_ERROR_INVALID_VALUE")


@check
def memory_needs_a_context() -> None:
    driver = Driver()
    assert refused(driver.allocate, MIB) == "CUDA_ERROR_INVALID_CONTEXT"
    assert refused(driver.synchronize) == "CUDA_ERROR_INVALID_CONTEXT"


@check
@beside_others
def an_allocation_takes_what_it_says_and_gives_it_back() -> None:
    driver = ready()
    driver.free(driver.allocate(64 * MIB))  # a real driver takes a little for itself at the first one
    before = driver.free_memory()
    pointer = driver.allocate(64 * MIB)
    assert pointer % 256 == 0
    assert 64 * MIB <= before - driver.free_memory() <= 68 * MIB
    driver.free(pointer)
    assert close(driver.free_memory(), before)


@check
@beside_others
def more_than_the_card_has_is_out_of_memory_and_takes_nothing() -> None:
    driver = ready()
    before = driver.free_memory()
    assert refused(driver.allocate, driver.total(0) + MIB) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert refused(driver.allocate, 1 << 60) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert close(driver.free_memory(), before)


@check
def zero_bytes_and_foreign_pointers_are_invalid_values() -> None:
    driver = ready()
    assert refused(driver.allocate, 0) == "CUDA_ERROR_INVALID_VALUE"
    assert refused(driver.free, 0xDEAD0000) == "CUDA_ERROR_INVALID_VALUE"
    pointer = driver.allocate(MIB)
    assert refused(driver.free, pointer + 512) == "CUDA_ERROR_INVALID_VALUE"
    driver.free(pointer)
    assert refused(driver.free, pointer) == "CUDA_ERROR_INVALID_VALUE"


@check
def bytes_come_back_as_they_went() -> None:
    driver = ready()
    sent = os.urandom(100_000)
    pointer, back = driver.allocate(len(sent)), ctypes.create_string_buffer(len(sent))
    driver.check("cuMemcpyHtoD_v2", c_uint64(pointer), c_char_p(sent), c_size_t(len(sent)))
    driver.check("cuMemsetD8_v2", c_uint64(pointer + 10), c_uint(7), c_size_t(5))
    driver.check("cuMemcpyDtoH_v2", back, c_uint64(pointer), c_size_t(len(sent)))
    assert back.raw == sent[:10] + bytes([7] * 5) + sent[15:]


@check
def rows_of_a_pitched_allocation_are_padded() -> None:
    driver = ready()
    pointer, pitch = driver.allocate_pitched(1000, 64)
    assert pitch >= 1000
    assert pitch % 256 == 0
    driver.free(pointer)


def spin(driver: Driver) -> c_void_p:
    """The kernel of ``pumice burn``; PTX needs the driver's compiler, a library of its own that some containers lack."""
    try:
        return driver.kernel(SPIN, "pumice_spin_ns")
    except CudaError as error:
        if error.name in ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "CUDA_ERROR_JIT_COMPILATION_DISABLED"):
            raise Unsupported(f"this driver compiles no PTX: {error}") from error
        raise


@check
def an_image_that_is_none_is_refused() -> None:
    driver = ready()
    spin(driver)
    expected = ("CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_INVALID_SOURCE")
    assert refused(driver.kernel, b".version 6.0\nnonsense\n\0", "k") in (*expected, "CUDA_ERROR_NO_BINARY_FOR_GPU")
    assert refused(driver.kernel, SPIN, "no_such_kernel") == "CUDA_ERROR_NOT_FOUND"


@check
def impossible_launches_are_invalid_values() -> None:
    driver = ready()
    kernel, values = spin(driver), (c_uint64(1000), c_uint64(1))
    parameters = (c_void_p * 2)(*(ctypes.addressof(value) for value in values))

    def launch(grid: int, block: int) -> None:
        shape = (grid, 1, 1, block, 1, 1, 0)
        driver.check("cuLaunchKernel", kernel, *map(c_uint, shape), None, parameters, None)

    launch(1, 32)
    driver.synchronize()
    for grid, block in ((0, 32), (1, 0), (1, 4096)):
        assert refused(launch, grid, block) == "CUDA_ERROR_INVALID_VALUE", (grid, block)


@check
def events_are_not_ready_until_the_work_before_them_is_done() -> None:
    driver = ready()
    stream, kernel = driver.stream(), spin(driver)
    values = (c_uint64(50_000_000), c_uint64(5_000_000))
    parameters = (c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    begin, end = c_void_p(), c_void_p()
    driver.launch(kernel, parameters, stream)  # a real driver loads a kernel at its first launch, and waits for it
    driver.synchronize()
    driver.check("cuEventCreate", byref(begin), c_uint(0))
    driver.check("cuEventCreate", byref(end), c_uint(0))
    driver.check("cuEventRecord", begin, stream)
    driver.launch(kernel, parameters, stream)
    driver.check("cuEventRecord", end, stream)
    assert refused(driver.check, "cuEventQuery", end) == "CUDA_ERROR_NOT_READY"
    assert refused(driver.check, "cuStreamQuery", stream) == "CUDA_ERROR_NOT_READY"
    driver.check("cuEventSynchronize", end)
    driver.check("cuEventQuery", end)
    spent = c_float()
    driver.check("cuEventElapsedTime", byref(spent), begin, end)
    assert 1 < spent.value < 5000


@check
def errors_have_names_and_unknown_ones_have_none() -> None:
    driver = Driver()
    assert driver.error_name(2) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert driver.error_name(0) == "CUDA_SUCCESS"
    assert refused(driver.check, "cuGetErrorName", c_int(123456), byref(c_char_p())) == "CUDA_ERROR_INVALID_VALUE"


@check
def symbols_are_found_by_name_and_version() -> None:
    driver = ready()
    found, pointer = c_void_p(), c_uint64()
    driver.check("cuGetProcAddress", c_char_p(b"cuMemAlloc"), byref(found), c_int(11030), c_uint64(0))
    assert found.value
    # Whether it is the exported address is the driver's affair; it has to be the 64-bit version of the call.
    assert ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t)(found.value)(ctypes.addressof(pointer), MIB) == 0
    driver.free(pointer.value)
    missing = (c_char_p(b"cuNoSuchCall"), byref(found), c_int(11030), c_uint64(0))
    found.value = None
    ask = driver.symbol("cuGetProcAddress")
    assert ask is not None
    assert ask(*missing) in (0, NOT_FOUND)  # newer drivers may say so by an empty pointer alone
    assert found.value is None


@check
def an_empty_context_stack_cannot_be_popped() -> None:
    driver = Driver()
    popped = c_void_p()
    assert refused(driver.check, "cuCtxPopCurrent_v2", byref(popped)) == "CUDA_ERROR_INVALID_CONTEXT"
    flags, active = c_uint(), c_int(1)
    driver.check("cuDevicePrimaryCtxGetState", c_int(driver.device(0)), byref(flags), byref(active))
    assert active.value == 0


# ---- NVML


def card() -> Any:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def memory_of(handle: Any, version: int | None = None) -> Any:
    """Integrated cards share the computer's memory and have no answer."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission) as error:
        raise Unsupported(f"no memory information: {error}") from error


def same_card(driver: Driver) -> Any:
    """CUDA's device 0 among NVML's cards: CUDA puts the fastest first and may see fewer."""
    pynvml.nvmlInit()
    text = ctypes.create_string_buffer(64)
    driver.check("cuDeviceGetPCIBusId", text, c_int(64), c_int(driver.device(0)))
    return pynvml.nvmlDeviceGetHandleByPciBusId(text.value.decode())


@check
def nvml_counts_its_users() -> None:
    assert refused(pynvml.nvmlDeviceGetCount) in ("NVMLError_Uninitialized", "NVMLError_LibraryNotFound")
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() >= 1
    pynvml.nvmlShutdown()
    assert refused(pynvml.nvmlDeviceGetCount) == "NVMLError_Uninitialized"


@check
def a_card_is_the_same_by_index_uuid_and_address() -> None:
    handle = card()
    uuid, bus = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetPciInfo(handle).busId
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    for other in (pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml.nvmlDeviceGetHandleByPciBusId(bus)):
        assert pynvml.nvmlDeviceGetIndex(other) == 0


@check
def nvml_refuses_cards_that_are_not_there() -> None:
    card()
    assert refused(pynvml.nvmlDeviceGetHandleByIndex, 99) == "NVMLError_InvalidArgument"
    unknown = "GPU-00000000-0000-0000-0000-00000000dead"
    assert refused(pynvml.nvmlDeviceGetHandleByUUID, unknown) in ("NVMLError_NotFound", "NVMLError_InvalidArgument")


@check
@beside_others
def memory_adds_up_in_both_versions() -> None:
    handle = card()
    first, second = memory_of(handle), memory_of(handle, pynvml.nvmlMemory_v2)
    assert first.used + first.free == first.total == second.total
    assert second.used + second.free + second.reserved == second.total
    assert first.free == second.free


@check
def nvml_and_the_driver_agree() -> None:
    driver = Driver()
    handle, version = same_card(driver), c_int()
    driver.check("cuDriverGetVersion", byref(version))
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == version.value
    assert pynvml.nvmlDeviceGetName(handle) == driver.name(0)
    memory = memory_of(handle, pynvml.nvmlMemory_v2)
    assert 0 <= memory.total - driver.total(0) <= memory.total // 20


@check
@beside_others
def a_process_is_listed_with_its_memory_while_it_has_a_context() -> None:
    handle = same_card(Driver())
    before = memory_of(handle).used
    driver = ready()
    driver.allocate(256 * MIB)
    mine = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    if mine:  # a container's own pid is not what NVML shows
        assert mine[0].usedGpuMemory is None or mine[0].usedGpuMemory >= 256 * MIB
    assert memory_of(handle).used - before >= 256 * MIB


@check
def waiting_for_an_event_that_does_not_come_times_out() -> None:
    handle = card()
    events = pynvml.nvmlEventSetCreate()
    try:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission) as error:
        raise Unsupported(f"no events: {error}") from error
    assert refused(pynvml.nvmlEventSetWait_v2, events, 20) == "NVMLError_Timeout"
    pynvml.nvmlEventSetFree(events)


@check
def a_card_out_of_mig_mode_has_no_mig_devices() -> None:
    handle = card()
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError_NotSupported:
        current = 0
    if not current:
        answer = refused(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0)
        assert answer in ("NVMLError_NotSupported", "NVMLError_NotFound", "NVMLError_InvalidArgument")


def main(name: str) -> int:
    try:
        CHECKS[name]()
    except Unsupported as reason:
        print(reason, file=sys.stderr)
        return UNSUPPORTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
