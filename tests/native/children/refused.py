"""Calls an entry that the library refuses under a limit, and prints what it answered."""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import call, ptr, say, size_t, start, u64


class Mapping(c.Structure):
    """CUarrayMapInfo; operation 1: map."""

    _fields_ = [("before", u64 * 7), ("operation", c.c_int), ("type", c.c_int), ("handle", u64), ("after", u64 * 3)]


class Restore(c.Structure):
    _fields_ = [("pairs", ptr), ("count", c.c_uint), ("reserved", c.c_ubyte * 52)]


start()
mapping, pair = Mapping(operation=1, handle=1), (c.c_ubyte * 32)()
ARGUMENTS = {
    "cuMemMapArrayAsync": (c.byref(mapping), 1, None),
    "cuMemMapArrayAsync_ptsz": (c.byref(mapping), 1, None),
    "cuLogicalEndpointBindMem": (1, 0, u64(0), u64(1), u64(0), u64(1 << 21), u64(0)),
    "cuLogicalEndpointBindAddr": (1, 0, u64(0), ptr(1), size_t(1 << 21), u64(0)),
    "cuCheckpointProcessRestore": (os.getpid(), c.byref(Restore(pairs=c.addressof(pair), count=1))),
}
assert c.sizeof(Mapping) == 96
assert c.sizeof(Restore) == 64
say(call(sys.argv[1], *ARGUMENTS[sys.argv[1]]))
