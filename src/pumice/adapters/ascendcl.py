"""A way to ``libascendcl.so`` for ``pumice burn``, with the methods of the CUDA driver's (``adapters.cuda.Driver``)."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from typing import Any, Final

from pumice.adapters.cuda import CudaError, Driver

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
