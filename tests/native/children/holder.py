"""Holds device memory until told otherwise, one command a line: alloc BYTES, free, info, module TEXT, exit, crash, fork, exec."""

import ctypes as c
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, free, hear, info, must, ptr, say, size_t, start
from structures import Array3D

IS_MANAGED = 8
held, modules, libraries, arrays, contexts = [], [], [], [], []


class Memory(c.Structure):
    _fields_ = [("total", c.c_ulonglong), ("free", c.c_ulonglong), ("used", c.c_ulonglong)]


class MemoryV2(c.Structure):
    _fields_ = [("version", c.c_uint), *((name, c.c_ulonglong) for name in ("total", "reserved", "free", "used"))]


def nvml(device):
    library = c.CDLL("libnvidia-ml.so.1")
    handle, one, two = ptr(), Memory(), MemoryV2(version=0x02000028)
    assert library.nvmlInit_v2() == 0
    assert library.nvmlDeviceGetHandleByIndex_v2(device, c.byref(handle)) == 0
    assert library.nvmlDeviceGetMemoryInfo(handle, c.byref(one)) == 0
    assert library.nvmlDeviceGetMemoryInfo_v2(handle, c.byref(two)) == 0
    return [one.total, one.free, one.used], [two.total, two.free, two.used, two.reserved]


def total_mem(device):
    total = size_t()
    must("cuDeviceTotalMem_v2", c.byref(total), device)
    return total.value


def obey(words):
    match words:
        case ["alloc", size]:
            rc, pointer = alloc(int(size))
            if rc == 0:
                held.append(pointer)
            return rc
        case ["fill", size]:  # as many blocks as there are
            count = 0
            while True:
                rc, pointer = alloc(int(size))
                if rc:
                    return count
                held.append(pointer)
                count += 1
        case ["free"]:
            return free(held.pop())
        case ["freeall"]:
            while held:
                free(held.pop())
            return 0
        case ["told_as_managed"]:  # by both ways to ask, from within the last block
            one, many, place = c.c_int(-1), c.c_int(-1), c.c_ulonglong(held[-1] + 4096)
            must("cuPointerGetAttribute", c.byref(one), IS_MANAGED, place)
            must("cuPointerGetAttributes", 1, c.byref(c.c_int(IS_MANAGED)), c.byref(c.pointer(many)), place)
            return [one.value, many.value]
        case ["managed", size]:
            pointer = c.c_ulonglong()
            rc = call("cuMemAllocManaged", c.byref(pointer), size_t(int(size)), 1)
            if rc == 0:
                held.append(pointer.value)
            return rc
        case ["array", rows]:  # of 4 KiB each
            array = ptr()
            rc = call("cuArray3DCreate_v2", c.byref(array), c.byref(Array3D(1024, int(rows), 0, 0x20, 1, 0)))
            if rc == 0:
                arrays.append(array)
            return rc
        case ["array_end"]:
            return call("cuArrayDestroy", arrays.pop())
        case ["arrays_end"]:
            return max(call("cuArrayDestroy", arrays.pop()) for _ in [*arrays])
        case ["info"]:
            return info()
        case ["total", device]:
            return total_mem(int(device))
        case ["nvml", device]:
            return nvml(int(device))
        case ["release"]:
            return call("cuDevicePrimaryCtxRelease_v2", device_used)
        case ["reset"]:
            return call("cuDevicePrimaryCtxReset_v2", device_used)
        case ["module", image]:  # one line of a module's text, blanks as commas
            module = ptr()
            rc = call("cuModuleLoadData", c.byref(module), image.replace(",", " ").encode())
            if rc == 0:
                modules.append(module)
            return rc
        case ["function", name]:
            function = ptr()
            return call("cuModuleGetFunction", c.byref(function), modules[-1], name.encode())
        case ["library", image]:
            libraries.append(ptr())
            return call(
                "cuLibraryLoadData", c.byref(libraries[-1]), image.replace(",", " ").encode(), None, None, 0, None, None, 0
            )
        case ["variable", name]:
            return call("cuLibraryGetGlobal", c.byref(ptr()), c.byref(size_t()), libraries[-1], name.encode())
        case ["unload_library"]:
            return call("cuLibraryUnload", libraries.pop())
        case ["unload_first"]:
            return call("cuModuleUnload", modules.pop(0))
        case ["unload"]:
            return call("cuModuleUnload", modules.pop())
        case ["setlimit", which, value]:
            return call("cuCtxSetLimit", int(which), size_t(int(value)))
        case ["context"]:  # one more, which is not current
            contexts.append(ptr())
            rc = call("cuCtxCreate_v2", c.byref(contexts[-1]), 0, device_used)
            return rc or call("cuCtxPopCurrent_v2", c.byref(ptr()))
        case ["enter"]:
            return call("cuCtxSetCurrent", contexts[-1])
        case ["uncontext"]:
            return call("cuCtxDestroy_v2", contexts.pop())
        case ["fork"]:
            pid = os.fork()
            if pid == 0:
                answer = [call("cuInit", 0), alloc(1)[0]]
                say(answer)
                os._exit(0)
            os.waitpid(pid, 0)
            return "forked"
        case ["crash"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["exec"]:
            os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, *sys.argv[1:]])
    return None


device_used = int(sys.argv[1]) if len(sys.argv) > 1 else 0
if device_used >= 0:
    start(device_used)
say("ready")
while (line := hear()) and line != "exit":
    say(obey(line.split()))
