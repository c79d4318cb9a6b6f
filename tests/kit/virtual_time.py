"""An event loop whose clock jumps: a test of a five-minute lease takes a millisecond.

    run_virtually(main())          # asyncio.sleep, timeouts and VirtualClock all follow the loop's own time

The loop looks for real input (sockets, other threads) for a moment before it jumps to the next timer, so programs that talk
over loopback work, too.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH = 1_800_000_000.0  # the wall clock when virtual time begins (January 2027)
PATIENCE = 0.002


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, patience: float) -> None:
        super().__init__()
        self.elapsed, self.patience = 0.0, patience

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(None)
        if timeout <= 0:
            return super().select(0)
        events = super().select(min(timeout, self.patience))
        if not events:
            self.elapsed += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, patience: float) -> None:
        self._jumping = _JumpingSelector(patience)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.elapsed


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
