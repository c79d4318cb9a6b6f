"""The near end of an exec: what the command writes, what it reads, its terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Awaitable, Callable

from pumice_lab.runtime.spec import Exit

HELD = 1 << 20
"""Bytes of output that wait for a reader; then the command waits, as at any full pipe."""


class LocalExec:
    """Pipes, or a terminal of its own. ``child_fds`` are for the command: stdin, stdout, stderr."""

    def __init__(self, kill: Callable[[], Awaitable[None]], *, tty: bool, stdin: bool) -> None:
        self._kill = kill
        self._output: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self._held, self._paused = 0, set[int]()
        self._killing: asyncio.Future[None] | None = None
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._open_outputs: set[int] = set()
        self._stdin = -1
        self.terminal = -1
        if tty:
            master, slave = os.openpty()
            self.terminal = self._stdin = master
            self.child_fds = [slave, os.dup(slave), os.dup(slave)]
            outputs = {master: 1}
        else:
            source, self._stdin = os.pipe() if stdin else (os.open("/dev/null", os.O_RDONLY), -1)
            (out, out_child), (err, err_child) = os.pipe(), os.pipe()
            self.child_fds = [source, out_child, err_child]
            outputs = {out: 1, err: 2}
        self._outputs = outputs
        loop = asyncio.get_running_loop()
        for fd, channel in outputs.items():
            os.set_blocking(fd, False)
            self._open_outputs.add(fd)
            loop.add_reader(fd, self._readable, fd, channel)
        if self._stdin >= 0:
            os.set_blocking(self._stdin, False)

    def _readable(self, fd: int, channel: int) -> bool:
        """Read a piece; False when there is none at the moment."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the terminal's last user is gone
            data = b""
        if data:
            self._output.put_nowait((channel, data))
            self._held += len(data)
            if self._held >= HELD:
                asyncio.get_running_loop().remove_reader(fd)
                self._paused.add(fd)
        else:
            self._close_output(fd)
        return True

    def _close_output(self, fd: int) -> None:
        if fd not in self._open_outputs:
            return
        asyncio.get_running_loop().remove_reader(fd)
        self._open_outputs.discard(fd)
        self._paused.discard(fd)
        if fd != self.terminal:
            os.close(fd)
        if not self._open_outputs:
            self._output.put_nowait(None)

    def close_child_ends(self) -> None:
        for fd in self.child_fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.child_fds = []

    def abandon(self) -> None:
        """Close everything; ``read`` then gives what was read so far and ends."""
        for fd in list(self._open_outputs):
            self._close_output(fd)
        self._close_terminal()
        self.close_stdin()

    def on_exit(self, ended: Exit) -> None:
        if not self._exit.done():
            self._exit.set_result(ended.code)
        # A grandchild in the background may keep the pipes open: the exec ends with its process all the same, after
        # what is in the pipes already.
        for fd, channel in list(self._outputs.items()):
            while fd in self._open_outputs and self._readable(fd, channel):
                pass
        self.abandon()

    def _close_terminal(self) -> None:
        if self.terminal >= 0:
            with contextlib.suppress(OSError):
                os.close(self.terminal)
            self._stdin = self.terminal = -1

    async def read(self) -> tuple[int, bytes] | None:
        found = await self._output.get()
        self._held -= len(found[1]) if found else 0
        if self._held < HELD // 2:
            for fd in self._paused:
                channel = self._outputs[fd]
                asyncio.get_running_loop().add_reader(fd, self._readable, fd, channel)
            self._paused.clear()
        return found

    async def write(self, data: bytes) -> None:
        while data and self._stdin >= 0:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except OSError:  # the command reads no more
                return

    def close_stdin(self) -> None:
        if self.terminal < 0 and self._stdin >= 0:
            with contextlib.suppress(OSError):
                os.close(self._stdin)
            self._stdin = -1

    def resize(self, columns: int, rows: int) -> None:
        if self.terminal >= 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    def kill(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._killing = asyncio.ensure_future(self._kill())
            self._killing.add_done_callback(lambda t: t.exception())
