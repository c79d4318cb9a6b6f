"""An event loop whose clock jumps: a test of a five-minute lease takes a millisecond.

    run_virtually(main())          # asyncio.sleep, timeouts and VirtualClock all follow the loop's own time

Where nothing but timers can wake the loop it jumps to the next one at once. While connections are open (sockets, pipes, gRPC)
it looks for real input for a moment first, so programs that talk over loopback work, too; not where a test says that nobody
has anything to say (``in_silence``). While a thread of ``to_thread`` works
it does not jump at all: else five seconds would pass while a busy machine writes one file.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH = 1_800_000_000.0  # the wall clock when virtual time begins (January 2027)
PATIENCE = 0.005
"""Real seconds without input after which time jumps while connections are open."""
CALL_PATIENCE = 0.05
"""The same while a call is under way (``under_way``): a busy machine may take its time to carry it. Once: who is called and
waits for time to pass shall not wait so long for each second."""
LISTENING = 10.0
"""Virtual seconds at the end of a silence in which it is looked for input as ever."""
THREAD_PATIENCE = 20.0
"""Real seconds after which time jumps in spite of a thread that works: it may itself wait for something of the loop."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0
        self.threads: set[asyncio.Future[Any]] = set()
        """The work given to threads that is not done."""
        self.calls = 0
        self.deaf = False
        """True where nobody outside speaks to this loop: the kernel is not asked."""
        self._heard = True
        """True if there was input since time last jumped."""
        self.silence = False
        self._silent: set[int] = set()
        """Descriptors by which nothing comes that somebody else who is watched has not begun."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if not self._silent or _listens(key.fd):  # the loop's own waker comes first
            self._silent.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._silent.discard(key.fd)
        return key

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(None)
        if self.deaf:
            self.elapsed += max(0.0, timeout)
            return []
        if timeout <= 0:
            events = super().select(0)
            self._heard = self._heard or bool(events)
            return events
        alone = not self.threads and (self.silence or len(self.get_map()) == len(self._silent))
        patience = CALL_PATIENCE if self.calls and self._heard else PATIENCE
        events = super().select(0 if alone else min(timeout, patience))
        deadline = time.monotonic() + THREAD_PATIENCE
        while not events and self.threads and time.monotonic() < deadline:
            events = super().select(deadline - time.monotonic())
        self._heard = bool(events)
        if not events:
            self.elapsed += timeout
        return events


def _listens(fd: int) -> bool:
    """Return whether it is the socket of a server: who connects to it is on this loop, a thread or another program's."""
    with suppress(OSError):
        found = socket.socket(fileno=fd)
        try:
            return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        finally:
            found.detach()
    return False


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.elapsed

    @contextmanager
    def calling(self) -> Iterator[None]:
        self._jumping.calls += 1
        try:
            yield
        finally:
            self._jumping.calls -= 1

    async def in_silence(self, seconds: float) -> None:
        self._jumping.silence = True
        try:
            await asyncio.sleep(max(0.0, seconds - LISTENING))
        finally:
            self._jumping.silence = False
        await asyncio.sleep(min(seconds, LISTENING))

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        working = super().run_in_executor(executor, func, *args)
        self._jumping.threads.add(working)
        working.add_done_callback(self._jumping.threads.discard)
        return working


def under_way() -> AbstractContextManager[None]:
    """Inside, somebody is called whose threads the loop does not see, as those of gRPC. The answer may itself wait for time to
    pass, so time does not stand still."""
    loop = asyncio.get_running_loop()
    return loop.calling() if isinstance(loop, VirtualLoop) else nullcontext()


async def in_silence(seconds: float) -> None:
    """Let time pass in which nobody should call over a connection: each second would else be waited for a moment. Only the last
    ones are, so that whatever was begun all the same arrives."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await loop.in_silence(seconds)


class VirtualClock:
    """A ports.clock.Clock on the running virtual loop. ``offset``: by how much the time of day was set."""

    offset = 0.0

    def now(self) -> float:
        return EPOCH + self.offset + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(1e-6, seconds) if seconds > 0 else 0.0)  # a real clock moves in any sleep, however short


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
