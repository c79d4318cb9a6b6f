"""Work out an answer in a child that was forked off this process: it sees everything as it is now, and changes nothing here.

The parent pays for the fork (page tables, a few milliseconds) and for the pages that it writes to while the child lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

NICE = 10
"""The child yields to whoever decides."""


def fork(work: Callable[[], bytes]) -> tuple[int, int]:
    """(process id of the child, end of a pipe on which the answer comes). The child always ends; what it raises is no answer."""
    there, here = os.pipe()
    child = os.fork()
    if not child:
        _answer(work, here)
    os.close(here)
    return child, there


def _answer(work: Callable[[], bytes], pipe: int) -> NoReturn:
    code = 1
    try:
        gc.disable()  # a collection would touch, and so copy, every page
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        os.nice(NICE)
        answer = work()
        while answer:
            answer = answer[os.write(pipe, answer) :]
        code = 0
    finally:
        os._exit(code)


def beside(work: Callable[[socket.socket], None]) -> tuple[int, socket.socket]:
    """(process id of a child that works until it is done, this end of what joins it). It holds nothing else of this process, and
    does not end by signals that are meant for it."""
    here, there = socket.socketpair()
    child = os.fork()
    if child:
        there.close()
        return child, here
    code = 1
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        os.closerange(3, there.fileno())
        os.closerange(there.fileno() + 1, 1 << 20)
        os.nice(NICE)
        work(there)
        code = 0
    finally:
        os._exit(code)


async def ask(work: Callable[[], bytes]) -> bytes | None:
    """The answer of a child; None when it ended without one. Cancelling kills the child."""
    child, pipe = fork(work)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**30)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb"))
    try:
        answer = await reader.read()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        transport.close()
        _, status = os.waitpid(child, 0)  # it has closed the pipe, or was killed: it is ending now
    return answer if status == 0 else None
