"""Forks a lot: children side by side that use the GPU afresh, then a long chain of children of children.

Prints [answers of the children's cuInit that are none of the driver's, descriptors of this process more than before,
mappings of the region in the last of the chain]. The parent holds memory all the while.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, say, start

FORKS, CHAIN = 100, 20
region = os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def mappings():
    return Path("/proc/self/maps").read_text().count(region)


start()
alloc(100 << 20)
before = descriptors()
children = []
for _ in range(FORKS):
    if (pid := os.fork()) == 0:
        os._exit(call("cuInit", 0) not in (0, 3, 999))
    children.append(pid)
strange = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children)

reader, writer = os.pipe()
if (pid := os.fork()) == 0:
    for _ in range(CHAIN):
        call("cuInit", 0)
        if (inner := os.fork()) != 0:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
    call("cuInit", 0)
    os.write(writer, str(mappings()).encode())
    os._exit(0)
os.close(writer)
last = int(os.read(reader, 100) or b"-1")
os.close(reader)
os.waitpid(pid, 0)
say([strange, descriptors() - before, last])
