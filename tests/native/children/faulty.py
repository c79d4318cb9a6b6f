"""A little of everything, whatever the driver answers: what fails is left out, what was had is given back."""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, free, ptr, size_t, u64
from structures import Array, Prop


def had(name, *arguments):
    return call(name, *arguments) == 0


call("cuInit", 0)
context, second = ptr(), ptr()
if had("cuDevicePrimaryCtxRetain", c.byref(context), 0):
    call("cuCtxSetCurrent", context)
available, total = size_t(), size_t()
call("cuMemGetInfo_v2", c.byref(available), c.byref(total))
call("cuDeviceTotalMem_v2", c.byref(total), 0)
for _ in range(2):
    rc, pointer = alloc(1 << 20)
    if rc == 0 and free(pointer):
        free(pointer)
pointer, pitch = u64(), size_t()
if had("cuMemAllocPitch_v2", c.byref(pointer), c.byref(pitch), size_t(1000), size_t(100), 4):
    free(pointer.value)
if had("cuMemAllocManaged", c.byref(pointer), size_t(1 << 20), 1):
    free(pointer.value)
handle, shape = ptr(), Array(1024, 16, 0x20, 1)
if had("cuArrayCreate_v2", c.byref(handle), c.byref(shape)) and not had("cuArrayDestroy", handle):
    call("cuArrayDestroy", handle)
physical, prop, address = u64(), Prop(type=1, location=(1, 0)), u64()
if had("cuMemCreate", c.byref(physical), size_t(2 << 20), c.byref(prop), u64(0)):
    if had("cuMemAddressReserve", c.byref(address), size_t(2 << 20), size_t(0), u64(0), u64(0)):
        mapped = had("cuMemMap", address, size_t(2 << 20), size_t(0), physical, u64(0))
        if mapped and not had("cuMemUnmap", address, size_t(2 << 20)):
            call("cuMemUnmap", address, size_t(2 << 20))
    if not had("cuMemRelease", physical):
        call("cuMemRelease", physical)
if had("cuMemAllocAsync", c.byref(pointer), size_t(1 << 20), None) and not had("cuMemFreeAsync", pointer, None):
    call("cuMemFreeAsync", pointer, None)
if had("cuCtxCreate_v2", c.byref(second), 0, 0) and not had("cuCtxDestroy_v2", second):
    call("cuCtxDestroy_v2", second)
call("cuCtxSetCurrent", context)
module, function = ptr(), ptr()
if had("cuModuleLoadData", c.byref(module), c.c_char_p(b"pumice-kernel name=k ns=1000\n")):
    call("cuModuleGetFunction", c.byref(function), module, c.c_char_p(b"k"))
    for _ in range(40):
        call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, None)
    if not had("cuModuleUnload", module):
        call("cuModuleUnload", module)
call("cuCtxSynchronize")
pool = ptr()
if had("cuDeviceGetDefaultMemPool", c.byref(pool), 0):
    call("cuMemPoolTrimTo", pool, size_t(0))
nvml = c.CDLL("libnvidia-ml.so.1")
if nvml.nvmlInit_v2() == 0:
    device, memory = ptr(), (c.c_ulonglong * 3)()
    if nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device)) == 0:
        nvml.nvmlDeviceGetMemoryInfo(device, c.byref(memory))
# What the books hold now is what the driver says is still there: nothing but the context.
if had("cuMemGetInfo_v2", c.byref(available), c.byref(total)):
    print(total.value - available.value)
