"""The accounting of contexts, primary and green ones among them."""

import ctypes as c

from books import BLOCK, MIB, in_use, used
from driver import alloc, call, free, must, ptr


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


def detached():
    made, before = made_context("cuCtxCreate_v2", 0)
    cost, again = used(), ptr()
    must("cuCtxAttach", c.byref(again), 0)
    must("cuCtxDetach", made)
    yield used() - cost
    must("cuCtxDetach", made)
    must("cuCtxSetCurrent", before)
    yield used()


def made_green(device):
    """A green context of the whole device, and how it is made current."""
    resource, description, made, context = c.create_string_buffer(144), ptr(), ptr(), ptr()
    must("cuDeviceGetDevResource", device, resource, 1)
    must("cuDevResourceGenerateDesc", c.byref(description), resource, 1)
    must("cuGreenCtxCreate", c.byref(made), description, device, 1)
    must("cuCtxFromGreenCtx", c.byref(context), made)
    return made, context


def green():
    """Beside a primary context it takes nothing, and what is allocated in it outlives it."""
    before = ptr()
    must("cuCtxGetCurrent", c.byref(before))
    made, context = made_green(0)
    yield used()
    must("cuCtxSetCurrent", context)
    _, pointer = alloc(BLOCK)
    must("cuGreenCtxDestroy", made)
    must("cuCtxSetCurrent", before)
    yield used()
    free(pointer)
    yield used()


def green_alone():
    """On card 1 it makes the primary context, which pays for what is allocated and takes it along in the end."""
    before = ptr()
    must("cuCtxGetCurrent", c.byref(before))
    made, context = made_green(1)
    must("cuCtxSetCurrent", context)
    cost = in_use()
    yield cost > 100 * MIB
    alloc(BLOCK)
    yield in_use() - cost
    must("cuGreenCtxDestroy", made)
    must("cuDevicePrimaryCtxRetain", c.byref(context), 1)
    must("cuCtxSetCurrent", context)
    yield in_use() - cost
    must("cuDevicePrimaryCtxRelease_v2", 1)
    must("cuCtxSetCurrent", before)
