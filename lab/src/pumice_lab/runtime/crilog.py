"""Container logs in CRI format: ``TIME STREAM F|P TEXT``. Standard library only (see spawner)."""

from __future__ import annotations

import contextlib
import os
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
