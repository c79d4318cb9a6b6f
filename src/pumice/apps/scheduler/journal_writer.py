"""The writer of a scheduler's journal: a child that compresses what it is sent, and writes it.

It reads messages. It says words, a line each: that a file is full, that it cannot write and why, that it writes again. It ends
when the scheduler does, however that ends.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from struct import Struct

import msgspec

from pumice.adapters.segments import Segments
from pumice.journal.records import BLOCK, SNAPSHOT, Head, frame, framed, head

PARTS = 8
"""Files that the bound is divided into."""
AT_ONCE = 1 << 20
"""Bytes that are read at a time."""
MESSAGE = Struct("<IB")
"""The head of a message: its size and kind."""
RECORDS, NEXT, PACKED, GAP = range(4)
"""A block of records; the next file begins; its snapshot, compressed, or nothing where none could be made; why the record
ends."""


def messages(came: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the messages that are whole: kind and content of each."""
    at = 0
    while len(came) >= at + MESSAGE.size:
        size, kind = MESSAGE.unpack_from(came, at)
        end = at + MESSAGE.size + size
        if len(came) < end:
            break
        payload = bytes(memoryview(came)[at + MESSAGE.size : end])
        at = end
        yield kind, payload
    del came[:at]


def stamped(value: Head) -> str:
    """Return the name of a file without its suffix."""
    stamp = datetime.fromtimestamp(value.began, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-{value.run}-{value.number:06}"


class Writer:
    """The child that writes the journal. ``first`` is how the first file of the run begins."""

    def __init__(self, socket: socket.socket, segments: Segments, first: Head) -> None:
        self.socket, self.segments, self.head = socket, segments, first
        self.recording = True
        self._began = self._full = False
        self._awaits = False
        """The snapshot of the open file."""

    def run(self) -> None:
        """Read and write until nobody tells anything any more."""
        came = bytearray()
        while more := self.socket.recv(AT_ONCE):
            came += more
            for kind, payload in messages(came):
                self._take(kind, payload)
        self.segments.end()

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == NEXT:
            self._turn()
        elif kind == GAP:
            self._stop(payload.decode())
        elif self.recording:
            try:
                if kind == RECORDS:
                    self._write(payload)
                elif self._awaits:
                    self._write_snapshot(payload)
            except OSError as error:
                self._stop(str(error))

    def _write(self, block: bytes) -> None:
        if not self._began:
            self._begin_file()
        self.segments.append(frame(BLOCK, block))
        if not self._full and self.segments.written > self.segments.size / PARTS:
            self._full = True
            self._say("full")

    def _turn(self) -> None:
        """Begin the next file."""
        self.head = msgspec.structs.replace(self.head, number=self.head.number + 1, fresh=False)
        self.recording = self._awaits = True
        try:
            self._begin_file()
        except OSError as error:
            self._stop(str(error))

    def _begin_file(self) -> None:
        self.segments.begin(stamped(self.head), head(self.head))
        self._began, self._full = True, False

    def _write_snapshot(self, packed: bytes) -> None:
        if not packed:
            raise OSError("no snapshot could be made")
        snapshot = framed(SNAPSHOT, packed)
        if len(snapshot) > self.segments.size // 2:
            raise OSError(f"a snapshot takes {len(snapshot):,} bytes, more than half of what the journal may take")
        self.segments.append(snapshot)
        self._awaits = False
        self._say("going")

    def _stop(self, cause: str) -> None:
        """Write nothing until the next file begins; it follows on no other."""
        if self.recording:
            self._say(f"stopped {cause}")
        self.recording = self._awaits = False
        self.head = msgspec.structs.replace(self.head, number=self.head.number + 1)

    def _say(self, words: str) -> None:
        self.socket.sendall(words.replace("\n", " ").encode() + b"\n")
