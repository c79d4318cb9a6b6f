"""How the native benchmarks run programs: with and without the library, on the emulated machine or on a real card."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit import native_build
from kit.native_build import NATIVE

from benchmarks.goals import Goal, goal_of
from pumice_lab import machine

ROOT = NATIVE.parent
LIBRARY = NATIVE / "build/vgpu/libvgpu.so"
PROGRAMS = NATIVE / "build/vgpu/programs"
TESTS = NATIVE / "build/vgpu/tests"
CARD = "A100-SXM4-40GB"
MS = 1_000_000


class Figures:
    """The result of a part: goals with their figures, and figures without a goal."""

    def __init__(self) -> None:
        self.goals: list[Goal] = []
        self.reported: dict[str, Any] = {}

    def goal(self, what: str, value: float) -> None:
        """Held to its row in goals.toml."""
        self._add(goal_of("native", what, value))

    def least(self, what: str, value: float, limit: float) -> None:
        """Held to what this run was asked for."""
        self._add(Goal(what, value, limit, least=True))

    def report(self, what: str, value: Any) -> None:
        """Reported, not held to anything."""
        self.reported[what] = value
        print(f"     {what}: {value}", file=sys.stderr, flush=True)

    def _add(self, goal: Goal) -> None:
        self.goals.append(goal)
        bar = f"{'≥' if goal.least else '≤'} {goal.limit:g} {goal.unit}"
        print(f"{'ok  ' if goal.met else 'MISS'} {goal.what}: {goal.value:.3f} ({bar})", file=sys.stderr, flush=True)


def build() -> None:
    native_build.build("vgpu", "vgpu-programs", "build/vgpu/tests/test_memory", "build/vgpu/tests/test_fuzz")


def make_machines(folder: Path) -> None:
    """In real time; in virtual time, one more whose streams run side by side, and one whose copies take time."""
    machine.create(machine.machine_of(CARD), folder / "real")
    machine.create(machine.machine_of(CARD, virtual_time=True), folder / "virtual")
    machine.create(replace(machine.machine_of(CARD, virtual_time=True), overlap=True), folder / "overlap")
    machine.create(replace(machine.machine_of(CARD, virtual_time=True), copy_mib_per_s=20_000), folder / "copying")


def on(card: Path, **more: str) -> dict[str, str]:
    """The environment of a program on an emulated machine."""
    return {**os.environ, "LD_LIBRARY_PATH": str(machine.library_dir()), "PUMICE_MACHINE": str(card), **more}


def under(region: Path, **limits: str) -> dict[str, str]:
    """Return the additional environment for a program of a container."""
    return {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
        "PUMICE_VGPU_LOCK_DIRECTORY": str(region.parent),
        "LIBCUDA_LOG_LEVEL": "0",
        **limits,
    }


def run(*words: str | Path, env: Mapping[str, str], timeout: float = 300) -> Any:
    """The JSON that a program printed."""
    command = [str(word) for word in words]
    out = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=True, timeout=timeout)
    return json.loads(out.stdout)


def cost(card: Path, folder: Path, mode: str, rounds: int, limits: Mapping[str, str]) -> tuple[float, float]:
    """Median ns of a call natively and under the library; processes alternate, the first round of each warms up."""
    native: list[float] = []
    ours: list[float] = []
    for turn in range(4):
        region = folder / f"{mode}{turn}.cache"
        for into, extra in ((native, {}), (ours, under(region, **limits))):
            if mode == "refuse" and into is native:
                continue
            into.extend(run(PROGRAMS / "cost", mode, str(rounds + 1), env=on(card, **extra))[1:])
        region.unlink(missing_ok=True)
    return statistics.median(native or [0.0]), statistics.median(ours)


def conduct_workers(
    folder: Path, milliseconds: int, *players: str, time_mode: str = "virtual", record: bool = False
) -> tuple[list[dict[str, Any]], Path]:
    """The result of each program, and the place of its files. record: launches are among them, and the card is looked at each
    ms."""
    directory = Path(tempfile.mkdtemp(dir=folder))
    more = (f"launches={directory / 'launches'}", "sample=1") if record else ()
    words = [str(word) for word in (PROGRAMS / "conduct", LIBRARY, directory, milliseconds, *more, *players)]
    workers: list[dict[str, Any]] = run(*words, env=on(folder / time_mode))["workers"]
    return workers, directory


def conduct(folder: Path, milliseconds: int, *players: str, time_mode: str = "virtual") -> list[list[int]]:
    """GPU time in ns that the machine gave each player, at every 10 ms of its time."""
    workers, _ = conduct_workers(folder, milliseconds, *players, time_mode=time_mode)
    return [worker["served"] for worker in workers]


def share(served: Sequence[int], first_ms: int, last_ms: int) -> float:
    """Percent of GPU time in a span."""
    return 100 * (served[last_ms // 10] - served[first_ms // 10]) / ((last_ms - first_ms) * MS)
