"""E11 and E12: many starts at once, kills, forks, nvidia-smi, and captures that nobody may disturb."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Mapping

from benchmarks.native.experiments import plot
from benchmarks.native.experiments.rig import Container, Report, Rig
from benchmarks.native.experiments.shares import interval, quantile
from benchmarks.native.harness import LIBRARY, PROGRAMS

CONTEXT_MOST_BYTES = 640 << 20  # no context of a card that was seen takes more

FORKS = """
import os, sys
from benchmarks.native.experiments.cuda import Cuda
cuda = Cuda(); cuda.start(); cuda.allocate(1 << 20)
codes = []
for _ in range(20):
    if (pid := os.fork()) == 0:
        os._exit(0 if cuda.code("cuInit", 0) in (0, 3, 999) else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
cuda.allocate(1 << 20)
sys.exit(any(codes))
"""


def robustness(rig: Rig) -> Report:
    report = Report()
    _starts(rig, report)
    _kills(rig, report)
    _forks(rig, report)
    _smi(rig, report)
    _programs_without_a_gpu(rig, report)
    return report


def _starts(rig: Rig, report: Report) -> None:
    """cuInit of one process and of many at once, natively and in one container, as many as have room for their contexts."""
    many = min(32 if rig.emulated else 64, rig.free_bytes() // CONTEXT_MOST_BYTES)
    limit = str(many * CONTEXT_MOST_BYTES)
    reported: dict[str, float] = {}
    for name, count in (("alone", 1), (f"{many} at once", many)):
        for variant in ("native", "preloaded"):
            container = rig.limited(50, CUDA_DEVICE_MEMORY_LIMIT=limit) if variant == "preloaded" else None
            rounds = [
                run["init_ms"]
                for _ in range(7 if count == 1 else 2)
                for run in rig.together(*(rig.start("start", container) for _ in range(count)))
            ]
            reported[f"{name}, {variant}, p50"] = round(statistics.median(rounds), 3)
            reported[f"{name}, {variant}, p99"] = round(quantile(rounds, 0.99), 3)
    report.figures["ms of cuInit"] = reported
    report.plots["start"] = plot.bars("time of cuInit", "ms", reported)
    report.goal("added to cuInit, alone", reported["alone, preloaded, p50"] - reported["alone, native, p50"])
    added = reported[f"{many} at once, preloaded, p99"] - reported[f"{many} at once, native, p99"]
    report.goal(f"added to cuInit, {many} at once, p99", added)


def _kills(rig: Rig, report: Report) -> None:
    container = rig.container(CUDA_DEVICE_MEMORY_LIMIT="4g")
    rounds, longest, *_ = rig.program("chaos", "0", "8", "200", container=container)
    report.figures["kills among eight busy processes"] = rounds
    report.goal("longest wait for a lock", longest / 1e6)


def _forks(rig: Rig, report: Report) -> None:
    import sys

    done = _ran(rig.container(CUDA_DEVICE_MEMORY_LIMIT="4g"), sys.executable, "-c", FORKS)
    report.goal("forks with an answer that is none of the driver's", abs(done.returncode))


def _ran(container: Container, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=dict(container.environment), capture_output=True, text=True, timeout=120, check=False
    )


def _smi(rig: Rig, report: Report) -> None:
    program = str(rig.folder / "machine/bin/nvidia-smi") if rig.emulated else shutil.which("nvidia-smi")
    if program is None:
        report.not_run["nvidia-smi"] = "not installed"
        return
    done = _ran(rig.container(CUDA_DEVICE_MEMORY_LIMIT="3000m"), program)
    report.goal("nvidia-smi under the library: exit code", abs(done.returncode))
    report.goal("nvidia-smi shows the limit", float("3000MiB" in done.stdout))


def _programs_without_a_gpu(rig: Rig, report: Report) -> None:
    pairs = []
    for _ in range(7):
        pairs.append((_spawns({"LD_PRELOAD": str(LIBRARY)}), _spawns({})))
    middle, low, high = interval(pairs)
    report.figures["ms added to /bin/true"] = {"median": middle, "95 %": [low, high]}
    report.goal("added to /bin/true under preload", middle)


def _spawns(more: Mapping[str, str]) -> float:
    """Median ms of 100 starts."""
    import os
    import time

    times = []
    for _ in range(100):
        begun = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {"PATH": "/usr/bin:/bin", **more}), 0)
        times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times)


def sanitizer(rig: Rig) -> Report:
    report = Report()
    reported = rig.run("capture", rig.limited(90), captures=20)
    report.figures["captures beside measured launches"] = reported
    report.goal("captures that were disturbed", float(reported["codes"] != [0] or reported["nodes"] != [20]))
    checker = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if rig.emulated or checker is None:
        reason = "the emulated machine runs no code to check" if rig.emulated else "no compute-sanitizer here"
        report.not_run["memcheck of a small program under the library"] = reason
        return report
    container = rig.limited(90, CUDA_DEVICE_MEMORY_LIMIT="8g")
    done = _ran(
        container, checker, "--tool", "memcheck", "--error-exitcode", "9", str(PROGRAMS / "cost"), "launch", "1"
    )
    report.figures["memcheck"] = (
        done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-200:]
    )
    report.goal("findings of memcheck: exit code", abs(done.returncode))
    return report
