"""The CUDA driver API of this process through ctypes: each function declared once, each return code looked at.

Handles are ``c_void_p``, device pointers ``c_uint64``; names are those that a C program of CUDA 12 binds to, so a preloaded
library sees the calls as it sees any program's. A driver that lacks a function answers 500 (CUDA_ERROR_NOT_FOUND) for it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_ushort, c_void_p
from typing import Any

OUT_OF_MEMORY, NOT_SUPPORTED, NOT_FOUND, NOT_READY = 2, 801, 500, 600
NON_BLOCKING_STREAM, GLOBAL_CAPTURE = 1, 0
BLOCKING_SYNC, DISABLE_TIMING = 1, 2
SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
POOL_RESERVED, POOL_USED, POOL_THRESHOLD = 5, 7, 4

_HANDLE = c_void_p
_OUT = c_void_p  # byref(...) of whatever the function fills
_LAUNCH = (_HANDLE, *(c_uint,) * 7, _HANDLE, c_void_p)
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_OUT,),
    "cuGetErrorName": (c_int, _OUT),
    "cuGetProcAddress_v2": (c_char_p, _OUT, c_int, c_uint64, _OUT),
    "cuDeviceGet": (_OUT, c_int),
    "cuDeviceGetCount": (_OUT,),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_OUT, c_int, c_int),
    "cuDeviceTotalMem_v2": (_OUT, c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxGetCurrent": (_OUT,),
    "cuCtxGetDevice": (_OUT,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_OUT, _OUT),
    "cuMemAlloc_v2": (_OUT, c_size_t),
    "cuMemAllocPitch_v2": (_OUT, _OUT, c_size_t, c_size_t, c_uint),
    "cuMemAllocManaged": (_OUT, c_size_t, c_uint),
    "cuMemFree_v2": (c_uint64,),
    "cuMemsetD8_v2": (c_uint64, ctypes.c_ubyte, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemAllocAsync": (_OUT, c_size_t, _HANDLE),
    "cuMemAllocFromPoolAsync": (_OUT, c_size_t, _HANDLE, _HANDLE),
    "cuMemFreeAsync": (c_uint64, _HANDLE),
    "cuDeviceGetDefaultMemPool": (_OUT, c_int),
    "cuMemPoolCreate": (_OUT, c_void_p),
    "cuMemPoolDestroy": (_HANDLE,),
    "cuMemPoolTrimTo": (_HANDLE, c_size_t),
    "cuMemPoolGetAttribute": (_HANDLE, c_int, _OUT),
    "cuMemPoolSetAttribute": (_HANDLE, c_int, c_void_p),
    "cuMemCreate": (_OUT, c_size_t, c_void_p, c_uint64),
    "cuMemRelease": (c_uint64,),
    "cuMemAddressReserve": (_OUT, c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemGetAllocationGranularity": (_OUT, c_void_p, c_int),
    "cuArray3DCreate_v2": (_OUT, c_void_p),
    "cuArrayDestroy": (_HANDLE,),
    "cuModuleLoadData": (_OUT, c_char_p),
    "cuModuleGetFunction": (_OUT, _HANDLE, c_char_p),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamBeginCapture_v2": (_HANDLE, c_int),
    "cuStreamEndCapture": (_HANDLE, _OUT),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventQuery": (_HANDLE,),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (_OUT, _HANDLE, _HANDLE),
    "cuLaunchKernel": (*_LAUNCH, c_void_p),
    "cuLaunchCooperativeKernel": _LAUNCH,
    "cuGraphGetNodes": (_HANDLE, c_void_p, _OUT),
    "cuGraphInstantiateWithFlags": (_OUT, _HANDLE, c_uint64),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
}


class Failed(Exception):
    """A driver call that did not succeed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code = call, code


class MemProp(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of one device."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location_type", c_int),
        ("location_id", c_int),
        ("win32", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class PoolProps(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location_type", c_int),
        ("location_id", c_int),
        ("security", c_void_p),
        ("max_size", c_size_t),
        ("usage", c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class ArrayShape(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("format", c_int),
        ("channels", c_uint),
        ("flags", c_uint),
    )


assert ctypes.sizeof(MemProp) == 32
assert ctypes.sizeof(PoolProps) == 88
assert ctypes.sizeof(ArrayShape) == 40


class Cuda:
    """The driver, initialised. ``cuda("cuMemFree_v2", pointer)`` raises ``Failed``; ``cuda.code(...)`` hands the code over."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._library = ctypes.CDLL(library)
        self._functions: dict[str, Any] = {}
        for name, parameters in PROTOTYPES.items():
            function = getattr(self._library, name, None)
            if function is not None:
                function.argtypes, function.restype = parameters, c_int
                self._functions[name] = function
        self("cuInit", 0)
        self.emulated = getattr(self._library, "pumice_machine_now_ns", None) is not None
        self.now = self._machine_clock() if self.emulated else time.perf_counter

    def _machine_clock(self) -> Callable[[], float]:
        """Seconds by the emulated machine; in virtual time they stand still while a thread that has joined works on the host."""
        clock = self._library.pumice_machine_now_ns
        clock.restype = c_uint64
        self._library.pumice_machine_join()
        return lambda: clock() / 1e9

    def code(self, name: str, *arguments: Any) -> int:
        function = self._functions.get(name)
        return NOT_FOUND if function is None else int(function(*arguments))

    def __call__(self, name: str, *arguments: Any) -> None:
        code = self.code(name, *arguments)
        if code:
            raise Failed(name, code, self.error_name(code))

    def error_name(self, code: int) -> str:
        text = c_char_p()
        known = self.code("cuGetErrorName", code, byref(text)) == 0 and text.value
        return text.value.decode() if known and text.value else "unknown"

    def function(self, name: str) -> Any:
        """The bare function, for a loop in which the look-up would count."""
        return self._functions[name]

    def address(self, name: str) -> int | None:
        """Where the driver exports a name; None when it does not."""
        found = getattr(self._library, name, None)
        return None if found is None else ctypes.cast(found, c_void_p).value

    # ---- the little that every experiment needs

    def start(self, device: int = 0) -> c_void_p:
        """Makes the device's primary context current."""
        context = c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(context), device)
        self("cuCtxSetCurrent", context)
        return context

    def attribute(self, which: int, device: int = 0) -> int:
        value = c_int()
        self("cuDeviceGetAttribute", byref(value), which, device)
        return value.value

    def name(self, device: int = 0) -> str:
        text = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", text, 256, device)
        return text.value.decode("utf-8", "replace")

    def memory(self) -> tuple[int, int]:
        """Bytes free and in all, as the program is told."""
        free, total = c_size_t(), c_size_t()
        self("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        pointer = c_uint64()
        self("cuMemAlloc_v2", byref(pointer), size)
        return pointer.value

    def stream(self) -> c_void_p:
        made = c_void_p()
        self("cuStreamCreate", byref(made), NON_BLOCKING_STREAM)
        return made

    def event(self, flags: int = BLOCKING_SYNC | DISABLE_TIMING) -> c_void_p:
        made = c_void_p()
        self("cuEventCreate", byref(made), flags)
        return made

    def elapsed_ms(self, begin: c_void_p, end: c_void_p) -> float:
        spent = c_float()
        self("cuEventElapsedTime", byref(spent), begin, end)
        return spent.value

    def captured(self, stream: c_void_p, launches: Any) -> c_void_p:
        """An executable graph of what ``launches()`` puts on the stream."""
        graph, executable = c_void_p(), c_void_p()
        self("cuStreamBeginCapture_v2", stream, GLOBAL_CAPTURE)
        launches()
        self("cuStreamEndCapture", stream, byref(graph))
        self("cuGraphInstantiateWithFlags", byref(executable), graph, 0)
        return executable
