"""Takes device memory by one path until it is refused: hog.py PATH SIZE [TIMES]. Says how often it got it, and keeps it."""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, hear, must, ptr, say, size_t, start, u64
from structures import Array3D, PoolProps, Prop

MOST = 30_000


def linear(size):
    return alloc(size)[0]


def managed(size):
    return call("cuMemAllocManaged", c.byref(u64()), size_t(size), 1)


def pitched(size):
    return call("cuMemAllocPitch_v2", c.byref(u64()), c.byref(u64()), size_t(1), size_t(size // 512), 4)


def array(size):
    return call("cuArray3DCreate_v2", c.byref(ptr()), c.byref(Array3D(1024, size // 4096, 0, 0x20, 1, 0)))


def physical(size):
    return call("cuMemCreate", c.byref(u64()), size_t(size), c.byref(Prop(type=1, location=(1, 0))), u64(0))


def stream_ordered(size):
    return call("cuMemAllocAsync", c.byref(u64()), size_t(size), None)


def pool_each(size):
    pool = ptr()
    return call("cuMemPoolCreate", c.byref(pool), c.byref(PoolProps(type=1, location=(1, 0)))) or call(
        "cuMemAllocFromPoolAsync", c.byref(u64()), size_t(size), pool, None
    )


def churned(size):
    """Leaves holes behind."""
    pointers = []
    for _ in range(3):
        pointer = u64()
        rc = call("cuMemAllocAsync", c.byref(pointer), size_t(size), None)
        if rc:
            return rc
        pointers.append(pointer)
    return call("cuMemFreeAsync", pointers[1], None)


class MemAllocNode(c.Structure):
    _fields_ = [("pool", PoolProps), ("access", ptr), ("count", size_t), ("bytes", size_t), ("pointer", u64)]


def graph_elsewhere(size):
    """A graph with a node on device 1, launched while device 0 is current."""
    graph, node, executable = ptr(), ptr(), ptr()
    must("cuGraphCreate", c.byref(graph), 0)
    wanted = MemAllocNode(pool=PoolProps(type=1, location=(1, 1)), bytes=size)
    must("cuGraphAddMemAllocNode", c.byref(node), graph, None, size_t(0), c.byref(wanted))
    must("cuGraphInstantiateWithFlags", c.byref(executable), graph, u64(0))
    return call("cuGraphLaunch", executable, None)


def context(_size):
    return call("cuCtxCreate_v2", c.byref(ptr()), 0, 0)


PATHS = {
    path.__name__: path
    for path in (
        linear,
        managed,
        pitched,
        array,
        physical,
        stream_ordered,
        pool_each,
        churned,
        graph_elsewhere,
        context,
    )
}

if __name__ == "__main__":
    start()
    take, size = PATHS[sys.argv[1]], int(sys.argv[2])
    must("cuCtxSynchronize")
    count, rc, most = 0, 0, int(sys.argv[3]) if len(sys.argv) > 3 else MOST
    while count < most and not (rc := take(size)):
        count += 1
    say([count, rc])
    hear()
