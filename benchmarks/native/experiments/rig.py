"""Where an experiment runs: a real card or an emulated one, containers of their own region, and processes on both."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.goals import goal_of
from benchmarks.native.harness import CARD, LIBRARY, PROGRAMS, ROOT
from pumice_lab import machine

SM_LIMIT_AT, SWITCH_AT, RECENT_AT, MEMORY_LIMIT_AT = 1728, 2008900, 2008904, 1600
WORKER = (sys.executable, "-m", "benchmarks.native.experiments.worker")


class NotRun(Exception):
    """Why an experiment, or a part of one, is not carried here."""


@dataclass
class Report:
    """The result of an experiment: figures, goals with their verdicts, plots by name, and what was not run and why."""

    figures: dict[str, Any] = field(default_factory=dict)
    goals: list[dict[str, Any]] = field(default_factory=list)
    plots: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def goal(self, what: str, value: float) -> None:
        """Held to its row in goals.toml."""
        self.goals.append({**goal_of("native", what, value).plain(), "value": round(value, 4)})


@dataclass
class Container:
    """An environment and a region of its own; the lock directory is the node's, so common to all of an experiment."""

    region: Path
    environment: Mapping[str, str]

    def store(self, offset: int, form: str, value: int) -> None:
        """Writes one word as a monitor does."""
        with self.region.open("r+b") as file:
            file.seek(offset)
            file.write(struct.pack(form, value))

    def set_cores(self, percent: int) -> None:
        for device in range(16):
            self.store(SM_LIMIT_AT + 8 * device, "<Q", percent)

    def load(self, offset: int, form: str) -> int:
        with self.region.open("rb") as file:
            file.seek(offset)
            (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
        return int(value)

    def charged(self, device: int = 0) -> int:
        """Bytes that the region holds for a device, over all slots."""
        data = self.region.read_bytes()
        return sum(struct.unpack_from("<Q", data, 1856 + 1960 * slot + 8 + 64 * device + 32)[0] for slot in range(1024))


class Child:
    """A worker: says "ready", waits for ``go``, and ends with one line of JSON."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            words, env=dict(environment), cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def ready(self) -> Child:
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(self.process.communicate()[1].strip() or "a worker ended early")
        return self

    def go(self, line: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, timeout: float = 300) -> Any:
        out, err = self.process.communicate(timeout=timeout)
        if self.process.returncode:
            raise RuntimeError(err.strip().splitlines()[-1] if err.strip() else f"a worker: {self.process.returncode}")
        return json.loads(out.splitlines()[-1])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()


@dataclass
class Rig:
    """``rounds_per_us`` is how much of the calibrated kernel takes a microsecond on the idle card."""

    folder: Path
    card: str
    emulated: bool
    quick: bool = False
    rounds_per_us: float = 1.0
    made: int = 0

    @property
    def device(self) -> str:
        return f"emulated {self.card}; not a GPU" if self.emulated else self.card

    def seconds(self, real: float, emulated: float) -> float:
        """How long to measure: an emulated card needs less, for nothing about it is warm or cold."""
        return min(real, 2.0) if self.quick and not self.emulated else emulated if self.emulated else real

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PUMICE_MACHINE")}
        kept["PYTHONPATH"] = str(ROOT)
        if self.emulated:
            kept["LD_LIBRARY_PATH"] = str(machine.library_dir())
            kept["PUMICE_MACHINE"] = str(self.folder / "machine")
        return kept

    def container(self, **settings: str) -> Container:
        """A fresh region: one left over from another run would bring that run's limits."""
        self.made += 1
        folder = self.folder / f"container{self.made}"
        folder.mkdir()
        locks = self.folder / "locks"
        locks.mkdir(exist_ok=True)
        region = folder / "r.cache"
        environment = {
            **self.environment(),
            "LD_PRELOAD": str(LIBRARY),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
            "PUMICE_VGPU_LOCK_DIRECTORY": str(locks),
            "LIBCUDA_LOG_LEVEL": "0",
            **settings,
        }
        return Container(region, environment)

    def limited(self, cores: int, **settings: str) -> Container:
        return self.container(CUDA_DEVICE_SM_LIMIT=str(cores), GPU_CORE_UTILIZATION_POLICY="force", **settings)

    def start(self, role: str, container: Container | None = None, **config: Any) -> Child:
        config = {"rounds_per_us": self.rounds_per_us, **config}
        words = (*WORKER, role, json.dumps(config))
        return Child(words, container.environment if container is not None else self.environment())

    def run(self, role: str, container: Container | None = None, **config: Any) -> Any:
        with self.start(role, container, **config) as child:
            child.ready().go()
            return child.answer()

    def together(self, *children: Child) -> list[Any]:
        """Lets them begin at the same moment."""
        try:
            for child in children:
                child.ready()
            for child in children:
                child.go()
            return [child.answer() for child in children]
        finally:
            for child in children:
                child.__exit__(None, None, None)

    def free_bytes(self) -> int:
        """Return the card's free memory for a program outside every container."""
        return int(self.run("hold", share=0.0)["free"])

    def program(self, name: str, *arguments: str, container: Container | None = None) -> Any:
        """Return the JSON output of one of the library's C programs."""
        environment = container.environment if container is not None else self.environment()
        words = [str(PROGRAMS / name), *arguments]
        done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: exit code {done.returncode} {done.stderr.strip()}")
        return json.loads(done.stdout)


def real_card() -> str:
    """The name of the first real card, or an empty string."""
    if not Path("/dev/nvidia0").exists() or "PUMICE_MACHINE" in os.environ or shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return listed.stdout.splitlines()[0].strip() if listed.returncode == 0 and listed.stdout.strip() else ""


def open_rig(folder: Path, quick: bool, virtual: bool = False) -> Rig:
    """The real card where there is one, else a new emulated one; calibrated. ``virtual``: emulated, and in virtual time."""
    card = "" if virtual else real_card()
    rig = Rig(folder, card or CARD, emulated=not card, quick=quick)
    if rig.emulated:
        machine.create(machine.machine_of(CARD, virtual_time=virtual), folder / "machine")
    rig.rounds_per_us = float(rig.run("calibrate")["rounds_per_us"])
    return rig
