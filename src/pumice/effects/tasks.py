"""Small tools for tasks that run side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from pumice.model.errors import PumiceError


class Signal:
    """Something changed. A waiter sees every change that comes after its call of ``wait``."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def fire(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    def wait(self) -> asyncio.Future[None]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._next)


class Bell:
    """Wakes one of those that wait, the first that came; nobody hears a ring from before. For workers that look for something to
    do, and wait where there is nothing: an Event would wake all of them for one thing to do."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def ring(self) -> None:
        while self._waiting:
            sleeper = self._waiting.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return

    async def wait(self) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(sleeper)
        try:
            await sleeper
        except asyncio.CancelledError:
            if sleeper.done() and not sleeper.cancelled():
                self.ring()  # it was meant for whoever can still work
            raise


async def first(*waits: Awaitable[Any]) -> int:
    """Wait until one of them is done and give the others up; the index of the first that is done. Raises what that one did."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        index = next(i for i, task in enumerate(tasks) if task.done())
        tasks[index].result()
        return index
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def any_done(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of them is done, and leave all as they are. ``asyncio.wait`` takes thrice as long, which counts where it is
    done with each event of each watch."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    try:
        await waiter
    finally:
        for future in futures:
            future.remove_done_callback(wake)


async def in_slices(steps: Iterable[object], seconds: float) -> None:
    """Take all the steps, and give way to others every so many seconds."""
    began = perf_counter()
    for _ in steps:
        if perf_counter() - began > seconds:
            await asyncio.sleep(0)
            began = perf_counter()


async def run_until(stop: asyncio.Event, *work: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side until ``stop``; the first error of any of them is raised as it is."""

    async def stopper() -> None:
        await stop.wait()
        raise _Stopped

    try:
        async with asyncio.TaskGroup() as tasks:
            for job in (*work, stopper()):
                tasks.create_task(job)
    except BaseExceptionGroup as group:
        for error in _flat(group):
            if not isinstance(error, _Stopped):
                raise error from (None if isinstance(error, PumiceError) else group)


@asynccontextmanager
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """Tasks beside a block, none of which outlives it; the first error, of the block or a task, is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        error = _flat(errors)[0]
        raise error from (None if isinstance(error, PumiceError) else errors)


class _Stopped(Exception):
    """Asked to stop."""


def _flat(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _flat(part)]
    return [error]
