"""Threads that load modules, look up what is in them and unload them again: module_threads.py THREADS ROUNDS. Then it waits."""

import ctypes as c
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, free, hear, must, ptr, say, start

context = start()
IMAGES = (
    b".version 8.0\n.target sm_80\n.global .b8 g[1000];\n",
    b".version 8.0\n.target sm_80\n.global .b8 g[3000000];\n",
    b"pumice-kernel name=k ns=1000 code=700000\n",
)


def work(number):
    must("cuCtxSetCurrent", context)
    for turn in range(int(sys.argv[2])):
        image = IMAGES[(number + turn) % len(IMAGES)]
        module, (_, small) = ptr(), alloc(1000)
        must("cuModuleLoadData", c.byref(module), image)
        if b"name=k" in image:
            must("cuModuleGetFunction", c.byref(ptr()), module, b"k")
        free(small)
        must("cuModuleUnload", module)


threads = [threading.Thread(target=work, args=(number,)) for number in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
must("cuModuleLoadData", c.byref(module := ptr()), IMAGES[0])
must("cuModuleUnload", module)
say("done")
hear()
