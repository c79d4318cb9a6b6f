"""Calls that may never return are made where nobody waits for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from pumice.apps.service.worker import Worker

HANGS = """
import asyncio, threading
from pumice.apps.service.worker import Worker

async def story():
    worker, inside = Worker("sick"), threading.Event()
    call = asyncio.create_task(worker.call(lambda: inside.set() or threading.Event().wait()))
    await asyncio.to_thread(inside.wait)
    call.cancel()
    print("in time" if worker.close(patience=0.05) else "left behind")

asyncio.run(story())
"""


def test_a_call_that_never_returns_does_not_keep_a_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left behind\n", "")


def test_calls_are_made_one_after_the_other_and_their_errors_come_back() -> None:
    async def story() -> None:
        worker, order = Worker("w"), []
        answers = await asyncio.gather(*(worker.call(lambda n=n: order.append(n) or n) for n in range(5)))  # type: ignore[misc]
        assert answers == order == [0, 1, 2, 3, 4]
        with pytest.raises(ZeroDivisionError):
            await worker.call(lambda: 1 // 0)
        assert worker.close(lambda: order.append(5))
        assert order[-1] == 5

    asyncio.run(story())


def test_a_call_that_was_given_up_before_its_turn_is_not_made() -> None:
    async def story() -> None:
        worker, free, made = Worker("w"), threading.Event(), []
        first = asyncio.create_task(worker.call(free.wait))
        second = asyncio.create_task(worker.call(lambda: made.append(1)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        free.set()
        await first
        assert worker.close()
        assert made == []

    asyncio.run(story())
