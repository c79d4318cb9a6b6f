"""Does what every entry that is no allocation does to the books, and prints {entry: [bytes in use after each step]}.

The bytes are what the container is told (total minus free), less what it was told before the entry's own steps.
"""

import ctypes as c
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, cuda, info, must, ptr, say, size_t, start, u64
from structures import Array3D, PoolProps, Prop

MIB = 1 << 20
BLOCK = 64 * MIB
MALLOC_HEAP = 2


class MemAllocNode(c.Structure):
    _fields_ = [("pool", PoolProps), ("access", ptr), ("count", size_t), ("bytes", size_t), ("pointer", u64)]


def in_use():
    available, total = info()
    return total - available


base = 0


def used():
    return in_use() - base


# ---- freeing


def linear(release):
    def steps():
        _, pointer = alloc(BLOCK)
        yield used()
        must(release, u64(pointer), *([None] if release.startswith("cuMemFreeAsync") else []))
        must("cuCtxSynchronize")
        yield used()

    return steps


def freed_without_a_pointer():  # 32-bit pointers: a 64-bit driver hands none out
    yield cuda.cuMemFree(c.c_uint(0x1000)) != 0
    yield used()


def array(release, mipmapped):
    def steps():
        handle, shape = ptr(), Array3D(16384, 16, 0, 0x20, 1, 0)
        levels = (c.c_uint(1),) if mipmapped else ()
        create = "cuMipmappedArrayCreate" if mipmapped else "cuArray3DCreate_v2"
        must(create, c.byref(handle), c.byref(shape), *levels)
        yield used()
        must(release, handle)
        yield used()

    return steps


def new_pool():
    pool, props = ptr(), PoolProps(type=1, location=(1, 0))
    must("cuMemPoolCreate", c.byref(pool), c.byref(props))
    return pool


def take_and_leave(pool):
    """Leaves the pool with memory reserved that no block uses."""
    must("cuMemPoolSetAttribute", pool, 4, c.byref(u64(2**64 - 1)))  # keep everything
    pointer = u64()
    must("cuMemAllocFromPoolAsync", c.byref(pointer), size_t(BLOCK), pool, None)
    must("cuMemFreeAsync", pointer, None)
    must("cuCtxSynchronize")


def pool_trimmed():
    pool = new_pool()
    take_and_leave(pool)
    yield used()
    must("cuMemPoolTrimTo", pool, size_t(0))
    yield used()
    must("cuMemPoolDestroy", pool)


def pool_destroyed():
    pool = new_pool()
    take_and_leave(pool)
    yield used()
    must("cuMemPoolDestroy", pool)
    yield used()


def pool_of_host_memory():
    """A pool that is made on the host is not charged to the card."""
    pool, props = ptr(), PoolProps(type=1, location=(2, 0))
    if call("cuMemPoolCreate", c.byref(pool), c.byref(props)) == 0:
        pointer = u64()
        must("cuMemAllocFromPoolAsync", c.byref(pointer), size_t(BLOCK), pool, None)
        yield used()
        must("cuMemFreeAsync", pointer, None)
        must("cuMemPoolDestroy", pool)
    else:
        yield 0
    yield used()


def pool_told_to_keep_nothing():
    pool = new_pool()
    take_and_leave(pool)
    must("cuMemPoolSetAttribute", pool, 4, c.byref(u64(0)))
    must("cuMemPoolTrimTo", pool, size_t(0))
    yield used()
    must("cuMemPoolDestroy", pool)


# ---- physical memory and its mappings


def physical():
    handle, prop = u64(), Prop(type=1, handles=1, location=(1, 0))
    must("cuMemCreate", c.byref(handle), size_t(BLOCK), c.byref(prop), u64(0))
    return handle


def mapped(handle):
    address = u64()
    must("cuMemAddressReserve", c.byref(address), size_t(BLOCK), size_t(0), u64(0), u64(0))
    must("cuMemMap", address, size_t(BLOCK), size_t(0), handle, u64(0))
    return address


def handle_released_before_its_mapping():
    handle = physical()
    address = mapped(handle)
    yield used()
    must("cuMemRelease", handle)
    yield used()
    must("cuMemUnmap", address, size_t(BLOCK))
    yield used()


def handle_released_after_its_mapping():
    handle = physical()
    address = mapped(handle)
    must("cuMemUnmap", address, size_t(BLOCK))
    yield used()
    must("cuMemRelease", handle)
    yield used()
    of_the_host = u64()
    prop = Prop(type=1, location=(2, 0))
    made = call("cuMemCreate", c.byref(of_the_host), size_t(BLOCK), c.byref(prop), u64(0)) == 0
    yield used()
    if made:
        must("cuMemRelease", of_the_host)


def handle_retained():
    handle, again = physical(), u64()
    address = mapped(handle)
    must("cuMemRetainAllocationHandle", c.byref(again), ptr(address.value))
    must("cuMemUnmap", address, size_t(BLOCK))
    must("cuMemRelease", handle)
    yield used()
    must("cuMemRelease", again)
    yield used()


def own_export_imported():
    handle, back, descriptor = physical(), u64(), c.c_int()
    must("cuMemExportToShareableHandle", c.byref(descriptor), handle, 1, u64(0))
    must("cuMemImportFromShareableHandle", c.byref(back), ptr(descriptor.value), 1)
    yield used()
    must("cuMemRelease", back)
    yield used()
    must("cuMemRelease", handle)
    yield used()


# ---- contexts


def made_context(create, *arguments):
    made, before = ptr(), ptr()
    must("cuCtxGetCurrent", c.byref(before))
    must(create, c.byref(made), *arguments, 0)
    return made, before


def context(create, destroy, *arguments):
    def steps():
        made, before = made_context(create, *arguments)
        cost = used()
        yield cost > 100 * MIB
        alloc(BLOCK)
        yield used() - cost
        must(destroy, made)
        must("cuCtxSetCurrent", before)
        yield used()

    return steps


def primary(end):
    """Card 1, so that the primary context that everything else here uses stays."""

    def steps():
        before, second = ptr(), ptr()
        must("cuCtxGetCurrent", c.byref(before))
        must("cuDevicePrimaryCtxRetain", c.byref(second), 1)
        must("cuCtxSetCurrent", second)
        cost = in_use()
        yield cost > 100 * MIB
        alloc(BLOCK)
        yield in_use() - cost
        must(end, 1)
        must("cuCtxSetCurrent", before)
        if end.startswith("cuDevicePrimaryCtxReset"):
            call("cuDevicePrimaryCtxRelease_v2", 1)
        must("cuDevicePrimaryCtxRetain", c.byref(second), 1)
        must("cuCtxSetCurrent", second)
        yield in_use() - cost
        must("cuDevicePrimaryCtxRelease_v2", 1)
        must("cuCtxSetCurrent", before)

    return steps


# ---- graphs


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
    """What an update of the executable says is the driver's word; the books follow it."""

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


# ---- questions


def total(name, integer):
    def steps():
        answer = integer()
        must(name, c.byref(answer), 0)
        yield answer.value

    return steps


def memory_info(name, integer):
    def steps():
        available, all_of_it = integer(), integer()
        must(name, c.byref(available), c.byref(all_of_it))
        yield all_of_it.value
        yield all_of_it.value - available.value - in_use()

    return steps


VARIABLE, CODE = f"pumice-global name=g bytes={BLOCK}\n".encode(), f"pumice-kernel name=k code={BLOCK}\n".encode()


def module_unloaded():
    module = ptr()
    must("cuModuleLoadData", c.byref(module), VARIABLE)
    yield used()
    must("cuModuleUnload", module)
    yield used()


def function_asked_for():
    module, function = ptr(), ptr()
    must("cuModuleLoadData", c.byref(module), CODE)
    yield used()
    must("cuModuleGetFunction", c.byref(function), module, b"k")
    yield used()
    must("cuModuleUnload", module)
    yield used()


def heap_resized():
    before = size_t()
    must("cuCtxGetLimit", c.byref(before), MALLOC_HEAP)
    must("cuCtxSetLimit", MALLOC_HEAP, size_t(before.value + BLOCK))
    yield used()
    must("cuCtxSetLimit", MALLOC_HEAP, before)
    yield used()


def library(image, *entries):
    """Loads it from memory or a file, calls each of the entries that look something up in it, and unloads it."""

    def steps():
        handle, found, size = ptr(), ptr(), size_t()
        with tempfile.NamedTemporaryFile() as file:
            file.write(image)
            file.flush()
            from_file = "cuLibraryLoadFromFile" in entries
            load, what = ("cuLibraryLoadFromFile", file.name.encode()) if from_file else ("cuLibraryLoadData", image)
            must(load, c.byref(handle), what, None, None, 0, None, None, 0)
        yield used()
        if "cuLibraryGetGlobal" in entries:
            must("cuLibraryGetGlobal", c.byref(found), c.byref(size), handle, b"g")
            yield used()
        if "cuLibraryGetModule" in entries:
            call("cuLibraryGetModule", c.byref(found), handle)  # some drivers have no module of it
        if "cuKernelGetFunction" in entries:
            must("cuLibraryGetKernel", c.byref(found), handle, b"k")
            must("cuKernelGetFunction", c.byref(found), found)
        must("cuLibraryUnload", handle)
        yield used()

    return steps


start()
error, log, result, outcome = ptr(), c.create_string_buffer(256), c.c_int(), (c.c_char * 32)()
parameters = Parameters()
log_arguments = (c.byref(error), log, size_t(len(log)))
ENTRIES = {
    "cuMemFree": freed_without_a_pointer,
    "cuMemFree_v2": linear("cuMemFree_v2"),
    "cuMemFreeAsync": linear("cuMemFreeAsync"),
    "cuMemFreeAsync_ptsz": linear("cuMemFreeAsync_ptsz"),
    "cuArrayDestroy": array("cuArrayDestroy", False),
    "cuMipmappedArrayDestroy": array("cuMipmappedArrayDestroy", True),
    "cuMemPoolCreate": pool_of_host_memory,
    "cuMemPoolTrimTo": pool_trimmed,
    "cuMemPoolDestroy": pool_destroyed,
    "cuMemPoolSetAttribute": pool_told_to_keep_nothing,
    "cuMemMap": handle_released_before_its_mapping,
    "cuMemUnmap": handle_released_before_its_mapping,
    "cuMemRelease": handle_released_after_its_mapping,
    "cuMemRetainAllocationHandle": handle_retained,
    "cuMemImportFromShareableHandle": own_export_imported,
    "cuCtxCreate": context("cuCtxCreate", "cuCtxDestroy_v2", 0),
    "cuCtxCreate_v2": context("cuCtxCreate_v2", "cuCtxDestroy_v2", 0),
    "cuCtxCreate_v3": context("cuCtxCreate_v3", "cuCtxDestroy_v2", None, 0, 0),
    "cuCtxCreate_v4": context("cuCtxCreate_v4", "cuCtxDestroy_v2", None, 0),
    "cuCtxDestroy": context("cuCtxCreate_v2", "cuCtxDestroy", 0),
    "cuCtxDestroy_v2": context("cuCtxCreate_v2", "cuCtxDestroy_v2", 0),
    "cuDevicePrimaryCtxRetain": primary("cuDevicePrimaryCtxRelease_v2"),
    "cuDevicePrimaryCtxRelease": primary("cuDevicePrimaryCtxRelease"),
    "cuDevicePrimaryCtxRelease_v2": primary("cuDevicePrimaryCtxRelease_v2"),
    "cuDevicePrimaryCtxReset": primary("cuDevicePrimaryCtxReset"),
    "cuDevicePrimaryCtxReset_v2": primary("cuDevicePrimaryCtxReset_v2"),
    "cuModuleUnload": module_unloaded,
    "cuCtxSetLimit": heap_resized,
    "cuModuleGetFunction": function_asked_for,
    "cuLibraryLoadData": library(VARIABLE),
    "cuLibraryLoadFromFile": library(VARIABLE, "cuLibraryLoadFromFile"),
    "cuLibraryUnload": library(VARIABLE, "cuLibraryGetGlobal"),
    "cuLibraryGetGlobal": library(VARIABLE, "cuLibraryGetGlobal"),
    "cuLibraryGetModule": library(CODE, "cuLibraryGetModule"),
    "cuKernelGetFunction": library(CODE, "cuKernelGetFunction"),
    "cuGraphInstantiate": instantiated("cuGraphInstantiate", *log_arguments),
    "cuGraphInstantiate_v2": instantiated("cuGraphInstantiate_v2", *log_arguments),
    "cuGraphInstantiateWithFlags": instantiated("cuGraphInstantiateWithFlags", u64(0)),
    "cuGraphInstantiateWithParams": instantiated("cuGraphInstantiateWithParams", c.byref(parameters)),
    "cuGraphInstantiateWithParams_ptsz": instantiated("cuGraphInstantiateWithParams_ptsz", c.byref(parameters)),
    "cuGraphExecUpdate": updated("cuGraphExecUpdate", c.byref(error), c.byref(result)),
    "cuGraphExecUpdate_v2": updated("cuGraphExecUpdate_v2", c.byref(outcome)),
    "cuGraphExecDestroy": graph_memory_trimmed,
    "cuDeviceGraphMemTrim": graph_memory_trimmed,
    "cuDeviceTotalMem": total("cuDeviceTotalMem", c.c_uint),
    "cuDeviceTotalMem_v2": total("cuDeviceTotalMem_v2", size_t),
    "cuMemGetInfo": memory_info("cuMemGetInfo", c.c_uint),
    "cuMemGetInfo_v2": memory_info("cuMemGetInfo_v2", size_t),
}
answers = {}
for entry, steps in ENTRIES.items():
    base = in_use()
    try:
        answers[entry] = list(steps())
    except Exception as problem:
        answers[entry] = str(problem)
say(answers)
