"""Programs that run on an emulated machine, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Protocol

from pumice.machine import Machine


class MachineMaker(Protocol):
    """The fixture ``make_machine``: ``make_machine("2xA100-SXM4-40GB", virtual_time=True)``."""

    def __call__(self, cards: str | list[str], *, virtual_time: bool = False) -> Machine: ...


class Programs:
    """Starts programs on a machine: with its libraries and its ``nvidia-smi`` in front."""

    def __init__(self, machine: Machine) -> None:
        machines = machine.environment()
        self.environment = {**os.environ, **machines, "PATH": f"{machines['PATH']}:{os.environ['PATH']}"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(words, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, code: int = 0, timeout: float = 60) -> str:
        """What the program printed (both streams when it is to fail); fails unless it ended with ``code``."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def burn(self, *words: str, code: int = 0) -> str:
        return self.run(sys.executable, "-m", "pumice.cli.burn", *words, code=code)

    def start_burn(self, *words: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-m", "pumice.cli.burn", *words)

    def hold(self, mib: int) -> subprocess.Popen[str]:
        """A program that holds so much memory, from now on until it is killed."""
        program = self.start_burn("--memory", str(mib), "--seconds", "600")
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("memory:"):
                return program
        raise AssertionError(program.communicate()[1])

    def smi(self, *words: str, code: int = 0) -> str:
        return self.run("nvidia-smi", *words, code=code)
