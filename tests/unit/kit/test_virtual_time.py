"""Virtual time jumps over what nobody works on, and only over that."""

from __future__ import annotations

import asyncio
import time

from kit.virtual_time import PATIENCE, run_virtually


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


def test_an_open_connection_is_listened_to_before_time_jumps():
    async def story() -> None:
        server = await asyncio.start_server(answer_late, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(5):
            assert await reader.read(4) == b"late"
        writer.close()
        server.close()

    async def answer_late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asyncio.get_running_loop().call_soon(writer.write, b"late")

    run_virtually(story())


def test_where_only_timers_can_wake_anybody_no_real_moment_is_lost():
    async def story() -> None:
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0):  # nobody calls
            for _ in range(20_000):
                await asyncio.sleep(1)

    before = time.monotonic()
    run_virtually(story())
    assert time.monotonic() - before < 20_000 * PATIENCE
