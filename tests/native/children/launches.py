"""Runs 300 kernels of 1 ms through each entry that launches; prints {entry: ms of machine time until all were done}.

Under "capture" stands how long the capture of a graph took right after a kernel of 1 s, so with all of it still to be paid.
"""

import ctypes as c
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from driver import cuda, must, ptr, say, start, u64

KERNELS, NODES = 300, 10
one, none = c.c_uint(1), c.c_uint(0)


class Config(c.Structure):
    _fields_ = [
        ("shape", c.c_uint * 6),
        ("shared", c.c_uint),
        ("stream", ptr),
        ("attributes", ptr),
        ("count", c.c_uint),
    ]


class Part(c.Structure):
    """CUDA_LAUNCH_PARAMS: a cooperative launch on one of several devices."""

    _fields_ = [("function", ptr), ("shape", c.c_uint * 6), ("shared", c.c_uint), ("stream", ptr), ("parameters", ptr)]


start()
cuda.pumice_machine_now_ns.restype = u64
cuda.pumice_machine_join()
module, function, stream = ptr(), ptr(), ptr()
must("cuModuleLoadData", c.byref(module), c.c_char_p(b"pumice-kernel name=k ns=1000000\n"))
must("cuModuleGetFunction", c.byref(function), module, c.c_char_p(b"k"))
must("cuFuncSetBlockShape", function, 32, 1, 1)
must("cuStreamCreate", c.byref(stream), 1)
config = Config(shape=(1, 1, 1, 32, 1, 1), stream=stream)
part = Part(function=function, shape=(1, 1, 1, 32, 1, 1), stream=stream)


def plain(name):
    last = (None, None) if name.startswith("cuLaunchKernel") else (None,)
    return lambda: must(name, function, one, one, one, c.c_uint(32), one, one, none, stream, *last)


def graph():
    captured, executable = ptr(), ptr()
    must("cuStreamBeginCapture_v2", stream, 0)
    for _ in range(NODES):
        must("cuLaunchKernel", function, one, one, one, c.c_uint(32), one, one, none, stream, None, None)
    must("cuStreamEndCapture", stream, c.byref(captured))
    must("cuGraphInstantiateWithFlags", c.byref(executable), captured, u64(0))
    return executable


executable = graph()
ENTRIES = {
    "cuLaunchKernel": plain("cuLaunchKernel"),
    "cuLaunchKernel_ptsz": plain("cuLaunchKernel_ptsz"),
    "cuLaunchKernelEx": lambda: must("cuLaunchKernelEx", c.byref(config), function, None, None),
    "cuLaunchKernelEx_ptsz": lambda: must("cuLaunchKernelEx_ptsz", c.byref(config), function, None, None),
    "cuLaunchCooperativeKernel": plain("cuLaunchCooperativeKernel"),
    "cuLaunchCooperativeKernel_ptsz": plain("cuLaunchCooperativeKernel_ptsz"),
    "cuLaunchCooperativeKernelMultiDevice": lambda: must("cuLaunchCooperativeKernelMultiDevice", c.byref(part), 1, 0),
    "cuLaunch": lambda: must("cuLaunch", function),
    "cuLaunchGrid": lambda: must("cuLaunchGrid", function, 1, 1),
    "cuLaunchGridAsync": lambda: must("cuLaunchGridAsync", function, 1, 1, stream),
    "cuGraphLaunch": lambda: must("cuGraphLaunch", executable, stream),
    "cuGraphLaunch_ptsz": lambda: must("cuGraphLaunch_ptsz", executable, stream),
}
spent = {}
for entry, launch in ENTRIES.items():
    begun = cuda.pumice_machine_now_ns()
    for _ in range(KERNELS // NODES if entry.startswith("cuGraph") else KERNELS):
        launch()
    must("cuCtxSynchronize")
    spent[entry] = (cuda.pumice_machine_now_ns() - begun) / 1e6
long_one = ptr()
must("cuModuleLoadData", c.byref(module), c.c_char_p(b"pumice-kernel name=k ns=1000000000\n"))
must("cuModuleGetFunction", c.byref(long_one), module, c.c_char_p(b"k"))
for _ in range(2):  # the second is known when it is launched, so it is charged at once
    must("cuLaunchKernel", long_one, one, one, one, c.c_uint(32), one, one, none, stream, None, None)
    must("cuCtxSynchronize")
begun = cuda.pumice_machine_now_ns()
graph()
spent["capture"] = (cuda.pumice_machine_now_ns() - begun) / 1e6
cuda.pumice_machine_leave()
say(spent)
