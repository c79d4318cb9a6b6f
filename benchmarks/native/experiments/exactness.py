"""E3: whether the memory limit is exact by every API, across processes, through a kill, and against NVML's own count."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

import pynvml

from benchmarks.native.experiments import plot
from benchmarks.native.experiments.rig import Report, Rig
from benchmarks.native.experiments.roles import MIB
from benchmarks.native.experiments.roles_memory import WAYS

LIMIT_BYTES = 8 << 30  # or half of a smaller card: never more managed memory than is free

# Fills the card through torch's allocator; prints what was had, what was free, and the exception that ended it.
TORCH = """
import json, torch
free, _ = torch.cuda.mem_get_info()
held, name, size = [], "", 64 << 20
try:
    while True:
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
except Exception as error:
    name = type(error).__name__
print(json.dumps({"granted": size * len(held), "free": free, "ended by": name}))
"""
ALLOCATORS = {
    "default": "",
    "expandable segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}


def exactness(rig: Rig) -> Report:
    report = Report()
    limit = str(min(LIMIT_BYTES, rig.free_bytes() // 2 // MIB * MIB))
    report.figures["limit, bytes"] = int(limit)
    _every_way(rig, report, limit)
    _torch(rig, report, limit)
    _processes(rig, report)
    _kill(rig, report)
    return report


def _every_way(rig: Rig, report: Report, limit: str) -> None:
    parts: dict[str, float] = {}
    for way in WAYS:
        reported = rig.run("fill", rig.container(CUDA_DEVICE_MEMORY_LIMIT=limit), way=way, block=256 * MIB)
        if "unsupported" in reported:
            report.not_run[f"filling, {way}"] = f"the driver answers {reported['unsupported']}"
            continue
        parts[way] = reported["granted"] / reported["free"]
        report.goal(f"{way}: bytes above the limit", max(0, reported["granted"] - reported["free"]))
        # What is less than one of the API's own granules cannot be had through it.
        report.goal(
            f"{way}: usable share of what is free", (reported["granted"] + reported["granule"] - 1) / reported["free"]
        )
        report.goal(f"{way}: refused with out of memory", float(reported["code"] == reported["wanted_code"]))
    report.figures["share of the free bytes that were granted"] = parts
    report.plots["usable"] = plot.bars("granted of what the limit leaves", "share", parts, goal=1.0)


def _torch(rig: Rig, report: Report, limit: str) -> None:
    if rig.emulated or importlib.util.find_spec("torch") is None:
        reason = "torch's kernels need a GPU" if rig.emulated else "no torch here"
        report.not_run["torch's allocators"] = reason
        return
    for name, setting in ALLOCATORS.items():
        container = rig.container(CUDA_DEVICE_MEMORY_LIMIT=limit, PYTORCH_CUDA_ALLOC_CONF=setting)
        done = subprocess.run(
            [sys.executable, "-c", TORCH], env=dict(container.environment), capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            report.not_run[f"torch, {name}"] = done.stderr.strip().splitlines()[-1]
            continue
        reported = json.loads(done.stdout.splitlines()[-1])
        report.figures[f"torch, {name}"] = reported
        report.goal(f"torch, {name}: bytes above the limit", max(0, reported["granted"] - reported["free"]))
        report.goal(f"torch, {name}: ends with its own exception", float("OutOfMemory" in reported["ended by"]))


def _processes(rig: Rig, report: Report) -> None:
    """Four processes at random on one region: nothing but granted and refused, and never more than the limit by the books
    and by NVML, beside what was there before."""
    container = rig.container(CUDA_DEVICE_MEMORY_LIMIT="2g")
    duration = rig.seconds(20.0, 2.0)
    before = _nvml_used(rig)
    children = [rig.start("hammer", container, seed=seed, largest=200 * MIB, seconds=duration) for seed in range(4)]
    for child in children:
        child.ready()
    for child in children:
        child.go()
    books, physical, end = 0, 0, time.perf_counter() + duration * 0.9  # before anybody ends and leaves its books
    while time.perf_counter() < end:
        books = max(books, container.charged())
        physical = max(physical, _nvml_used(rig) - before)
        time.sleep(0.01)
    reported: list[dict[str, Any]] = [child.answer() for child in children]
    granted, refused = sum(one["granted"] for one in reported), sum(one["refused"] for one in reported)
    report.figures["four processes"] = {"granted": granted, "refused": refused, "most by the books": books,
                                        "most by NVML": physical}  # fmt: skip
    report.goal("four processes: answers other than granted and out of memory", sum(one["strange"] for one in reported))
    report.goal("four processes: bytes above the limit, by the books", max(0, books - (2 << 30)))
    over = max(0, physical - (2 << 30))
    # The driver rounds each process's blocks up to granules of its own; NVML counts those.
    report.goal("four processes: bytes above the limit, by NVML", over)


def _nvml_used(rig: Rig) -> int:
    """The card's used bytes as somebody outside every container sees them."""
    if rig.emulated:
        from pumice_lab.machine import open_machine

        with open_machine(rig.folder / "machine") as machine:
            return int(machine.card(0).lanes[0].used_bytes)
    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    finally:
        pynvml.nvmlShutdown()


def _kill(rig: Rig, report: Report) -> None:
    """A process that holds most of the limit is killed; another one asks until it gets what that one had."""
    container = rig.container(CUDA_DEVICE_MEMORY_LIMIT="2g")
    with rig.start("hold", container, share=0.0, again=1 << 30) as heir:
        heir.ready()
        with rig.start("hold", container, share=0.9, wait=True) as tenant:
            tenant.ready().go()
            tenant.process.kill()
            tenant.process.wait()
        heir.go()
        reported = heir.answer()
    report.figures["after a kill"] = {"tries": reported["tries"], "ms": reported["ms"]}
    report.goal("requests until a killed process's memory is another's", reported["tries"])
