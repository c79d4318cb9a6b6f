"""Roles that take memory: to the last byte by every API, at random, or to be killed with it."""

from __future__ import annotations

import random
import select
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any

import pynvml

from benchmarks.native.experiments.cuda import (
    NOT_FOUND,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    POOL_THRESHOLD,
    ArrayShape,
    Cuda,
    MemProp,
    PoolProps,
)
from benchmarks.native.experiments.roles import MIB, Go

GRANULE = 2 * MIB
Take = Callable[[int], int]  # bytes -> the driver's code


def _linear(cuda: Cuda) -> Take:
    return lambda size: cuda.code("cuMemAlloc_v2", byref(c_uint64()), size)


def _pitched(cuda: Cuda) -> Take:
    def take(size: int) -> int:
        return cuda.code("cuMemAllocPitch_v2", byref(c_uint64()), byref(c_size_t()), 512, max(1, size // 512), 4)

    return take


def _managed(cuda: Cuda) -> Take:
    return lambda size: cuda.code("cuMemAllocManaged", byref(c_uint64()), size, 1)


def _async(cuda: Cuda) -> Take:
    return lambda size: cuda.code("cuMemAllocAsync", byref(c_uint64()), size, None)


def _pool(cuda: Cuda) -> Take:
    pool, props = c_void_p(), PoolProps(type=1, location_type=1, location_id=0)
    cuda("cuMemPoolCreate", byref(pool), byref(props))
    return lambda size: cuda.code("cuMemAllocFromPoolAsync", byref(c_uint64()), size, pool, None)


def _physical(cuda: Cuda) -> Take:
    prop = MemProp(type=1, location_type=1, location_id=0)
    return lambda size: cuda.code("cuMemCreate", byref(c_uint64()), size, byref(prop), 0)


def _array(cuda: Cuda) -> Take:
    def take(size: int) -> int:  # rows of 64 KiB
        shape = ArrayShape(width=16384, height=max(1, size // 65536), format=0x20, channels=1)
        return cuda.code("cuArray3DCreate_v2", byref(c_void_p()), byref(shape))

    return take


WAYS: dict[str, tuple[Callable[[Cuda], Take], int]] = {  # and the smallest block that the API hands out
    "linear": (_linear, 1),
    "pitched": (_pitched, 512),
    "managed": (_managed, 1),
    "stream-ordered": (_async, GRANULE),
    "from a pool": (_pool, GRANULE),
    "physical": (_physical, GRANULE),
    "array": (_array, 65536),
}


def fill(config: dict[str, Any], go: Go) -> Any:
    """Takes blocks of ``block`` bytes by ``way`` until one is refused, then halves down to the smallest.

    {granted, free before, granule, code of the last refusal}.
    """
    cuda = Cuda()
    cuda.start()
    make, granule = WAYS[config["way"]]
    go()
    before, _ = cuda.memory()
    take, granted, size, code = make(cuda), 0, int(config["block"]), 0
    while size >= granule:
        code = take(size)
        if code in (NOT_FOUND, NOT_SUPPORTED):
            return {"unsupported": code}
        if code == 0:
            granted += size
        else:
            size = size // 2 // granule * granule if size > granule else 0
    return {"granted": granted, "free": before, "granule": granule, "code": code, "wanted_code": OUT_OF_MEMORY}


def hammer(config: dict[str, Any], go: Go) -> Any:
    """Takes and gives back blocks of random size; how many were granted, refused, and answered otherwise."""
    cuda = Cuda()
    cuda.start()
    rng, held = random.Random(config["seed"]), [0] * 16
    go()
    granted = refused = strange = 0
    end = time.perf_counter() + config["seconds"]
    while time.perf_counter() < end:
        at = rng.randrange(len(held))
        if held[at]:
            cuda("cuMemFree_v2", held[at])
            held[at] = 0
        pointer = c_uint64()
        code = cuda.code("cuMemAlloc_v2", byref(pointer), rng.randrange(1, int(config["largest"])))
        held[at] = pointer.value if code == 0 else 0
        granted += code == 0
        refused += code == OUT_OF_MEMORY
        strange += code not in (0, OUT_OF_MEMORY)
    return {"granted": granted, "refused": refused, "strange": strange}


def hold(config: dict[str, Any], go: Go) -> Any:
    """Holds ``share`` of what is free, says so, and waits for a line; then tries ``again`` until it is granted."""
    cuda = Cuda()
    cuda.start()
    free, _ = cuda.memory()
    wanted = int(free * config["share"])
    got = cuda.code("cuMemAlloc_v2", byref(c_uint64()), wanted) if wanted else 0
    go()
    tries, begun = 0, time.perf_counter()
    while config.get("again") and time.perf_counter() - begun < 5:
        tries += 1
        if cuda.code("cuMemAlloc_v2", byref(c_uint64()), int(config["again"])) == 0:
            break
    if config.get("wait"):
        sys.stdin.readline()
    return {"code": got, "tries": tries, "ms": 1000 * (time.perf_counter() - begun), "free": free}


def pools(_: dict[str, Any], go: Go) -> Any:
    """How a pool grows and shrinks: bytes reserved after one small block, after its end, and after a trim."""
    cuda = Cuda()
    cuda.start()
    go()
    pool, pointer, threshold = c_void_p(), c_uint64(), c_uint64((1 << 64) - 1)
    cuda("cuDeviceGetDefaultMemPool", byref(pool), 0)
    cuda("cuMemPoolSetAttribute", pool, POOL_THRESHOLD, byref(threshold))
    reported = {}
    cuda("cuMemAllocAsync", byref(pointer), 1, None)
    reported["after one byte"] = _reserved(cuda, pool)
    cuda("cuMemFreeAsync", pointer, None)
    cuda("cuCtxSynchronize")
    reported["after its end"] = _reserved(cuda, pool)
    cuda("cuMemPoolTrimTo", pool, 0)
    reported["after a trim"] = _reserved(cuda, pool)
    return reported


def _reserved(cuda: Cuda, pool: c_void_p) -> int:
    value = c_uint64()
    cuda("cuMemPoolGetAttribute", pool, 5, byref(value))
    return value.value


def mapping(_: dict[str, Any], go: Go) -> Any:
    """Return whether memory stays taken while a released handle is mapped: bytes that the card misses at each step."""
    cuda = Cuda()
    cuda.start()
    go()
    size, handle, address = 64 * MIB, c_uint64(), c_uint64()
    prop = MemProp(type=1, location_type=1, location_id=0)
    before = cuda.memory()[0]
    reported = {}
    cuda("cuMemCreate", byref(handle), size, byref(prop), 0)
    cuda("cuMemAddressReserve", byref(address), size, 0, 0, 0)
    cuda("cuMemMap", address, size, 0, handle, 0)
    reported["mapped"] = before - cuda.memory()[0]
    cuda("cuMemRelease", handle)
    reported["mapped, its handle released"] = before - cuda.memory()[0]
    cuda("cuMemUnmap", address, size)
    reported["unmapped"] = before - cuda.memory()[0]
    cuda("cuMemAddressFree", address, size)
    return reported


def witness(_: dict[str, Any], go: Go) -> Any:
    """The most that NVML said to be in use beyond what was before, until the next line."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)

    def used() -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(card).used)

    before = used()
    go()
    peak, looks = 0, 0
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        peak, looks = max(peak, used() - before), looks + 1
    return {"peak": peak, "looks": looks}


ROLES: dict[str, Callable[[dict[str, Any], Go], Any]] = {
    "fill": fill,
    "hammer": hammer,
    "hold": hold,
    "pools": pools,
    "mapping": mapping,
    "witness": witness,
}
