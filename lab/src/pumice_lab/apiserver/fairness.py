"""Turns on the event loop: long answers a slice at a time, large bodies one at a time, one watch or request of very many
at a time, what the controllers write a few at a time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Line:
    """Waiters by user: users come one after the other, and so do the waiters of each."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def join(self, user: str) -> asyncio.Future[None]:
        """Return the future that is done when it is this waiter's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        return turn

    def call_next(self) -> bool:
        """Call up the next one that was not cancelled. False where nobody waits."""
        while self._waiting:
            user = next(iter(self._waiting))
            line = self._waiting.pop(user)
            turn = line.popleft()
            if line:
                self._waiting[user] = line  # behind all others
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class Turns:
    """One slice in each turn of the event loop, however many long answers are under way, so that what is short waits for one
    slice. Users come one after the other, and so do the answers of each.

    ``at_once``: so many of each user in a turn of the loop do not wait for one.

    ``rests``: after each turn the others have as long as it took, up to that many seconds, to get on: whoever comes meanwhile
    waits for one."""

    def __init__(self, rests: float = 0.0, at_once: int = 0) -> None:
        self._rests, self._at_once = rests, at_once
        self._gone: Counter[str] = Counter()
        """Those that did not wait, in this turn of the loop."""
        self._line = Line()
        self._going = False

    async def mine(self, user: str) -> None:
        """Returns when it is the turn of this one; it lasts until the caller awaits something that is not there yet."""
        if self._gone[user] < self._at_once:
            if not self._gone:
                asyncio.get_running_loop().call_soon(self._gone.clear)
            self._gone[user] += 1
            return
        turn = self._line.join(user)
        if not self._going:
            self._going = True
            asyncio.get_running_loop().call_soon(self._next)
        await turn

    def _next(self) -> None:
        self._going = self._line.call_next()
        if self._going:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._rest, loop.time())

    def _rest(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(min(self._rests, loop.time() - began), self._next)


class Seats:
    """Work of which so many pieces are under way at most. Users come one after the other, and so does what each wants done.

    ``rests``: a seat stays empty after each piece for so many times as long as that took. Few pieces find a seat all the same;
    where there are many, fewer are under way the longer they take, and whoever else comes to the loop waits for those alone."""

    def __init__(self, number: int = 1, rests: float = 0.0) -> None:
        self._line = Line()
        self._free, self._rests = number, rests

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        if not self._free:
            turn = self._line.join(user)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()  # it had just come
                raise
        else:
            self._free -= 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            rest = self._rests * (loop.time() - began)
            if rest > 0:
                loop.call_later(min(rest, LONGEST_REST), self._next)
            else:
                self._next()

    def _next(self) -> None:
        """The seat goes to the next one: nobody comes between."""
        if not self._line.call_next():
            self._free += 1


LONGEST_REST = 2.0
"""Seconds for which a seat stays empty at most: what took long may have waited for something else than the loop."""


AT_ONCE = 200
"""Watches of one user that are woken all at once: more than any client or daemon of a cluster has."""


class Watches:
    """Open watches by user. Those of somebody who has very many are woken one after the other, so that one change does not stop
    all others until each of them has had it."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._turns = Turns()

    @contextmanager
    def opened(self, user: str) -> Iterator[None]:
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    async def woken(self, user: str) -> None:
        """Return when one of the user's watches may go on."""
        if self._open[user] > AT_ONCE:
            await self._turns.mine(user)
