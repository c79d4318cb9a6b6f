"""The process state that the library changed: umask, signal handlers, threads, errno, timer slack."""

import ctypes as c
import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, info, must, say, start, u64

libc = c.CDLL(None, use_errno=True)


def caught():
    lines = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return int(lines["SigCgt"], 16), int(lines["Threads"])


os.umask(0o27)
before, _ = caught()
slack = Path("/proc/self/timerslack_ns").read_text()
start()
errno_cuda = c.CDLL("libcuda.so.1", use_errno=True)
c.set_errno(17)
pointer = u64()
errno_cuda.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(info()[0] + 1))  # the refusal writes a line when asked to
errno = c.get_errno()
alloc(1 << 20)
must("cuCtxSynchronize")
after, threads = caught()
own_of_glibc = {32, 33}  # taken by the C library when a process's first thread begins
handlers = [number + 1 for number in range(64) if (before ^ after) >> number & 1 and number + 1 not in own_of_glibc]
mask = os.umask(0)
same = Path("/proc/self/timerslack_ns").read_text() == slack
say(
    {
        "umask": oct(mask),
        "handlers": handlers,
        "threads": threads,
        "errno": errno,
        "slack": "unchanged" if same else "changed",
    }
)
