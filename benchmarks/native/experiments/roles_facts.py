"""Roles that ask: what the driver and NVML say, what single calls cost, how long a start takes, whether captures survive."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from itertools import pairwise
from typing import Any

import pynvml

from benchmarks.native.experiments.cuda import GLOBAL_CAPTURE, Cuda
from benchmarks.native.experiments.kernels import Kernel
from benchmarks.native.experiments.roles import Go

VERSIONS = (
    2000,
    3020,
    4000,
    6050,
    7000,
    9000,
    10000,
    10020,
    11000,
    11020,
    11030,
    11040,
    11060,
    12000,
    12020,
    12050,
    13000,
)


def addresses(config: dict[str, Any], go: Go) -> Any:
    """Which answers of cuGetProcAddress are none of the addresses that the driver exports under the name's variants."""
    cuda = Cuda()
    go()
    requested, strangers = 0, []
    for base in config["names"]:
        variants = {
            f"{base}{version}{stream}" for version in ("", "_v2", "_v3", "_v4") for stream in ("", "_ptsz", "_ptds")
        }
        variants |= {f"{base}{more}" for more in ("WithFlags", "WithParams", "WithParams_ptsz")}
        exported = {cuda.address(name) for name in variants} - {None}
        for version in VERSIONS:
            for flags in (0, 1, 2):
                found, status = c_void_p(), c_int(-1)
                code = cuda.code(
                    "cuGetProcAddress_v2", c_char_p(base.encode()), byref(found), version, flags, byref(status)
                )
                if code or not found.value:
                    continue
                requested += 1
                if found.value not in exported:
                    strangers.append(f"{base}/{version}/{flags}")
    return {"answers": requested, "not exported": strangers}


def costs(config: dict[str, Any], go: Go) -> Any:
    """ns of single calls through ctypes, less those of the cheapest call there is (cuDriverGetVersion)."""
    cuda = Cuda()
    cuda.start()
    kernel, stream, event = Kernel(cuda, rounds_per_us=config["rounds_per_us"]), cuda.stream(), cuda.event(0)
    kernel.shape(1)
    device, context, version, free = c_int(), c_void_p(), c_int(), c_size_t()
    calls: dict[str, Callable[[], object]] = {
        "cuDriverGetVersion": lambda: cuda.code("cuDriverGetVersion", byref(version)),
        "cuCtxGetDevice": lambda: cuda.code("cuCtxGetDevice", byref(device)),
        "cuCtxGetCurrent": lambda: cuda.code("cuCtxGetCurrent", byref(context)),
        "cuEventRecord": lambda: cuda.code("cuEventRecord", event, stream),
        "cuEventQuery": lambda: cuda.code("cuEventQuery", event),
        "cuMemGetInfo": lambda: cuda.code("cuMemGetInfo_v2", byref(free), byref(c_size_t())),
        "cuLaunchKernel": lambda: kernel.launch(stream),
    }
    go()
    reported = {name: _median_ns(cuda, call) for name, call in calls.items()}
    floor = reported.pop("cuDriverGetVersion")
    return {name: round(value - floor, 1) for name, value in reported.items()}


def _median_ns(cuda: Cuda, call: Callable[[], object]) -> float:
    rounds = []
    for _ in range(15):
        begun = time.perf_counter_ns()
        for _ in range(500):
            call()
        rounds.append((time.perf_counter_ns() - begun) / 500)
        cuda("cuCtxSynchronize")
    return sorted(rounds)[len(rounds) // 2]


def context(_: dict[str, Any], go: Go) -> Any:
    """The memory of a bare context, by NVML and by free memory, and under which pid NVML lists this process."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    cuda = Cuda()
    go()
    before = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    cuda.start()
    free, total = cuda.memory()
    listed = {one.pid: one.usedGpuMemory for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    return {
        "bytes by NVML's used memory": int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) - before,
        "bytes missing of cuMemGetInfo's total": total - free,
        "own pid is listed": os.getpid() in listed,
        "bytes listed for it": listed.get(os.getpid()),
        "pids listed": len(listed),
    }


def start(_: dict[str, Any], go: Go) -> Any:
    """Milliseconds of loading the driver with cuInit, and of the first context."""
    go()
    begun = time.perf_counter()
    cuda = Cuda()
    initialised = time.perf_counter()
    cuda.start()
    return {"init_ms": 1000 * (initialised - begun), "context_ms": 1000 * (time.perf_counter() - initialised)}


def watch(config: dict[str, Any], go: Go) -> Any:
    """Utilisation in percent, SM clock in MHz and processes on the card, ten times a second until a line comes."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    go()
    reported: dict[str, list[int]] = {"utilisation": [], "clock_mhz": [], "processes": []}
    stamps: set[int] = set()
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        with suppress(pynvml.NVMLError):
            reported["utilisation"].append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        with suppress(pynvml.NVMLError):
            reported["clock_mhz"].append(int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)))
        with suppress(pynvml.NVMLError):
            reported["processes"].append(len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)))
        with suppress(pynvml.NVMLError):
            stamps.update(
                int(one.timeStamp) for one in pynvml.nvmlDeviceGetProcessUtilization(handle, 0) if one.timeStamp
            )
    ordered = sorted(stamps)
    gaps = [later - earlier for earlier, later in pairwise(ordered)]
    return {**reported, "smutil_gap_us": sorted(gaps)[len(gaps) // 2] if gaps else None}


def capture(config: dict[str, Any], go: Go) -> Any:
    """Captures in global mode while another thread launches under the limiter: codes that came, nodes of the graphs."""
    cuda = Cuda()
    current = cuda.start()
    kernel, other = (Kernel(cuda, rounds_per_us=config["rounds_per_us"]) for _ in range(2))
    kernel.shape(20_000)
    other.shape(20_000)
    own_stream, other_stream = cuda.stream(), cuda.stream()
    done, launched = threading.Event(), [0]
    go()

    def keep_launching() -> None:
        cuda("cuCtxSetCurrent", current)
        while not done.is_set():
            other.launch(other_stream)
            launched[0] += 1

    thread = threading.Thread(target=keep_launching)
    thread.start()
    codes, nodes = set(), set()
    try:
        for _ in range(int(config["captures"])):
            graph, count, wanted = c_void_p(), c_size_t(), launched[0] + 400
            codes.add(cuda.code("cuStreamBeginCapture_v2", own_stream, GLOBAL_CAPTURE))
            for _ in range(20):
                kernel.launch(own_stream)
            while launched[0] < wanted and thread.is_alive():
                time.sleep(0.0005)
            codes.add(cuda.code("cuStreamEndCapture", own_stream, byref(graph)))
            codes.add(cuda.code("cuGraphGetNodes", graph, None, byref(count)))
            nodes.add(count.value)
    finally:
        done.set()
        thread.join()
    return {"codes": sorted(codes), "nodes": sorted(nodes), "launched beside": launched[0]}


ROLES: dict[str, Callable[[dict[str, Any], Go], Any]] = {
    "addresses": addresses,
    "costs": costs,
    "context": context,
    "start": start,
    "watch": watch,
    "capture": capture,
}
