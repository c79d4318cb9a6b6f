"""Passes device memory on to other processes and takes theirs, one command a line; answers the driver's code or what was asked.

alloc BYTES, free: linear memory. export [AT]: its IPC handle, asked for by the address of that byte. open HANDLE, close:
another's. create BYTES, release: physical memory. descriptor: the file that it is exported by. import PID FD, map BYTES, unmap:
another's. info, fill BYTES, leave: the primary context is reset. exit.
"""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, free, hear, info, ptr, say, size_t, start, u64
from structures import Prop

PIDFD_GETFD = 438
BLOCK = 2 << 20
linear, opened, physical, mapped = [], [], [], []
libc = c.CDLL(None, use_errno=True)


class Handle(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 64)]


def fetched(pid, number):
    """The other's open file itself, as a message over a socket would bring it."""
    process = os.pidfd_open(pid)
    descriptor = libc.syscall(PIDFD_GETFD, process, number, 0)
    os.close(process)
    assert descriptor >= 0, c.get_errno()
    return descriptor


def obey(words):
    match words:
        case ["alloc", size]:
            rc, pointer = alloc(int(size))
            if rc == 0:
                linear.append(pointer)
            return rc
        case ["free"]:
            return free(linear.pop(0))
        case ["fill", size]:
            count = 0
            while alloc(int(size))[0] == 0:
                count += 1
            return count
        case ["export", *at]:
            handle = Handle()
            rc = call("cuIpcGetMemHandle", c.byref(handle), u64(linear[0] + sum(map(int, at))))
            return rc or bytes(handle.bytes).hex()
        case ["open", text]:
            pointer, handle = u64(), Handle((c.c_ubyte * 64)(*bytes.fromhex(text)))
            rc = call("cuIpcOpenMemHandle_v2", c.byref(pointer), handle, 1)
            if rc == 0:
                opened.append(pointer)
            return rc
        case ["close"]:
            return call("cuIpcCloseMemHandle", opened.pop())
        case ["create", size]:
            handle, prop = u64(), Prop(type=1, handles=1, location=(1, 0))
            rc = call("cuMemCreate", c.byref(handle), size_t(int(size)), c.byref(prop), u64(0))
            if rc == 0:
                physical.append(handle)
            return rc
        case ["descriptor"]:
            descriptor = c.c_int()
            rc = call("cuMemExportToShareableHandle", c.byref(descriptor), physical[0], 1, u64(0))
            return rc or [os.getpid(), descriptor.value]
        case ["import", pid, number]:
            handle, descriptor = u64(), fetched(int(pid), int(number))
            rc = call("cuMemImportFromShareableHandle", c.byref(handle), ptr(descriptor), 1)
            os.close(descriptor)
            if rc == 0:
                physical.append(handle)
            return rc
        case ["map", size]:
            address = u64()
            call("cuMemAddressReserve", c.byref(address), size_t(int(size)), size_t(0), u64(0), u64(0))
            rc = call("cuMemMap", address, size_t(int(size)), size_t(0), physical[0], u64(0))
            if rc == 0:
                mapped.append((address, int(size)))
            return rc
        case ["unmap"]:
            address, size = mapped.pop()
            return call("cuMemUnmap", address, size_t(size))
        case ["release"]:
            return call("cuMemRelease", physical.pop())
        case ["info"]:
            return info()
        case ["leave"]:
            return call("cuDevicePrimaryCtxReset_v2", 0)
    return None


start(int(sys.argv[1]))
say("ready")
while (line := hear()) and line != "exit":
    say(obey(line.split()))
