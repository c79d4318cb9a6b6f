"""Reading container logs in CRI format, as ``kubectl logs`` asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from pumice.ports.clock import Clock
from pumice.wire.times import seconds

_FOLLOW_PAUSE = 0.1  # log files have no event of their own; a tenth of a second reads as "at once"
_CHUNK = 1 << 16
_BATCH = 512
"""Lines that are read in one go."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a request for logs. ``tail``: -1 is everything. ``since``: Unix seconds. ``limit``: bytes, 0 is no limit."""

    follow: bool = False
    tail: int = -1
    timestamps: bool = False
    since: float = 0.0
    limit: int = 0
    stream: str = ""  # empty: both


@dataclass(frozen=True, slots=True)
class Line:
    stamp: bytes
    stream: bytes
    partial: bool
    text: bytes


def parse_line(raw: bytes) -> Line | None:
    parts = raw.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 3:
        return None
    return Line(parts[0], parts[1], parts[2] == b"P", parts[3] if len(parts) > 3 else b"")


async def read_log(path: Path, options: LogOptions, live: Callable[[], bool], clock: Clock) -> AsyncIterator[bytes]:
    """Pieces of the log as plain text. With ``follow`` until the container ends and everything is told."""
    left = options.limit or None
    async for piece in _pieces(path, options, live, clock):
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        if piece:
            yield piece
        if left == 0:
            return


async def _pieces(path: Path, options: LogOptions, live: Callable[[], bool], clock: Clock) -> AsyncIterator[bytes]:
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        rotated = path.with_name(path.name + ".1")
        files = [*([stack.enter_context(open(rotated, "rb"))] if rotated.exists() else ()), file]
        lines = (line for source in files for line in _read(source))
        kept, ended = deque[Line](), 0
        while batch := list(islice(lines, _BATCH)):
            wanted = [line for line in batch if _passes(line, options)]
            if options.tail < 0:
                yield b"".join(_render(line, options) for line in wanted)
            for line in wanted if options.tail >= 0 else ():  # a split line counts once
                kept.append(line)
                ended += not line.partial
                while ended > options.tail:
                    ended -= not kept.popleft().partial
            await asyncio.sleep(0)  # a log may have half a million lines
        last = [*kept]
        for start in range(0, len(last), _BATCH):
            yield b"".join(_render(line, options) for line in last[start : start + _BATCH])
            await asyncio.sleep(0)
        rest = b""
        while options.follow:
            alive = live()  # asked before reading: what was written before the end is then always read
            data = file.read(_CHUNK)
            if data:
                *whole, rest = (rest + data).split(b"\n")
                parsed = [parse_line(raw) for raw in whole]
                yield b"".join(_render(line, options) for line in parsed if line and _passes(line, options))
            elif _replaced(path, file):
                file = stack.enter_context(open(path, "rb"))
            elif not alive:
                return
            else:
                await clock.sleep(_FOLLOW_PAUSE)


def _read(file: BinaryIO) -> Iterator[Line]:
    while True:
        place = file.tell()
        raw = file.readline()
        if not raw.endswith(b"\n"):
            file.seek(place)  # a line that is still being written: left for ``follow``
            return
        if line := parse_line(raw):
            yield line


def _passes(line: Line, options: LogOptions) -> bool:
    if options.stream and line.stream.decode() != options.stream:
        return False
    return not options.since or seconds(line.stamp.decode()) >= options.since


def _render(line: Line, options: LogOptions) -> bytes:
    head = line.stamp + b" " if options.timestamps else b""
    return head + line.text + (b"" if line.partial else b"\n")


def _replaced(path: Path, file: BinaryIO) -> bool:
    """True after a rotation."""
    try:
        return os.stat(path).st_ino != os.fstat(file.fileno()).st_ino
    except OSError:
        return False
