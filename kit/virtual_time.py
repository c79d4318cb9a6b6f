"""An event loop whose clock jumps: a test of a five-minute lease takes a millisecond.

    run_virtually(main())          # asyncio.sleep, timeouts and VirtualClock all follow the loop's own time

The loop looks for real input (sockets) for a moment before it jumps to the next timer, so programs that talk over loopback
work, too. While a thread of ``to_thread`` works it does not jump at all: else five seconds would pass while a busy machine
writes one file.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH = 1_800_000_000.0  # the wall clock when virtual time begins (January 2027)
PATIENCE = 0.002
THREAD_PATIENCE = 20.0
"""Real seconds after which time jumps in spite of a thread that works: it may itself wait for something of the loop."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, patience: float) -> None:
        super().__init__()
        self.elapsed, self.patience = 0.0, patience
        self.threads: set[asyncio.Future[Any]] = set()
        """What was given to threads and is not done."""

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(None)
        if timeout <= 0:
            return super().select(0)
        events = super().select(min(timeout, self.patience))
        deadline = time.monotonic() + THREAD_PATIENCE
        while not events and self.threads and time.monotonic() < deadline:
            events = super().select(deadline - time.monotonic())
        if not events:
            self.elapsed += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, patience: float) -> None:
        self._jumping = _JumpingSelector(patience)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.elapsed

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        working = super().run_in_executor(executor, func, *args)
        self._jumping.threads.add(working)
        working.add_done_callback(self._jumping.threads.discard)
        return working


class VirtualClock:
    """A ports.clock.Clock on the running virtual loop."""

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def run_virtually(work: Coroutine[Any, Any, T], patience: float = PATIENCE) -> T:
    """``patience``: real seconds to wait for real input before each jump; more where threads or sockets take part."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(patience)) as runner:
        return runner.run(work)
