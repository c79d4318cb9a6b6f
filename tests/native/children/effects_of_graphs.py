"""The accounting of graphs with memory nodes."""

import ctypes as c

from books import BLOCK, MIB, used
from driver import call, info, must, ptr, size_t, u64
from structures import PoolProps


class MemAllocNode(c.Structure):
    _fields_ = [("pool", PoolProps), ("access", ptr), ("count", size_t), ("bytes", size_t), ("pointer", u64)]


class Parameters(c.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = [("flags", u64), ("upload", ptr), ("node", ptr), ("result", c.c_int)]


def graph_of(size):
    handle, node, freeing = ptr(), ptr(), ptr()
    must("cuGraphCreate", c.byref(handle), 0)
    parameters = MemAllocNode(pool=PoolProps(type=1, location=(1, 0)), bytes=size)
    must("cuGraphAddMemAllocNode", c.byref(node), handle, None, size_t(0), c.byref(parameters))
    must("cuGraphAddMemFreeNode", c.byref(freeing), handle, c.byref(node), size_t(1), u64(parameters.pointer))
    return handle


def instantiated(name, *arguments):
    """A graph larger than what is left is refused whichever way it was made ready."""

    def steps():
        handle, executable = graph_of(info()[0] + 2 * MIB), ptr()
        must(name, c.byref(executable), handle, *arguments)
        yield call("cuGraphLaunch", executable, None)
        must("cuCtxSynchronize")
        yield used()
        must("cuGraphExecDestroy", executable)
        must("cuGraphDestroy", handle)

    return steps


def updated(name, *arguments):
    """Check that the accounting follows the driver's answer to an update of the executable graph."""

    def steps():
        small, large, executable = graph_of(2 * MIB), graph_of(info()[0] + 2 * MIB), ptr()
        must("cuGraphInstantiateWithFlags", c.byref(executable), small, u64(0))
        accepted = call(name, executable, large, *arguments) == 0
        yield call("cuGraphLaunch", executable, None) == (2 if accepted else 0)
        must("cuCtxSynchronize")
        must("cuGraphExecDestroy", executable)
        must("cuDeviceGraphMemTrim", 0)
        yield used()

    return steps


def graph_memory_trimmed():
    handle, executable = graph_of(BLOCK), ptr()
    must("cuGraphInstantiateWithFlags", c.byref(executable), handle, u64(0))
    must("cuGraphLaunch", executable, None)
    must("cuCtxSynchronize")
    yield used()
    must("cuGraphExecDestroy", executable)
    must("cuDeviceGraphMemTrim", 0)
    yield used()
