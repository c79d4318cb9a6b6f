"""An emulated machine with NPUs, and what its ``npu-smi`` and programs say. Everything runs in children: the driver's library
serves one machine in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice_lab.machine.npu_layout import NpuState
from pumice_lab.machine.npus import create_npus, npu_environment, read_npus


@dataclass(frozen=True)
class NpuMachine:
    directory: Path

    def smi(self, *words: str, env: dict[str, str] | None = None, answer: str = "") -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "pumice_lab.machine.npu_smi", *words], env, answer)

    def make(self, template: str, chip: int = 0) -> int:
        """The id of a slice that somebody made by hand."""
        done = self.smi("set", "-t", "create-vnpu", "-i", str(chip), "-c", "0", "-f", template)
        assert done.returncode == 0, done.stdout
        return next(int(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("Vnpu ID"))

    def hook(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "pumice_lab.machine.npu_hook", *words])

    def python(self, text: str, env: dict[str, str] | None = None) -> Any:
        """What a program prints as JSON."""
        done = self.run([sys.executable, "-c", text], env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, argv: Sequence[str], env: dict[str, str] | None = None, answer: str = "") -> subprocess.CompletedProcess[str]:
        around = {**os.environ, **npu_environment(self.directory), "PATH": os.environ["PATH"], **(env or {})}
        return subprocess.run(list(argv), capture_output=True, text=True, env=around, input=answer, timeout=60)

    def slices(self, chip: int = 0) -> list[tuple[int, str]]:
        """(id, template) of what is there."""
        row = self.state.chips[chip]
        return [(s.id, row.templates[s.template].name.decode()) for s in row.slices if s.used]

    @property
    def state(self) -> NpuState:
        return read_npus(self.directory)


def npu_machine(directory: Path, *chips: str) -> NpuMachine:
    create_npus(chips or ("310P3",), directory)
    return NpuMachine(directory)
