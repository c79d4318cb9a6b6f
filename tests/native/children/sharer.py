"""Passes device memory on to other processes and takes theirs, one command a line; answers the driver's code or what was asked.

alloc BYTES, free: linear memory. export [AT]: its IPC handle, asked for by the address of that byte. open HANDLE,
close: another's. create BYTES, release: physical memory. descriptor: the file that it is exported by. import PID FD,
map BYTES, unmap: another's. team BYTES CARDS: a multicast object of so many; export_team, import_team PID FD, join
with the own card, bind BYTES: what physical memory there is, unbind BYTES, release_team. info, fill BYTES, leave: the
primary context is reset. exit.
"""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, free, hear, info, ptr, say, size_t, start, u64
from structures import Prop, Team

PIDFD_GETFD = 438
BLOCK = 2 << 20
linear, opened, physical, mapped, teams = [], [], [], [], []
DEVICE = int(sys.argv[1])
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
            handle, prop = u64(), Prop(type=1, handles=1, location=(1, DEVICE))
            rc = call("cuMemCreate", c.byref(handle), size_t(int(size)), c.byref(prop), u64(0))
            if rc == 0:
                physical.append(handle)
            return rc
        case ["descriptor" | "export_team" as what]:
            descriptor, handle = c.c_int(), (physical if what == "descriptor" else teams)[0]
            rc = call("cuMemExportToShareableHandle", c.byref(descriptor), handle, 1, u64(0))
            return rc or [os.getpid(), descriptor.value]
        case ["import" | "import_team" as what, pid, number]:
            handle, descriptor = u64(), fetched(int(pid), int(number))
            rc = call("cuMemImportFromShareableHandle", c.byref(handle), ptr(descriptor), 1)
            os.close(descriptor)
            if rc == 0:
                (physical if what == "import" else teams).append(handle)
            return rc
        case ["team", size, cards]:
            handle = u64()
            rc = call("cuMulticastCreate", c.byref(handle), c.byref(Team(devices=int(cards), size=int(size), handles=1)))
            if rc == 0:
                teams.append(handle)
            return rc
        case ["join"]:
            return call("cuMulticastAddDevice", teams[0], DEVICE)
        case ["bind", size]:
            return call("cuMulticastBindMem", teams[0], size_t(0), physical[0], size_t(0), size_t(int(size)), u64(0))
        case ["unbind", size]:
            return call("cuMulticastUnbind", teams[0], DEVICE, size_t(0), size_t(int(size)))
        case ["release_team"]:
            return call("cuMemRelease", teams.pop())
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


start(DEVICE)
say("ready")
while (line := hear()) and line != "exit":
    say(obey(line.split()))
