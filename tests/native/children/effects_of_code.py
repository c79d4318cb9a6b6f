"""The accounting of modules and libraries, and of other growth on the card."""

import ctypes as c
import tempfile

from books import BLOCK, used
from driver import call, must, ptr, size_t

MALLOC_HEAP = 2
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
