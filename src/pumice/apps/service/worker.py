"""A thread for calls that block and may never return: a driver whose card is unhealthy. Who is asked to end does not wait for
it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
PATIENCE: Final = 2.0
"""Seconds for which who ends waits for a call that may hang."""


class Worker(Executor):
    """Does one call after the other, in a thread that no exit of the process waits for (``ThreadPoolExecutor``'s are joined)."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[], T]) -> T:
        """Return or raise the call's result. One that is given up before its turn is not made; later it goes on in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self, work)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        answer: Future[T] = Future()

        def work() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(fn(*args, **kwargs))
                except BaseException as error:  # the caller's to judge
                    answer.set_exception(error)

        self._work.put(work)
        return answer

    def close(self, last: Callable[[], None] | None = None, patience: float = PATIENCE) -> bool:
        """No more calls after ``last``, which gives back what the calls used; whether that was done in time."""
        if last is not None:
            self._work.put(last)
        self._work.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


async def once(name: str, work: Callable[[], T]) -> T:
    """One such call."""
    worker = Worker(name)
    try:
        return await worker.call(work)
    finally:
        worker.close(patience=0.0)
