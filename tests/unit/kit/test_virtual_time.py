"""Virtual time jumps over what nobody works on, and only over that."""

from __future__ import annotations

import asyncio
import time

from kit.virtual_time import run_virtually


def test_five_minutes_take_a_moment_and_a_timeout_is_met_in_them():
    async def story() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(300)
        return asyncio.get_running_loop().time() - began

    before = time.monotonic()
    assert run_virtually(story()) == 300
    assert time.monotonic() - before < 30


def test_time_stands_still_while_a_thread_works():
    async def story() -> None:
        async with asyncio.timeout(5):
            await asyncio.to_thread(time.sleep, 0.1)
        assert asyncio.get_running_loop().time() < 5

    run_virtually(story())
