"""The end of a program that people or the system tell to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable


def told_to_stop(*numbers: signal.Signals) -> asyncio.Event:
    """Return an event that these signals set; none are named: SIGINT and SIGTERM."""
    stop = asyncio.Event()
    for number in numbers or (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Do the work until told to stop; what it raises is raised."""
    task, told = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    finally:
        for each in (task, told):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, told, return_exceptions=True)
