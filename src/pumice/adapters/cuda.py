"""A thin, typed way to the CUDA driver API through ctypes: every call is checked, nothing is cached or retried.

Only ``libcuda.so.1`` is needed. The functions are looked up by the names that a C program binds to
(``cuMemAlloc_v2``), so whatever is preloaded in front of the driver sees the calls as it sees a real program's.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

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
