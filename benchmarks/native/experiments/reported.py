"""E15: what programs are told, one after another in one container, by a limits page and by a region; and where PyTorch ends."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kit import walled
from kit.vgpu_kit import FIGURES as WAYS
from kit.vgpu_kit import python

from benchmarks.native.experiments.rig import NotRun, Report, Rig
from benchmarks.native.experiments.roles import MIB
from pumice.wire import limits_page

SHARE_MIB = 3000
TIMES = 10
SEQUENCE = (*WAYS, *reversed(WAYS), *["nvidia-smi"] * TIMES)

TORCH = """
import json, torch
held = []
try:
    while True:
        held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    print(json.dumps(len(held) * 64))
"""


def reported(rig: Rig) -> Report:
    report = Report()
    for kind, programs in (("a region", _by_region(rig)), ("a limits page", _by_page(rig))):
        try:
            rows = list(programs)
        except NotRun as reason:
            report.not_run[f"programs by {kind}"] = str(reason)
            continue
        wrong = [way for way, figures in rows if {mib for name, mib in figures.items() if name.endswith("total")} != {SHARE_MIB}]
        report.figures[f"by {kind}: programs, one after another"] = len(rows)
        report.figures[f"by {kind}: who was told another size"] = wrong
        report.goal(f"by {kind}: programs told another size than the share", len(wrong))
    _torch(rig, report)
    return report


def _environment(rig: Rig, environment: Mapping[str, str]) -> dict[str, str]:
    tools = f"{rig.folder / 'machine' / 'bin'}:" if rig.emulated else ""
    return {**environment, "PATH": tools + os.environ["PATH"]}


def _rows(words: list[str], environment: Mapping[str, str]) -> Iterator[tuple[str, dict[str, int]]]:
    done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    yield from zip(SEQUENCE, map(json.loads, done.stdout.splitlines()), strict=True)


def _by_region(rig: Rig) -> Iterator[tuple[str, dict[str, int]]]:
    container = rig.container(CUDA_DEVICE_MEMORY_LIMIT=f"{SHARE_MIB}m")
    yield from _rows(python("figures.py", *SEQUENCE), _environment(rig, container.environment))


def _by_page(rig: Rig) -> Iterator[tuple[str, dict[str, int]]]:
    """A mount namespace of its own, and in it what a node's plugin mounts."""
    if not walled.may_mount():
        raise NotRun("no mount namespace is to be had here")
    directory = rig.folder / "walled"
    directory.mkdir()
    environment = _environment(rig, rig.environment())
    listed = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], env=environment, capture_output=True,
                            text=True, timeout=60, check=True).stdout.split()  # fmt: skip
    page = walled.page_of(*(limits_page.GrantedCard(uuid, SHARE_MIB * MIB) for uuid in listed))
    mounts = walled.mounts_of(directory, limits_page.render(page))
    words = [sys.executable, "-I", "-S", str(Path(walled.__file__)), json.dumps(mounts), *python("figures.py", *SEQUENCE)]
    yield from _rows(words, environment)


def _torch(rig: Rig, report: Report) -> None:
    """A loop of allocations ends with PyTorch's own error, and NVML never shows more than the limit."""
    if rig.emulated or importlib.util.find_spec("torch") is None:
        report.not_run["PyTorch until it is out of memory"] = "no real card" if rig.emulated else "no torch here"
        return
    container = rig.container(CUDA_DEVICE_MEMORY_LIMIT=f"{SHARE_MIB}m")
    with rig.start("witness") as watching:
        watching.ready().go()
        done = subprocess.run([sys.executable, "-c", TORCH], env=_environment(rig, container.environment), capture_output=True,
                              text=True, timeout=120, check=False)  # fmt: skip
        watching.go("stop")
        seen: dict[str, Any] = watching.answer()
    report.goal("PyTorch: ended otherwise than out of memory", float(done.returncode != 0))
    report.goal("PyTorch: bytes above the limit", max(0, seen["peak"] - SHARE_MIB * MIB))
    if done.returncode == 0:
        report.figures["PyTorch, MiB until it was out of memory"] = json.loads(done.stdout.splitlines()[-1])
    report.figures["PyTorch: most in use by NVML, bytes"] = seen["peak"]
