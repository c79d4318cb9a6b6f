"""Turns on the event loop: long answers a slice at a time, large bodies one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """One slice in each turn of the event loop, however many long answers are under way, so that what is short waits for one
    slice. Users come one after the other, and so do the answers of each.

    ``rests``: after each turn the others have as long as it took, up to that many seconds, to get on: whoever comes meanwhile
    waits for one."""

    def __init__(self, rests: float = 0.0) -> None:
        self._rests = rests
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._going = False

    async def mine(self, user: str) -> None:
        """Returns when it is the turn of this one; it lasts until the caller awaits something that is not there yet."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._lines.setdefault(user, deque()).append(turn)
        if not self._going:
            self._going = True
            loop.call_soon(self._next)
        await turn

    def _next(self) -> None:
        while self._lines:
            user = next(iter(self._lines))
            line = self._lines.pop(user)
            turn = line.popleft()
            if line:
                self._lines[user] = line  # behind all others
            if not turn.done():  # it may have been cancelled
                turn.set_result(None)
                loop = asyncio.get_running_loop()
                loop.call_soon(self._rest, loop.time())
                return
        self._going = False

    def _rest(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(min(self._rests, loop.time() - began), self._next)


class OneAtATime:
    """Work of which one piece is under way. Users come one after the other, and so does what each of them wants done."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = False

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        if self._busy:
            turn = asyncio.get_running_loop().create_future()
            self._lines.setdefault(user, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()  # it had just come
                raise
        self._busy = True
        try:
            yield
        finally:
            self._next()

    def _next(self) -> None:
        """The next one is busy from now on: nobody comes between."""
        while self._lines:
            user = next(iter(self._lines))
            line = self._lines.pop(user)
            turn = line.popleft()
            if line:
                self._lines[user] = line  # behind all others
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
