"""A small load through a driver alone, on a real card and on an emulated one: memory, kernels, and what was got.

A thin, typed way to the CUDA driver API through ctypes: every call is checked, nothing is cached or retried.

Only ``libcuda.so.1`` is needed. The functions are looked up by the names that a C program binds to
(``cuMemAlloc_v2``), so whatever is preloaded in front of the driver sees the calls as it sees a real program's.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Final

from pumice.model.errors import PumiceError

NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND


class CudaError(PumiceError):
    """A driver call that did not succeed: ``call``, ``code`` and the driver's ``name`` for it."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class Driver:
    """The driver of this process, initialised. ``library`` is a path or a name for the loader.

    Raises ``OSError`` when the library cannot be loaded and ``CudaError`` when the driver will not start.
    """

    timed = False
    """True if a kernel lasts as long as its first parameter says, without being measured."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._cuda = ctypes.CDLL(library)
        self.check("cuInit", c_uint(0))

    def check(self, function: str, *arguments: Any) -> None:
        """Calls ``function``; raises ``CudaError`` unless it succeeds (an older driver may not have it at all)."""
        if (entry := self.symbol(function)) is None:
            raise CudaError(function, NOT_FOUND, "CUDA_ERROR_NOT_FOUND")
        code = int(entry(*arguments))
        if code:
            raise CudaError(function, code, self.error_name(code))

    def error_name(self, code: int) -> str:
        text = c_char_p()
        if self._cuda.cuGetErrorName(c_int(code), byref(text)) == 0 and text.value:
            return text.value.decode()
        return "CUDA_ERROR_UNKNOWN"

    def symbol(self, name: str) -> Any | None:
        """A function of the library, or None when it has none of that name."""
        return getattr(self._cuda, name, None)

    def device(self, index: int) -> int:
        found = c_int()
        self.check("cuDeviceGet", byref(found), c_int(index))
        return found.value

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.check("cuDeviceGetName", text, c_int(256), c_int(device))
        return text.value.decode("utf-8", "replace")

    def total(self, device: int) -> int:
        size = c_size_t()
        self.check("cuDeviceTotalMem_v2", byref(size), c_int(device))
        return size.value

    def use(self, device: int) -> None:
        """Makes the device's primary context current, as the CUDA runtime does."""
        context = c_void_p()
        self.check("cuDevicePrimaryCtxRetain", byref(context), c_int(device))
        self.check("cuCtxSetCurrent", context)

    def release(self, device: int) -> None:
        self.check("cuDevicePrimaryCtxRelease_v2", c_int(device))

    def free_memory(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.check("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        pointer = c_uint64()
        self.check("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer.value

    def allocate_pitched(self, width: int, height: int) -> tuple[int, int]:
        """Rows of ``width`` bytes; the pointer and the pitch in bytes."""
        pointer, pitch = c_uint64(), c_size_t()
        self.check("cuMemAllocPitch_v2", byref(pointer), byref(pitch), c_size_t(width), c_size_t(height), c_uint(16))
        return pointer.value, pitch.value

    def allocate_async(self, size: int, stream: c_void_p) -> int:
        pointer = c_uint64()
        self.check("cuMemAllocAsync", byref(pointer), c_size_t(size), stream)
        return pointer.value

    def free(self, pointer: int) -> None:
        self.check("cuMemFree_v2", c_uint64(pointer))

    def kernel(self, image: bytes, name: str) -> c_void_p:
        """The kernel ``name`` of a module image (PTX text)."""
        module, function = c_void_p(), c_void_p()
        self.check("cuModuleLoadData", byref(module), c_char_p(image))
        self.check("cuModuleGetFunction", byref(function), module, c_char_p(name.encode()))
        return function

    def stream(self) -> c_void_p:
        made = c_void_p()
        self.check("cuStreamCreate", byref(made), c_uint(1))  # CU_STREAM_NON_BLOCKING
        return made

    def launch(self, function: c_void_p, parameters: Any, stream: c_void_p) -> None:
        """One block of one thread; ``parameters`` is an array of pointers to the arguments."""
        one, none = c_uint(1), c_uint(0)
        self.check("cuLaunchKernel", function, one, one, one, one, one, one, none, stream, parameters, None)

    def synchronize(self) -> None:
        self.check("cuCtxSynchronize")


NAMES: Final = {
    100001: "ACL_ERROR_UNINITIALIZE", 107000: "ACL_ERROR_RT_PARAM_INVALID", 107001: "ACL_ERROR_RT_INVALID_DEVICEID",
    107002: "ACL_ERROR_RT_CONTEXT_NULL", 107003: "ACL_ERROR_RT_STREAM_CONTEXT", 207001: "ACL_ERROR_RT_MEMORY_ALLOCATION",
    207008: "ACL_ERROR_RT_RESOURCE_ALLOC_FAIL", 507000: "ACL_ERROR_RT_INTERNAL_ERROR", 507008: "ACL_ERROR_RT_SOC_VERSION",
}  # fmt: skip
"""CANN's rt_error_codes.h."""
UNSUPPORTED: Final = 207000


class AclDriver(Driver):
    """An NPU of the emulated machine: kernels are its own (``pumice_npu_launch``), for CANN compiles them for a chip."""

    timed = True
    """Kernels last as long as they are told to."""

    def __init__(self, library: str = "libascendcl.so") -> None:
        self._cuda = ctypes.CDLL(library)
        self._streams: list[c_void_p] = []
        self.check("aclInit", c_char_p(None))

    def error_name(self, code: int) -> str:
        return NAMES.get(code, "ACL_ERROR")

    def device(self, index: int) -> int:
        self.use(index)
        return index

    def name(self, device: int) -> str:
        reported = self._cuda.aclrtGetSocName
        reported.restype = c_char_p
        return str((reported() or b"").decode("utf-8", "replace"))

    def total(self, device: int) -> int:
        return self._memory()[1]

    def free_memory(self) -> int:
        return self._memory()[0]

    def _memory(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self.check("aclrtGetMemInfo", c_int32(0), byref(free), byref(total))
        return free.value, total.value

    def use(self, device: int) -> None:
        self.check("aclrtSetDevice", c_int32(device))

    def release(self, device: int) -> None:
        self.check("aclrtResetDevice", c_int32(device))

    def allocate(self, size: int) -> int:
        pointer = c_void_p()
        self.check("aclrtMalloc", byref(pointer), c_size_t(size), c_int32(0))
        return pointer.value or 0

    def allocate_pitched(self, width: int, height: int) -> tuple[int, int]:
        raise CudaError("aclrtMalloc", UNSUPPORTED, "ACL_ERROR_RT_FEATURE_NOT_SUPPORT")

    def allocate_async(self, size: int, stream: c_void_p) -> int:
        raise CudaError("aclrtMalloc", UNSUPPORTED, "ACL_ERROR_RT_FEATURE_NOT_SUPPORT")

    def free(self, pointer: int) -> None:
        self.check("aclrtFree", c_void_p(pointer))

    def kernel(self, image: bytes, name: str) -> c_void_p:
        return c_void_p()

    def stream(self) -> c_void_p:
        made = c_void_p()
        self.check("aclrtCreateStream", byref(made))
        self._streams.append(made)
        return made

    def launch(self, function: c_void_p, parameters: Any, stream: c_void_p) -> None:
        """``parameters``: the first is the kernel's length in nanoseconds."""
        ns = ctypes.cast(parameters[0], ctypes.POINTER(c_uint64))[0]
        self.check("pumice_npu_launch", stream, c_uint64(ns))

    def synchronize(self) -> None:
        for stream in self._streams:
            self.check("aclrtSynchronizeStream", stream)


ROW = 1000  # bytes of a pitched row: no power of two, so that the pitch shows
BATCH_NS = 20_000_000  # work in flight between two looks at the clock
LOOK_NS = 100_000_000  # of sleep between two looks whether somebody wants it to end

# An emulated machine reads the duration from the first parameter. A real card does `rounds` rounds of a loop whose
# length was measured before: fixed work, because a clock would run on while other programs have the card.
SPIN = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry pumice_spin_ns(.param .u64 ns, .param .u64 rounds)
{
    .reg .pred %more;
    .reg .u64 %left, %now, %sum;
    ld.param.u64 %left, [rounds];
    mov.u64 %sum, 0;
again:
    mov.u64 %now, %clock64;
    add.u64 %sum, %sum, %now;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %more, %left, 0;
    @%more bra again;
    ret;
}
\0"""


@dataclass(frozen=True, slots=True)
class Load:
    """The work to do: bytes to take and in which blocks and shape, kernels and how long each, when to stop."""

    device: int
    memory: int
    block: int
    shape: str
    kernels: int | None
    kernel_ns: int
    streams: int
    seconds: float | None
    npu: bool = False


@dataclass(slots=True)
class Got:
    """The result. ``busy_share`` is kernel time over elapsed time; ``error`` is the refusal that ended it, ``interrupted``
    whether somebody did."""

    device: int
    name: str = ""
    total_bytes: int = 0
    wanted_bytes: int = 0
    granted_bytes: int = 0
    kernels: int = 0
    kernel_ns: int = 0
    elapsed_ns: int = 0
    kernels_per_second: float = 0.0
    busy_share: float = 0.0
    error: dict[str, Any] | None = None
    interrupted: bool = False


class Time:
    """The clock to live by: the emulated machine's where there is one, else this computer's."""

    def __init__(self, driver: Driver) -> None:
        self.emulated = driver.symbol("pumice_machine_now_ns") is not None
        self.now: Callable[[], int] = time.monotonic_ns
        self.sleep: Callable[[int], object] = lambda ns: time.sleep(ns / 1e9)
        self._join: Callable[[], object] = _nothing
        self._leave: Callable[[], object] = _nothing
        if self.emulated:
            now, sleep = driver.symbol("pumice_machine_now_ns"), driver.symbol("pumice_machine_sleep_ns")
            assert now is not None
            assert sleep is not None
            now.restype = ctypes.c_uint64
            sleep.argtypes = (ctypes.c_uint64,)
            self.now, self.sleep = now, sleep
            self._join = driver.symbol("pumice_machine_join") or self._join
            self._leave = driver.symbol("pumice_machine_leave") or self._leave

    def __enter__(self) -> Time:
        self._join()  # virtual time then waits for this thread; no effect in real time
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()


def _nothing() -> None:
    """Do nothing: this card's time is not limited."""


def perform(load: Load, library: str = "libcuda.so.1", taken: Callable[[Got], None] = lambda got: None) -> Got:
    """Does the load and reports; a refusal by the driver is in the report, everything granted is given back.

    ``taken`` is told when the memory is there and the work begins.
    """
    got = Got(load.device, wanted_bytes=load.memory, kernel_ns=load.kernel_ns)
    try:
        driver = _driver(load, library)
        device = driver.device(load.device)
        got.name, got.total_bytes = driver.name(device), driver.total(device)
        driver.use(device)
        with Time(driver) as clock:
            streams = [driver.stream() for _ in range(load.streams)]
            _take(driver, load, streams[0], got)
            taken(got)
            _keep_busy(driver, load, streams, clock, got)
        driver.release(device)  # gives back what was taken, too
    except CudaError as error:
        got.error = {"call": error.call, "name": error.name, "code": error.code}
    return got


def _driver(load: Load, library: str) -> Driver:
    if not load.npu:
        return Driver(library)

    return AclDriver(library)


def _take(driver: Driver, load: Load, stream: ctypes.c_void_p, got: Got) -> None:
    """Memory block by block until all is there; what was granted before a refusal stays counted."""
    while got.granted_bytes < load.memory:
        size = min(load.block, load.memory - got.granted_bytes)
        if load.shape == "pitched":
            rows = max(1, size // ROW)
            _, pitch = driver.allocate_pitched(ROW, rows)
            got.granted_bytes += pitch * rows
        elif load.shape == "async":
            driver.allocate_async(size, stream)
            got.granted_bytes += size
        else:
            driver.allocate(size)
            got.granted_bytes += size


def _keep_busy(driver: Driver, load: Load, streams: Sequence[ctypes.c_void_p], clock: Time, got: Got) -> None:
    """Kernels round robin over the streams until their number or the time is up, or, where neither is said, until Ctrl-C;
    without kernels, holds the memory."""
    if load.kernels == 0 or (load.kernels is None and load.kernel_ns == 0):
        left = int((load.seconds or 0) * 1e9)
        while left > 0:  # the machine's clock does not wake for Ctrl-C
            clock.sleep(min(left, LOOK_NS))
            left -= LOOK_NS
        return
    spin = driver.kernel(SPIN, "pumice_spin_ns")
    rounds = 1 if clock.emulated or driver.timed else _rounds(driver, spin, streams[0], load.kernel_ns)
    parameters = _parameters(load.kernel_ns, rounds)
    batch = max(1, BATCH_NS // max(load.kernel_ns, 1000))
    started = clock.now()
    deadline = started + int(load.seconds * 1e9) if load.seconds is not None else None
    try:
        while load.kernels is None or got.kernels < load.kernels:
            count = batch if load.kernels is None else min(batch, load.kernels - got.kernels)
            for number in range(got.kernels, got.kernels + count):
                driver.launch(spin, parameters, streams[number % len(streams)])
                got.kernels += 1
            if load.seconds is not None or load.kernels in (None, got.kernels):
                driver.synchronize()
            if deadline is not None and clock.now() >= deadline:
                break
    except KeyboardInterrupt:
        driver.synchronize()  # what was launched is counted
        got.interrupted = load.kernels is not None or load.seconds is not None  # else it is how it is meant to end
    finally:
        got.elapsed_ns = clock.now() - started
        if got.elapsed_ns > 0:
            got.kernels_per_second = got.kernels * 1e9 / got.elapsed_ns
            got.busy_share = got.kernels * load.kernel_ns / got.elapsed_ns


def _parameters(ns: int, rounds: int) -> Any:
    values = (ctypes.c_uint64(ns), ctypes.c_uint64(max(1, rounds)))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    pointers.values = values  # type: ignore[attr-defined]  # the driver reads them at each launch
    return pointers


def _rounds(driver: Driver, spin: ctypes.c_void_p, stream: ctypes.c_void_p, ns: int) -> int:
    """Rounds of the loop that take ``ns`` on this card alone: the shortest of five timed runs."""
    probe = 2_000_000
    best = 0
    for _ in range(5):
        begun = time.perf_counter_ns()
        driver.launch(spin, _parameters(0, probe), stream)
        driver.synchronize()
        spent = time.perf_counter_ns() - begun
        best = min(best, spent) if best else spent
    return int(ns * probe / best)
