"""Emulated machines for these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.machines import MachineMaker

from pumice.machine import Machine, MachineError, create, library_dir, machine_of


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
