"""E0: the facts of a driver and a card that the library and the emulated machine rely on."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.native.experiments.rig import WORKER, Report, Rig
from benchmarks.native.harness import NATIVE


def hooked_names() -> list[str]:
    """Base names of the library's CUDA hooks."""
    names = re.findall(r"^HOOK\(CUDA, (\w+),", (NATIVE / "vgpu/hooks.def").read_text(), re.M)
    return sorted({re.sub(r"(_v\d|_ptsz|_ptds)+$", "", name) for name in names})


def probe(rig: Rig) -> Report:
    report = Report()
    reported = rig.run("addresses", names=hooked_names())
    report.figures["answers of cuGetProcAddress"] = reported["answers"]
    report.figures["answers that are no exported symbol"] = reported["not exported"][:50]
    report.goal("answers of cuGetProcAddress that are no exported symbol", len(reported["not exported"]))
    report.figures["a bare context"] = rig.run("context")
    report.figures["in a pid namespace"] = _in_namespace(rig, report)
    report.figures["bytes that a pool has reserved"] = rig.run("pools")
    report.figures["bytes that a mapping takes"] = rig.run("mapping")
    report.figures["ns of single calls"] = rig.run("costs")
    report.figures["microseconds between utilisation samples of a process"] = _cadence(rig)
    report.figures["nvidia-cuda-mps-control"] = shutil.which("nvidia-cuda-mps-control") or "absent"
    report.figures["libcudart of torch"] = _cudart_of_torch()
    return report


def _in_namespace(rig: Rig, report: Report) -> object:
    """NVML's pids as a process of its own pid namespace sees them."""
    words = ("unshare", "-pf", "--mount-proc", *WORKER, "context", "{}")
    done = subprocess.run(
        words, env=rig.environment(), input="go\n", capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "unshare failed"
        report.not_run["pids of another namespace"] = reason
        return None
    return done.stdout.splitlines()[-1]


def _cadence(rig: Rig) -> object:
    with rig.start("watch") as watcher:
        watcher.ready().go()
        rig.run("busy", kernel_ns=1_000_000, seconds=rig.seconds(3.0, 1.0))
        watcher.go()
        return watcher.answer()["smutil_gap_us"]


def _cudart_of_torch() -> str:
    """Return whether torch brings the runtime as a shared library; torch is not imported for it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return "no torch here"
    site = Path(found.origin).parents[1]
    libraries = [*site.glob("nvidia/*/lib/libcudart.so*"), *Path(found.origin).parent.glob("lib/libcudart*.so*")]
    return (
        ", ".join(sorted(str(path.relative_to(site)) for path in libraries))
        or f"static, or the system's ({sys.prefix})"
    )
