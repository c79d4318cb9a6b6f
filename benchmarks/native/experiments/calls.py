"""E1 and E2: what the library adds to launches and to allocations."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.native.experiments import plot
from benchmarks.native.experiments.rig import Report, Rig
from benchmarks.native.experiments.shares import interval

MODES: dict[str, dict[str, str]] = {
    "preloaded, no limits": {},
    "memory limit": {"CUDA_DEVICE_MEMORY_LIMIT": "8g"},
    "limiter armed at 99 %": {"CUDA_DEVICE_SM_LIMIT": "99", "GPU_CORE_UTILIZATION_POLICY": "force"},
    "both": {
        "CUDA_DEVICE_MEMORY_LIMIT": "8g",
        "CUDA_DEVICE_SM_LIMIT": "99",
        "GPU_CORE_UTILIZATION_POLICY": "force",
    },
}
PAIRS = 7  # with and without, in turn

# Launches through the runtime of the toolkit, linked shared and static; prints ns per launch, one a round.
RUNTIME = """
#include <chrono>
#include <cstdio>
__global__ void empty() {}
int main() {
    for (int round = 0; round < 6; round++) {
        double spent = 0;
        for (int batch = 0; batch < 40; batch++) {
            auto begun = std::chrono::steady_clock::now();
            for (int i = 0; i < 500; i++) empty<<<1, 32>>>();
            spent += std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun).count();
            if (cudaDeviceSynchronize() != cudaSuccess) return 1;
        }
        std::printf("%s%.1f", round ? ", " : "[", spent / 20000);
    }
    std::puts("]");
}
"""


def _pairs(rig: Rig, program: str, mode: str, settings: Mapping[str, str]) -> list[tuple[float, float]]:
    """(with, without) in turn, the order swapped each time; the best round of each process, the first one warms up."""
    pairs = []
    for turn in range(2 if rig.quick else PAIRS):
        measured = {}
        for ours in (True, False) if turn % 2 else (False, True):
            container = rig.container(**settings) if ours else None
            measured[ours] = min(rig.program(program, mode, "4", container=container)[1:])
        pairs.append((measured[True], measured[False]))
    return pairs


def launches(rig: Rig) -> Report:
    report = Report()
    added: dict[str, float] = {}
    for shape, mode in (("one thread", "median"), ("eight threads", "threads"), ("a graph of 20 nodes", "graph")):
        for name, settings in MODES.items():
            middle, low, high = interval(_pairs(rig, "cost", mode, settings))
            added[f"{shape}, {name}"] = middle
            report.figures[f"ns added to a launch: {shape}, {name}"] = {"median": middle, "95 %": [low, high]}
            if mode == "median":
                report.goal(f"added to a launch, {name}, median", middle)
    report.plots["added"] = plot.bars("time added to a launch", "ns", added)
    _runtimes(rig, report)
    return report


def _runtimes(rig: Rig, report: Report) -> None:
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if rig.emulated or nvcc is None:
        reason = "the emulated machine runs no compiled code" if rig.emulated else "no nvcc here"
        report.not_run["launches through libcudart, shared and static"] = reason
        return
    source = rig.folder / "runtime.cu"
    source.write_text(RUNTIME)
    for link in ("shared", "static"):
        program = rig.folder / f"runtime-{link}"
        built = subprocess.run(
            [nvcc, "-O2", "-cudart", link, str(source), "-o", str(program)], capture_output=True, text=True
        )
        if built.returncode:
            report.not_run[f"launches through libcudart, {link}"] = built.stderr.strip().splitlines()[-1]
            continue
        pairs = []
        for _ in range(PAIRS):
            ours, native = (
                _ns(program, env) for env in (rig.container(**MODES["both"]).environment, rig.environment())
            )
            pairs.append((ours, native))
        middle, low, high = interval(pairs)
        report.figures[f"ns added to a launch: libcudart {link}, both limits"] = {"median": middle, "95 %": [low, high]}


def _ns(program: Path, environment: Mapping[str, str]) -> float:
    done = subprocess.run([program], env=dict(environment), capture_output=True, text=True, check=True, timeout=120)
    return float(min(json.loads(done.stdout)[1:]))


def allocations(rig: Rig) -> Report:
    report = Report()
    memory = {"CUDA_DEVICE_MEMORY_LIMIT": "8g"}
    added: dict[str, float] = {}
    for name, mode in (
        ("4 KiB", "alloc"),
        ("4 KiB with 100,000 live blocks", "alloc100k"),
        ("2 MiB", "alloc2m"),
        ("1 GiB", "alloc1g"),
        ("4 KiB stream-ordered", "async"),
        ("a question for memory", "info"),
    ):
        middle, low, high = interval(_pairs(rig, "cost", mode, memory))
        added[name] = middle
        report.figures[f"ns added: {name}"] = {"median": middle, "95 %": [low, high]}
    report.goal("added to a pair of alloc and free, 4 KiB", added["4 KiB"])
    live = added["4 KiB with 100,000 live blocks"]
    report.goal("added to a pair of alloc and free with 100,000 live blocks", live)
    refused = min(rig.program("cost", "refuse", "4", container=rig.container(CUDA_DEVICE_MEMORY_LIMIT="3g"))[1:])
    report.goal("a refused allocation", refused)
    report.figures["processors"] = os.cpu_count()
    report.plots["added"] = plot.bars("time added to a pair of alloc and free", "ns", added, goal=1000)
    return report
