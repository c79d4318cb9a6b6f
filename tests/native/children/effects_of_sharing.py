"""The accounting of shared memory: by handles, to other processes, from other interfaces."""

import ctypes as c
import json
import os
import subprocess
import sys

from books import BLOCK, in_use, used
from driver import alloc, call, info, must, ptr, u64
from effects_of_memory import new_pool, physical
from structures import Bytes


def own_export_imported():
    handle, back, descriptor = physical(), u64(), c.c_int()
    must("cuMemExportToShareableHandle", c.byref(descriptor), handle, 1, u64(0))
    must("cuMemImportFromShareableHandle", c.byref(back), ptr(descriptor.value), 1)
    yield used()
    must("cuMemRelease", back)
    yield used()
    must("cuMemRelease", handle)
    yield used()


def talk_to_another():
    """Another process of the container, and what asks it."""
    here = os.path.dirname(__file__)
    command = [sys.executable, "-I", "-S", os.path.join(here, "sharer.py"), "0"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(words):
        if words:
            print(words, file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    assert ask("") == "ready"
    return process, ask


def opened(name):
    """Check that memory of another process is charged once, stays paid for when that lets it go, and is free when this one
    does, too."""

    def steps():
        process, ask = talk_to_another()
        assert ask(f"alloc {BLOCK}") == 0
        before, pointer = in_use(), u64()
        handle = Bytes((c.c_ubyte * 64)(*bytes.fromhex(ask("export"))))
        must(name, c.byref(pointer), handle, 1)
        yield in_use() - before
        assert ask("free") == 0
        yield in_use() - before
        must("cuIpcCloseMemHandle", pointer)
        yield in_use() - before
        process.kill()
        process.wait()

    return steps


def told_to_another(*entries):
    """The handle of what is let go here is held by who opened it."""

    def steps():
        process, ask = talk_to_another()
        before, handle = in_use(), Bytes()
        if "cuIpcGetMemHandle" in entries:
            pointer = alloc(BLOCK)[1]
            must("cuIpcGetMemHandle", c.byref(handle), u64(pointer))
            assert ask(f"open {bytes(handle.bytes).hex()}") == 0
            must("cuMemFree_v2", u64(pointer))
        else:
            made, descriptor = physical(), c.c_int()
            must("cuMemExportToShareableHandle", c.byref(descriptor), made, 1, u64(0))
            assert ask(f"import {os.getpid()} {descriptor.value}") == 0
            must("cuMemRelease", made)
        yield in_use() - before
        process.kill()
        process.wait()
        yield used()

    return steps


def pointer_of_anothers_pool():
    pool, pointer = new_pool(), u64()
    yield call("cuMemPoolImportPointer", c.byref(pointer), pool, c.byref(Bytes())) != 0
    yield used()
    must("cuMemPoolDestroy", pool)


class External(c.Structure):
    _fields_ = [("type", c.c_int), ("handle", u64 * 2), ("size", u64), ("flags", c.c_uint), ("reserved", c.c_uint * 16)]


def of_another_interface():
    memory = ptr()
    yield call("cuImportExternalMemory", c.byref(memory), c.byref(External(type=1, size=info()[0] + 1)))
    must("cuImportExternalMemory", c.byref(memory), c.byref(External(type=1, size=BLOCK)))
    yield used()
    must("cuDestroyExternalMemory", memory)
    yield used()
