"""Asks every allocating entry for one unit above what is free, then for all of it, and gives it back.

Prints {entry: [code above, code exact, free bytes after freeing minus before]}. A unit is a byte where the driver
allocates bytes, else the driver's granule.
"""

import ctypes as c
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, cuda, free, info, must, ptr, say, size_t, start, u64
from structures import Array, Array3D, PoolProps, Prop

GRANULE = 2 << 20
ROW = 64 << 10


class ArrayV1(c.Structure):
    _fields_ = [("width", c.c_uint), ("height", c.c_uint), ("format", c.c_int), ("channels", c.c_uint)]


class Array3DV1(c.Structure):
    _fields_ = [
        *(("whd"[i], c.c_uint) for i in range(3)),
        ("format", c.c_int),
        ("channels", c.c_uint),
        ("flags", c.c_uint),
    ]


def linear(name):
    def ask(size):
        rc, pointer = alloc(size, name)
        return rc, lambda: free(pointer)

    return ask, 1


def linear_v1(size):
    pointer = c.c_uint()
    rc = cuda.cuMemAlloc(c.byref(pointer), c.c_uint(size))
    return rc, lambda: cuda.cuMemFree(pointer)


def pitched(name, integer, release):
    def ask(size):  # rows of 512 bytes: the pitch is the width
        pointer, pitch = u64(), u64()
        rc = call(name, c.byref(pointer), c.byref(pitch), integer(512), integer(size // 512), 4)
        return rc, lambda: call(release, u64(pointer.value))

    return ask, 512


def managed(size):
    pointer = u64()
    rc = cuda.cuMemAllocManaged(c.byref(pointer), size_t(size), 1)
    return rc, lambda: free(pointer.value)


def array2d(name, kind):
    def ask(size):  # 16,384 floats a row: 64 KiB
        handle, shape = ptr(), kind(16384, size // ROW, 0x20, 1)
        rc = call(name, c.byref(handle), c.byref(shape))
        return rc, lambda: cuda.cuArrayDestroy(handle)

    return ask, ROW


def array3d(name, kind):
    def ask(size):
        handle, shape = ptr(), kind(16384, 1, size // ROW, 0x20, 1, 0)
        rc = call(name, c.byref(handle), c.byref(shape))
        return rc, lambda: cuda.cuArrayDestroy(handle)

    return ask, ROW


def mipmapped(size):
    handle, shape = ptr(), Array3D(16384, size // ROW, 0, 0x20, 1, 0)
    rc = cuda.cuMipmappedArrayCreate(c.byref(handle), c.byref(shape), 1)
    return rc, lambda: cuda.cuMipmappedArrayDestroy(handle)


def physical(size):
    handle, prop = u64(), Prop(type=1, location=(1, 0))
    rc = cuda.cuMemCreate(c.byref(handle), size_t(size), c.byref(prop), u64(0))
    return rc, lambda: cuda.cuMemRelease(handle)


def trim_default_pool():
    pool = ptr()
    must("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    must("cuCtxSynchronize")
    must("cuMemPoolTrimTo", pool, size_t(0))


def stream_ordered(name, release):
    def ask(size):
        pointer = u64()
        rc = call(name, c.byref(pointer), size_t(size), ptr())

        def undo():
            call(release, pointer, ptr())
            trim_default_pool()

        return rc, undo

    return ask, GRANULE


def from_pool(name, release):
    pool, props = ptr(), PoolProps(type=1, location=(1, 0))
    must("cuMemPoolCreate", c.byref(pool), c.byref(props))

    def ask(size):
        pointer = u64()
        rc = call(name, c.byref(pointer), size_t(size), pool, ptr())

        def undo():
            call(release, pointer, ptr())
            must("cuCtxSynchronize")
            must("cuMemPoolTrimTo", pool, size_t(0))

        return rc, undo

    return ask, GRANULE


def module(name, *more, path=False):
    """A module whose one variable is as large as asked."""

    def ask(size):
        handle, text = ptr(), f".version 8.0\n.target sm_80\n.global .b8 g[{size}];\n".encode()
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            rc = call(name, c.byref(handle), file.name.encode() if path else text, *more)
        return rc, lambda: cuda.cuModuleUnload(handle)

    return ask, GRANULE


class MemAllocNode(c.Structure):
    _fields_ = [("pool", PoolProps), ("access", ptr), ("count", size_t), ("bytes", size_t), ("pointer", u64)]


def graph(name):
    """A graph that allocates and frees: its memory is taken when it is uploaded or launched."""

    def ask(size):
        handle, node, freeing, executable = ptr(), ptr(), ptr(), ptr()
        must("cuGraphCreate", c.byref(handle), 0)
        parameters = MemAllocNode(pool=PoolProps(type=1, location=(1, 0)), bytes=size)
        must("cuGraphAddMemAllocNode", c.byref(node), handle, None, size_t(0), c.byref(parameters))
        must("cuGraphAddMemFreeNode", c.byref(freeing), handle, c.byref(node), size_t(1), u64(parameters.pointer))
        must("cuGraphInstantiateWithFlags", c.byref(executable), handle, u64(0))
        rc = call(name, executable, ptr())
        must("cuCtxSynchronize")

        def undo():
            if rc == 0:  # running it frees what the upload took
                must("cuGraphLaunch", executable, ptr())
                must("cuCtxSynchronize")
            must("cuGraphExecDestroy", executable)
            must("cuGraphDestroy", handle)
            must("cuDeviceGraphMemTrim", 0)

        if rc:
            undo()
        return rc, undo

    return ask, GRANULE


start()
ENTRIES = {
    "cuMemAlloc": (linear_v1, 1),
    "cuMemAlloc_v2": linear("cuMemAlloc_v2"),
    "cuMemAllocPitch": pitched("cuMemAllocPitch", c.c_uint, "cuMemFree"),
    "cuMemAllocPitch_v2": pitched("cuMemAllocPitch_v2", size_t, "cuMemFree_v2"),
    "cuMemAllocManaged": (managed, 1),
    "cuArrayCreate": array2d("cuArrayCreate", ArrayV1),
    "cuArrayCreate_v2": array2d("cuArrayCreate_v2", Array),
    "cuArray3DCreate": array3d("cuArray3DCreate", Array3DV1),
    "cuArray3DCreate_v2": array3d("cuArray3DCreate_v2", Array3D),
    "cuMipmappedArrayCreate": (mipmapped, ROW),
    "cuMemCreate": (physical, GRANULE),
    "cuMemAllocAsync": stream_ordered("cuMemAllocAsync", "cuMemFreeAsync"),
    "cuMemAllocAsync_ptsz": stream_ordered("cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz"),
    "cuMemAllocFromPoolAsync": from_pool("cuMemAllocFromPoolAsync", "cuMemFreeAsync"),
    "cuMemAllocFromPoolAsync_ptsz": from_pool("cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync_ptsz"),
    "cuModuleLoad": module("cuModuleLoad", path=True),
    "cuModuleLoadData": module("cuModuleLoadData"),
    "cuModuleLoadDataEx": module("cuModuleLoadDataEx", 0, None, None),
    "cuModuleLoadFatBinary": module("cuModuleLoadFatBinary"),
    "cuGraphLaunch": graph("cuGraphLaunch"),
    "cuGraphLaunch_ptsz": graph("cuGraphLaunch_ptsz"),
    "cuGraphUpload": graph("cuGraphUpload"),
    "cuGraphUpload_ptsz": graph("cuGraphUpload_ptsz"),
}
answers = {}
for entry, (ask, unit) in ENTRIES.items():
    before = info()[0]
    above, _ = ask(before + unit)
    exact, undo = ask(before)
    if exact == 0:
        left = info()[0]
        undo()
    else:
        left = -1
    answers[entry] = [above, exact, left, info()[0] - before]
say(answers)
