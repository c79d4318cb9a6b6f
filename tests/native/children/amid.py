"""One thread is inside the driver, which is slow about it, while another does what may upset it; then all memory is taken.

amid.py graph: a graph with memory of its own is launched, and another thread asks for more than there is, and then for the rest.
amid.py hole: the limit has no room for a pool's next piece, a request is to lie in what the pool has free, and another thread
synchronises, by which the pool gives that back.
Says what the slow call answered, and holds everything until its input ends.
"""

import ctypes as c
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, call, hear, info, must, ptr, say, size_t, start, u64
from effects_of_graphs import graph_of

MIB = 1 << 20
context = start()
answers = []


def fill():
    count = 0
    while alloc(2 * MIB)[0] == 0:
        count += 1
    return count


def in_another_thread(slow):
    def run():
        must("cuCtxSetCurrent", context)
        answers.append(slow())

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    return thread


def graph():
    executable = ptr()
    must("cuGraphInstantiateWithFlags", c.byref(executable), graph_of(500 * MIB), u64(0))
    launching = in_another_thread(lambda: call("cuGraphLaunch", executable, None))
    alloc(info()[1])  # refused
    fill()
    launching.join()


def from_pool(size):
    pointer = u64()
    return call("cuMemAllocAsync", c.byref(pointer), size_t(size), None), pointer


def hole():
    kept, free = from_pool(20 * MIB)[1], from_pool(20 * MIB)[1]
    fill()
    must("cuMemFreeAsync", free, None)
    allocating = in_another_thread(lambda: from_pool(20 * MIB)[0])
    must("cuCtxSynchronize")
    fill()
    allocating.join()
    assert kept.value


{"graph": graph, "hole": hole}[sys.argv[1]]()
say(answers[0])
hear()
