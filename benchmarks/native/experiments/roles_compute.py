"""Roles that keep the card busy and count what was really done: kernels of fixed work, credited when they are finished."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import time
from collections import deque
from collections.abc import Callable
from ctypes import c_void_p
from typing import Any

from benchmarks.native.experiments.cuda import Cuda
from benchmarks.native.experiments.kernels import READ, Kernel
from benchmarks.native.experiments.roles import Go

BATCH_NS, DEPTH, WINDOW_S = 1_000_000, 3, 0.05
STAMPS = 4096


def calibrate(_: dict[str, Any], go: Go) -> Any:
    cuda = Cuda()
    cuda.start()
    kernel = Kernel(cuda)
    go()
    return {"rounds_per_us": kernel.calibrate(), "name": cuda.name()}


class Tally:
    """Work done by windows of 50 ms, in ns of kernel time as the idle card would take it."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.begun = now()
        self.end = self.begun + seconds
        self.windows = [0] * (math.ceil(seconds / WINDOW_S) + 1)

    @property
    def over(self) -> bool:
        return self.now() >= self.end

    def credit(self, ns: int) -> None:
        at = int((self.now() - self.begun) / WINDOW_S)
        self.windows[min(at, len(self.windows) - 1)] += ns

    def result(self) -> dict[str, Any]:
        return {"window_s": WINDOW_S, "windows": self.windows[:-1]}


def keep_busy(config: dict[str, Any], go: Go) -> Any:
    """``kernel_ns``, ``seconds``, ``shape`` (async, sync, graph, cooperative, lognormal), ``streams``, ``stamps``."""
    cuda = Cuda()
    cuda.start()
    kernel = Kernel(cuda, rounds_per_us=config["rounds_per_us"])
    shape, ns = config.get("shape", "async"), int(config["kernel_ns"])
    streams = [cuda.stream() for _ in range(config.get("streams", 1))]
    kernel.shape(ns)
    unit, unit_ns = _unit(cuda, kernel, streams, shape, ns, config)
    go()
    tally = Tally(config["seconds"], cuda.now)
    if shape == "sync":
        while not tally.over:
            cuda("cuStreamSynchronize", _launched(unit, streams[0]))
            tally.credit(unit_ns())
    else:
        _in_flight(cuda, tally, streams, unit, unit_ns, ns * int(config.get("nodes", 1)))
    stamps = _stamped(cuda, kernel) if config.get("stamps") else None
    return {**tally.result(), "stamps": stamps}


def _launched(unit: Callable[[c_void_p], None], stream: c_void_p) -> c_void_p:
    unit(stream)
    return stream


def _unit(
    cuda: Cuda, kernel: Kernel, streams: list[c_void_p], shape: str, ns: int, config: dict[str, Any]
) -> tuple[Callable[[c_void_p], None], Callable[[], int]]:
    """Launch one batch and return its work."""
    if shape == "graph":
        nodes = int(config.get("nodes", 20))

        def chain() -> None:
            for _ in range(nodes):
                kernel.launch(streams[0])

        executable = cuda.captured(streams[0], chain)
        return (lambda stream: cuda("cuGraphLaunch", executable, stream)), lambda: ns * nodes
    if shape == "cooperative":
        return kernel.launch_cooperative, lambda: ns
    if shape == "lognormal":
        return _drawn(kernel, ns)
    if config.get("stamps"):
        return _stamping(cuda, kernel), lambda: ns
    return kernel.launch, lambda: ns


def _drawn(kernel: Kernel, mean_ns: int) -> tuple[Callable[[c_void_p], None], Callable[[], int]]:
    rng, last = random.Random(5), [mean_ns]

    def launch(stream: c_void_p) -> None:
        last[0] = int(rng.lognormvariate(math.log(mean_ns), 1.0))
        kernel.shape(last[0])
        kernel.launch(stream)

    return launch, lambda: last[0]


def _in_flight(
    cuda: Cuda,
    tally: Tally,
    streams: list[c_void_p],
    unit: Callable[[c_void_p], None],
    unit_ns: Callable[[], int],
    about_ns: int,
) -> None:
    """A few batches of about a millisecond in flight on each stream; one is credited when its event has come."""
    batch = max(1, BATCH_NS // max(about_ns, 1))
    rings: list[deque[tuple[c_void_p, int]]] = [deque() for _ in streams]
    spare = [cuda.event() for _ in range(DEPTH * len(streams))]
    while not tally.over:
        for stream, ring in zip(streams, rings, strict=True):
            if len(ring) == DEPTH:
                event, work = ring.popleft()
                cuda("cuEventSynchronize", event)
                tally.credit(work)
                spare.append(event)
            work = 0
            for _ in range(batch):
                unit(stream)
                work += unit_ns()
            event = spare.pop()
            cuda("cuEventRecord", event, stream)
            ring.append((event, work))


def _stamping(cuda: Cuda, kernel: Kernel) -> Callable[[c_void_p], None]:
    """Each launch leaves when it began and ended, the last few thousand of them."""
    kernel.scratch = cuda.allocate(16 * STAMPS + 64)
    cuda("cuMemsetD8_v2", kernel.scratch, 0, 16 * STAMPS)
    count = 0

    def launch(stream: c_void_p) -> None:
        nonlocal count
        kernel.stamp_at(kernel.scratch + 16 * (count % STAMPS))
        count += 1
        kernel.launch(stream)

    return launch


def _stamped(cuda: Cuda, kernel: Kernel) -> list[list[int]]:
    """[began, ended] by the card's own clock in ns, in order; empty on a card that runs no code."""
    cuda("cuCtxSynchronize")
    data = ctypes.create_string_buffer(16 * STAMPS)
    cuda("cuMemcpyDtoH_v2", data, kernel.scratch, 16 * STAMPS)
    pairs = sorted(struct.iter_unpack("<QQ", data.raw))
    return [list(pair) for pair in pairs if pair[0]]


def probe(config: dict[str, Any], go: Go) -> Any:
    """Milliseconds until one kernel of ``kernel_ns`` is done, asked for every ``every_ms``."""
    cuda = Cuda()
    cuda.start()
    kernel = Kernel(cuda, rounds_per_us=config["rounds_per_us"])
    stream = cuda.stream()
    kernel.shape(int(config["kernel_ns"]))
    go()
    tally, spent = Tally(config["seconds"]), []
    while not tally.over:
        begun = time.perf_counter()
        kernel.launch(stream)
        cuda("cuStreamSynchronize", stream)
        spent.append(1000 * (time.perf_counter() - begun))
        time.sleep(config["every_ms"] / 1000)
    return spent


def serve(config: dict[str, Any], go: Go) -> Any:
    """A decode loop: requests come at random, each is a burst of prefill work and then tokens, one graph of small kernels each.

    Milliseconds to the first token and per token, of every request that was finished.
    """
    cuda = Cuda()
    cuda.start()
    stream, kernel = cuda.stream(), Kernel(cuda, rounds_per_us=config["rounds_per_us"])
    weights_bytes = int(config["weights_mib"]) << 20
    weights, reader = cuda.allocate(weights_bytes), Kernel(cuda, READ)
    nodes, step_ns = int(config["nodes"]), int(config["step_ns"])

    def step() -> None:
        kernel.shape(step_ns // nodes // 2)
        for _ in range(nodes - 1):
            kernel.launch(stream)
        reader.shape(step_ns // 2, pointer=weights, count=weights_bytes // 16)
        reader.launch(stream)

    decode = cuda.captured(stream, step)
    rng = random.Random(3)
    go()
    tally, first_ms, token_ms = Tally(config["seconds"]), [], []
    due = tally.begun
    while not tally.over:
        due += rng.expovariate(config["per_second"])
        time.sleep(max(0.0, due - time.perf_counter()))
        arrived = max(due, tally.begun)
        block = ctypes.c_uint64()
        cuda("cuMemAllocAsync", ctypes.byref(block), int(config["kv_mib"]) << 20, stream)
        kernel.shape(int(config["prefill_ns"]) // 8)
        for _ in range(8):
            kernel.launch(stream)
        for token in range(int(config["tokens"])):
            begun = time.perf_counter()
            cuda("cuGraphLaunch", decode, stream)
            cuda("cuStreamSynchronize", stream)
            now = time.perf_counter()
            if token == 0:
                first_ms.append(1000 * (now - arrived))
            else:
                token_ms.append(1000 * (now - begun))
        cuda("cuMemFreeAsync", block, stream)
    return {"first_ms": first_ms, "token_ms": token_ms}


ROLES: dict[str, Callable[[dict[str, Any], Go], Any]] = {
    "calibrate": calibrate,
    "busy": keep_busy,
    "probe": probe,
    "serve": serve,
}
