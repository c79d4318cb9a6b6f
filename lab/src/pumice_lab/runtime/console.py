"""The near end of a container's stdin and terminal, for ``kubectl attach`` and ``kubectl run -it``.

Output without a terminal goes through the spawner into the log; a terminal's output comes here, and this writes the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
import time
from datetime import UTC, datetime

_LINE_MAX = 16 * 1024  # longer lines are split and the pieces tagged P
_LOG_MAX = 10 * 1024 * 1024  # kubelet's containerLogMaxSize


class Log:
    """One container's log file. When it is too large it is renamed to ``.1``; one such older file is kept."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115 - lives as long as the container
        self.pending = {"stdout": b"", "stderr": b""}

    def feed(self, stream: str, data: bytes) -> None:
        lines = (self.pending[stream] + data).split(b"\n")
        self.pending[stream] = lines.pop()
        stamp = log_stamp(time.time_ns())
        out = []
        for line in lines:
            *pieces, last = _pieces(line)
            out += [b"%s %s P %s\n" % (stamp, stream.encode(), piece) for piece in pieces]
            out.append(b"%s %s F %s\n" % (stamp, stream.encode(), last))
        while len(self.pending[stream]) > _LINE_MAX:
            piece, self.pending[stream] = self.pending[stream][:_LINE_MAX], self.pending[stream][_LINE_MAX:]
            out.append(b"%s %s P %s\n" % (stamp, stream.encode(), piece))
        self._write(b"".join(out))

    def close(self) -> None:
        for stream, rest in self.pending.items():
            if rest:
                self._write(b"%s %s F %s\n" % (log_stamp(time.time_ns()), stream.encode(), rest))
        self.file.close()

    def _write(self, data: bytes) -> None:
        if not data:
            return
        with contextlib.suppress(OSError, ValueError):  # a full disk costs log lines (closed: no new one to be had), no container
            self.file.write(data)
            if self.file.tell() > _LOG_MAX:
                self.file.close()
                os.replace(self.path, self.path + ".1")
                self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115


def log_stamp(nanoseconds: int) -> bytes:
    """RFC 3339 with nine digits, as containerd writes it."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z".encode()


def _pieces(line: bytes) -> list[bytes]:
    return [line[i : i + _LINE_MAX] for i in range(0, len(line), _LINE_MAX)] or [b""]


class Console:
    """Made before the container starts: ``child_fd`` is for it. ``close`` ends it with the container."""

    def __init__(self, log_path: str, *, tty: bool) -> None:
        self.tty = tty
        self._subscribers: set[asyncio.Queue[bytes | None]] = set()
        self._log: Log | None = None
        if tty:
            self._fd, self.child_fd = os.openpty()
            self._log = Log(log_path)
            asyncio.get_running_loop().add_reader(self._fd, self._readable)
        else:
            self.child_fd, self._fd = os.pipe()
        os.set_blocking(self._fd, False)

    def started(self) -> None:
        """The container has its end; ours must not keep it open."""
        if self.child_fd >= 0:
            os.close(self.child_fd)
            self.child_fd = -1

    def subscribe(self) -> asyncio.Queue[bytes | None]:
        """Output of the terminal from now on; None at its end."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._subscribers.add(queue)
        if self._fd < 0:
            queue.put_nowait(None)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._subscribers.discard(queue)

    async def write(self, data: bytes) -> None:
        while data and self._fd >= 0:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                await asyncio.sleep(0.005)
            except OSError:
                return

    def close_stdin(self) -> None:
        """End of input; a terminal stays open (its user types ^D)."""
        if not self.tty:
            self.close()

    def resize(self, columns: int, rows: int) -> None:
        if self.tty and self._fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        self.started()
        if self._fd < 0:
            return
        if self.tty:
            while self._readable():
                pass
            asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        if self._log is not None:
            self._log.close()
        for queue in self._subscribers:
            queue.put_nowait(None)

    def _readable(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return False
        except OSError:  # EIO: nobody has the terminal at the moment
            asyncio.get_running_loop().remove_reader(self._fd)
            return False
        if data and self._log is not None:
            self._log.feed("stdout", data)
        for queue in self._subscribers:
            queue.put_nowait(data)
        return bool(data)
