"""One thread captures a graph in global mode, which any unsafe call of another thread would spoil; another launches all the
while under a limit, so that its launches are measured. Prints {codes: of the captures, nodes: of each graph}."""

import ctypes as c
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from driver import call, cuda, must, ptr, say, size_t, start

CAPTURES, NODES = 20, 20
context = start()
module, function, own, other = ptr(), ptr(), ptr(), ptr()
must("cuModuleLoadData", c.byref(module), c.c_char_p(b"pumice-kernel name=k ns=20000\n"))
must("cuModuleGetFunction", c.byref(function), module, c.c_char_p(b"k"))
must("cuStreamCreate", c.byref(own), 1)
must("cuStreamCreate", c.byref(other), 1)
done = threading.Event()
launched = 0
one, none = c.c_uint(1), c.c_uint(0)


def launch(stream):
    return cuda.cuLaunchKernel(function, one, one, one, c.c_uint(32), one, one, none, stream, None, None)


def keep_launching():
    global launched
    must("cuCtxSetCurrent", context)
    while not done.is_set():
        assert launch(other) == 0
        launched += 1


thread = threading.Thread(target=keep_launching)
thread.start()


def await_launches(count):
    """So many of the other thread, of which several are measured: one in 32, later one in 128."""
    wanted = launched + count
    while launched < wanted:
        time.sleep(0.0005)


await_launches(100)
codes, nodes = set(), set()
for _ in range(CAPTURES):
    graph, count = ptr(), size_t()
    codes.add(call("cuStreamBeginCapture_v2", own, 0))
    codes.update(launch(own) for _ in range(NODES))
    await_launches(400)
    codes.add(call("cuStreamEndCapture", own, c.byref(graph)))
    codes.add(call("cuGraphGetNodes", graph, None, c.byref(count)))
    nodes.add(count.value)
done.set()
thread.join()
say({"codes": sorted(codes), "nodes": sorted(nodes)})
