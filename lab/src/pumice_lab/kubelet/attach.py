"""An attach as a session like an exec: a running container's output and, where it has them, its stdin and terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pumice.ports.clock import Clock
from pumice_lab.kubelet.logs import LogOptions, read_log
from pumice_lab.runtime.spec import Attached


class AttachSession:
    """Output of a terminal comes from it, other output from the log. ``live``: does the container still run?"""

    def __init__(self, console: Attached | None, log: Path, live: Callable[[], bool], clock: Clock, *,
                 stdin_once: bool) -> None:
        self._console, self._stdin_once = console, stdin_once
        self._queue: asyncio.Queue[bytes | None] | None = None
        self._log: AsyncIterator[bytes] | None = None
        if console is not None and console.tty:
            self._queue = console.subscribe()
        else:
            self._log = read_log(log, LogOptions(follow=True, tail=0), live, clock)

    async def read(self) -> tuple[int, bytes] | None:
        if self._queue is not None:
            data = await self._queue.get()
        else:
            assert self._log is not None
            data = await anext(self._log, None)
        return None if data is None else (1, data)

    async def write(self, data: bytes) -> None:
        if self._console is not None:
            await self._console.write(data)

    def close_stdin(self) -> None:
        if self._console is not None:
            self._console.close_stdin()

    def resize(self, columns: int, rows: int) -> None:
        if self._console is not None:
            self._console.resize(columns, rows)

    async def wait(self) -> int:
        return 0

    def kill(self) -> None:
        """Detach: the container goes on."""
        if self._stdin_once:
            self.close_stdin()
        if self._console is not None and self._queue is not None:
            self._console.unsubscribe(self._queue)
            self._queue.put_nowait(None)
