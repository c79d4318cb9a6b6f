"""The driver by ctypes, as any binding reaches it: dlopen and dlsym. Used by the other scripts of this folder."""

import ctypes as c
import json
import sys

cuda = c.CDLL("libcuda.so.1")
size_t, u64, ptr = c.c_size_t, c.c_uint64, c.c_void_p


class Failed(Exception):
    pass


def call(name, *arguments):
    return getattr(cuda, name)(*arguments)


def must(name, *arguments):
    rc = call(name, *arguments)
    if rc:
        raise Failed(f"{name}: {rc}")


def start(device=0):
    """Initialises and makes the primary context of a device current."""
    must("cuInit", 0)
    context = ptr()
    must("cuDevicePrimaryCtxRetain", c.byref(context), device)
    must("cuCtxSetCurrent", context)
    return context


def info():
    free, total = size_t(), size_t()
    must("cuMemGetInfo_v2", c.byref(free), c.byref(total))
    return free.value, total.value


def alloc(size, name="cuMemAlloc_v2"):
    pointer = u64()
    rc = call(name, c.byref(pointer), size_t(size))
    return rc, pointer.value


def free(pointer):
    return call("cuMemFree_v2", u64(pointer))


def say(value):
    print(json.dumps(value), flush=True)


def hear():
    return sys.stdin.readline().strip()
