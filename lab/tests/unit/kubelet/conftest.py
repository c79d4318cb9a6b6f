from __future__ import annotations

from pathlib import Path

import pytest
from kit.real_node import on_cluster
from kit.virtual_time import run_virtually
from lab.tests.unit.kubelet.world import OnNode, Work, world

__all__ = ["on_cluster", "on_node"]


@pytest.fixture
def on_node(tmp_path: Path) -> OnNode:
    """Run a coroutine function with a node in virtual time."""

    def run(work: Work) -> None:
        async def main() -> None:
            async with world(tmp_path) as here:
                await work(here)

        run_virtually(main())

    return run
