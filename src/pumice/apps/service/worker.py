"""A thread for calls that block and may never return: a driver whose card is sick. Who is asked to end does not wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Does one call after the other, in a thread that no exit of the process waits for (``ThreadPoolExecutor``'s are joined)."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[], T]) -> T:
        """What the call returns or raises. One that is given up goes on in its thread, and those behind it wait."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]

        def done() -> None:
            result, error = None, None
            try:
                if not answer.cancelled():
                    result = work()
            except BaseException as raised:  # the caller's to judge
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        self._work.put(done)
        return await answer

    def close(self, last: Callable[[], None] | None = None, patience: float = 2.0) -> bool:
        """No more calls after ``last``, which gives back what the calls used; whether it was done in time."""
        if last is not None:
            self._work.put(last)
        self._work.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
