"""What contexts do to the books, primary and green ones among them."""

import ctypes as c

from books import BLOCK, MIB, in_use, used
from driver import alloc, call, must, ptr
from structures import Bytes


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


def green():
    description, made, before = ptr(), ptr(), ptr()
    must("cuCtxGetCurrent", c.byref(before))
    must("cuDevResourceGenerateDesc", c.byref(description), c.byref(Bytes()), 1)
    must("cuGreenCtxCreate", c.byref(made), description, 0, 1)
    cost = used()
    yield cost > 100 * MIB
    context = ptr()
    must("cuCtxFromGreenCtx", c.byref(context), made)
    must("cuCtxSetCurrent", context)
    alloc(BLOCK)
    yield used() - cost
    must("cuGreenCtxDestroy", made)
    must("cuCtxSetCurrent", before)
    yield used()
