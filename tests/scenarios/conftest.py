"""Common beginnings of scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.one_machine import OneMachine
from kit.real_node import on_cluster

__all__ = ["here", "on_cluster"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[OneMachine]:
    """A machine with two emulated cards and no cluster."""
    one = OneMachine(tmp_path / "node" / "machine")
    yield one
    one.close()
