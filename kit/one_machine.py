"""A machine with emulated cards, without a cluster, and the programs that are started on it as a person would.

The machine is the witness: it knows bytes and busy time of every process, whatever the library counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pumice_lab import machine as machines
from pumice_lab.machine import Machine, machine_of

PUMICE = [sys.executable, "-m", "pumice"]
MIB = 1 << 20


class OneMachine:
    """An emulated machine and the programs that were started on it."""

    def __init__(self, directory: Path, cards: str = "2xGeForce-GTX-1080-Ti") -> None:
        self.directory = directory
        self.machine: Machine = machines.create(machine_of(cards), directory)
        self.started: list[subprocess.Popen[str]] = []
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        self.environment = {**kept, "XDG_DATA_HOME": str(directory.parent / "data"), "PYTHONUNBUFFERED": "1"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """``pumice run`` on this machine, going on."""
        program = subprocess.Popen(
            [*PUMICE, "run", "--emulated", str(self.directory), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment,
        )  # fmt: skip
        self.started.append(program)
        return program

    def burn(self, *arguments: str, memory: int = 1000, seconds: float = 100) -> subprocess.Popen[str]:
        """A program with so many MiB that keeps the card busy; returns once it has its memory."""
        load = ["--memory", str(memory), "--kernel-ms", "5", "--seconds", str(seconds)]
        program = self.start(*arguments, "--", "pumice", "burn", *load)
        self.wait_for_memory(program)
        return program

    def wait_for_memory(self, program: subprocess.Popen[str]) -> None:
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("memory:"):
                return
        raise AssertionError(f"it ended before it had its memory: {program.communicate()[1]}")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.pumice("run", "--emulated", str(self.directory), *arguments)

    def pumice(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*PUMICE, *arguments], capture_output=True, text=True, timeout=100,
                              env={**self.environment, **(env or {})})  # fmt: skip

    def ps(self) -> list[dict[str, Any]]:
        done = self.pumice("ps", "--emulated", str(self.directory), "-o", "json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def busy_ns(self, pid: int, card: int = 0) -> int:
        share = self.machine.witness().of(pid, card)
        return share.busy_ns if share else 0

    def busy_share(self, pid: int, seconds: float) -> float:
        """The part of the card's time that the process has from now on, as the machine sees it."""
        before, begun = self.busy_ns(pid), time.monotonic_ns()
        time.sleep(seconds)
        return (self.busy_ns(pid) - before) / (time.monotonic_ns() - begun)

    def gets(self, pid: int, least: float, seconds: float = 60) -> None:
        """Within so long there is a second in which the process has at least this part of the card's time; what other
        programs leave of the machine's processors may be too little for it in most of them."""
        deadline, seen = time.monotonic() + seconds, 0.0
        while seen < least:
            assert time.monotonic() < deadline, f"it never got {least}, at last {seen}"
            seen = self.busy_share(pid, 1.0)

    def close(self) -> None:
        for program in self.started:
            program.kill()
            program.communicate()
        self.machine.close()


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()
