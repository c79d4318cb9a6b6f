"""Emulated machines for tests: programs that run on one, and the cards of one in this very process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from pumice.adapters.nvml import NvmlCards
from pumice_lab.machine import Machine, MachineError, MachineModel, create, library_dir, machine_of, nvml_library


class MachineMaker(Protocol):
    """The fixture ``make_machine``: ``make_machine("2xA100-SXM4-40GB", virtual_time=True)``."""

    def __call__(self, cards: str | list[str], *, virtual_time: bool = False) -> Machine: ...


@contextmanager
def cards_of(model: MachineModel | str) -> Iterator[tuple[Machine, NvmlCards]]:
    """A new emulated machine (``"2xTesla-T4"`` or a model), and its cards as this process meets them through NVML.

    One at a time: NVML looks for its machine when the first of its users begins. Skips where the libraries are not built.
    """
    try:
        nvml_library()
    except MachineError as error:
        pytest.skip(str(error))
    model = machine_of(model) if isinstance(model, str) else model
    before = os.environ.get("PUMICE_MACHINE")
    with tempfile.TemporaryDirectory(prefix="pumice") as folder, create(model, Path(folder) / "m") as machine:
        os.environ["PUMICE_MACHINE"] = str(machine.directory)
        try:
            cards = NvmlCards()
        finally:
            os.environ.pop("PUMICE_MACHINE")
            if before is not None:
                os.environ["PUMICE_MACHINE"] = before
        try:
            met = [card.uuid for card in cards.facts()]
            assert met == [card.uuid for card in model.cards], "somebody in this process still uses another machine"
            yield machine, cards
        finally:
            cards.close()


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[MachineMaker]:
    """Makes machines of presets; skips where the machine's C libraries are not built."""
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    made: list[Machine] = []

    def make(cards: str | list[str], *, virtual_time: bool = False) -> Machine:
        model = machine_of(cards, name="n1", virtual_time=virtual_time)
        made.append(create(model, tmp_path / f"machine{len(made)}"))
        return made[-1]

    yield make
    for machine in made:
        machine.close()


class Programs:
    """Starts programs on a machine: with its libraries and its ``nvidia-smi`` in front."""

    def __init__(self, machine: Machine) -> None:
        machines = machine.environment()
        self.environment = {**os.environ, **machines, "PATH": f"{machines['PATH']}:{os.environ['PATH']}"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(words, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, code: int = 0, timeout: float = 60) -> str:
        """Return the program's output (both streams when it is to fail); fails unless it ended with ``code``."""
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
