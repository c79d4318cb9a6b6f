"""Kernels of many kinds, each new, beside one that stays on the card: persistent.py KINDS. On a machine in virtual time.

Says how many milliseconds of the machine's time each launch took until it returned, the one that stays first.
"""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import cuda, must, ptr, say, start

now = cuda.pumice_machine_now_ns
now.restype = c.c_uint64
kinds = [f"k{number}" for number in range(int(sys.argv[1]))]


def launch(function, stream):
    begun = now()
    must("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, stream, None, None)
    return (now() - begun) // 1_000_000


start()
module, functions, streams = ptr(), {}, [ptr(), ptr()]
text = "".join(f"pumice-kernel name={name} ns={100_000 if name != 'stays' else 6_000_000_000}\n" for name in ("stays", *kinds))
must("cuModuleLoadData", c.byref(module), text.encode())
for name in ("stays", *kinds):
    functions[name] = ptr()
    must("cuModuleGetFunction", c.byref(functions[name]), module, name.encode())
for stream in streams:
    must("cuStreamCreate", c.byref(stream), 1)
cuda.pumice_machine_join()
took = [launch(functions["stays"], streams[0]), *(launch(functions[name], streams[1]) for name in kinds)]
cuda.pumice_machine_leave()
say(took)
os._exit(0)
