"""A function is loaded while another thread is between its booking and the driver: late_code.py. Then all memory is taken.

Says how many blocks of 2 MiB, and holds them until its input ends. The driver is to be slow about the first allocation.
"""

import ctypes as c
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, hear, must, ptr, say, start

context = start()
module, function = ptr(), ptr()
must("cuModuleLoadData", c.byref(module), b"pumice-kernel name=k ns=1000\n")


def slow():
    must("cuCtxSetCurrent", context)
    alloc(2 << 20)


thread = threading.Thread(target=slow)
thread.start()
time.sleep(0.3)
must("cuModuleGetFunction", c.byref(function), module, b"k")
thread.join()
count = 0
while alloc(2 << 20)[0] == 0:
    count += 1
say(count)
hear()
