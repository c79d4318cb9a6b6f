from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.kit.virtual_time import run_virtually
from tests.unit.kubelet.world import World, world


@pytest.fixture
def on_node(tmp_path: Path) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]:
    """Run a coroutine function with a node in virtual time."""

    def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with world(tmp_path) as here:
                await work(here)

        run_virtually(main())

    return run
