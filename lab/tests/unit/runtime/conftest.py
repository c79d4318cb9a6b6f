"""A box of each kind of isolation that this machine may allow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lab.tests.unit.runtime.box import KINDS, Inside, Work, box


@pytest.fixture(params=KINDS)
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Inside:
    """Run a coroutine function with a box, once per kind of isolation."""

    def run(work: Work) -> None:
        async def main() -> None:
            async with box(tmp_path, request.param) as here:
                await work(here)

        asyncio.run(main())

    return run
