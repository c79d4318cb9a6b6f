"""The writer of a scheduler's journal: a child that reads notes, folds them into records, compresses and writes them.

It reads messages (``journal.recorder``). It says words, a line each: that a file is full, that it cannot write and why, that it
writes again. It ends when the scheduler does, however that ends.
"""

from __future__ import annotations

import select
import socket
import time
import zlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from pumice.adapters.segments import Segments
from pumice.journal.folding import Folder
from pumice.journal.recorder import DROP_LINE, ENGINE, GAP, PUT_LINE, messages
from pumice.journal.records import BLOCK, SNAPSHOT, Head, Snapshot, decode_told, encode, frame, head, pod_of
from pumice.scheduler.inputs import BeginFile, DropPod, PutPod

PARTS = 8
"""Files that the bound is divided into."""
FLUSH = 0.25
"""Seconds for which records wait for company in their block."""
BLOCK_SIZE = 1 << 20
"""Bytes of records, about, that wait no longer."""
AT_ONCE = 1 << 20
"""Bytes that are read at a time."""


def stamped(value: Head) -> str:
    """Return the name of a file without its suffix."""
    stamp = datetime.fromtimestamp(value.began, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-{value.run}-{value.number:06}"


def told(kind: int, payload: bytes, now: float) -> Any:
    """Return what a message tells a folder."""
    if kind == PUT_LINE:
        return PutPod(pod_of(payload), now)
    return DropPod(pod_of(payload)) if kind == DROP_LINE else decode_told(payload)


class Writer:
    """``first`` is how the first file of the run begins."""

    def __init__(self, socket: socket.socket, segments: Segments, first: Head) -> None:
        self.socket, self.segments, self.head = socket, segments, first
        self.folder = Folder()
        self.recording = True
        self._began = self._full = False
        self._snapshot: Snapshot | None = None
        """Of the open file, as long as its engine has not come."""

    def run(self) -> None:
        """Read and write until nobody tells anything any more."""
        came, due = bytearray(), 0.0
        while True:
            wait = max(0.0, due - time.monotonic()) if self.folder.records else None
            if select.select([self.socket], [], [], wait)[0]:
                more = self.socket.recv(AT_ONCE)
                if not more:
                    break
                came += more
                fresh = not self.folder.records
                self._take(came)
                if fresh:
                    due = time.monotonic() + FLUSH
            if self.folder.records and (time.monotonic() >= due or self.folder.size > BLOCK_SIZE):
                self._write()
        self._write()
        self.segments.end()

    def _take(self, came: bytearray) -> None:
        """Take the messages that are whole."""
        for kind, payload, now in messages(came):
            if kind == ENGINE:
                self._take_engine(payload)
            elif kind == GAP:
                self._write()
                self._stop(payload.decode())
            else:
                found = told(kind, payload, now)
                if type(found) is BeginFile:
                    self._turn()
                self.folder.fold(found)

    def _write(self) -> None:
        if not self.recording:
            self.folder.turn()
            return
        block = self.folder.take()
        try:
            if not self._began:
                self._begin_file()
            self.segments.append(frame(BLOCK, block))
        except OSError as error:
            self._stop(str(error))
        if not self._full and self.segments.written > self.segments.size / PARTS:
            self._full = True
            self._say("full")

    def _turn(self) -> None:
        """Begin the next file, with all objects as they were told so far."""
        if self.folder.records:
            self._write()
        self.folder.turn()
        self.head = msgspec.structs.replace(self.head, number=self.head.number + 1, fresh=False)
        self._snapshot = self.folder.snapshot(b"")
        self.recording = True
        try:
            self._begin_file()
        except OSError as error:
            self._stop(str(error))

    def _begin_file(self) -> None:
        self.segments.begin(stamped(self.head), head(self.head))
        self._began, self._full = True, False

    def _take_engine(self, packed: bytes) -> None:
        """The engine has come with which the open file begins."""
        if self._snapshot is None or not self.recording:
            return
        try:
            if not packed:
                raise OSError("no snapshot could be made")
            self._snapshot.engine = zlib.decompress(packed)
            snapshot = frame(SNAPSHOT, encode(self._snapshot))
            if len(snapshot) > self.segments.size // 2:
                raise OSError(f"a snapshot takes {len(snapshot):,} bytes, more than half of what the journal may take")
            self.segments.append(snapshot)
            self._say("going")
        except OSError as error:
            self._stop(str(error))
        self._snapshot = None

    def _stop(self, cause: str) -> None:
        """Write nothing until the next file begins; it follows on no other."""
        if self.recording:
            self._say(f"stopped {cause}")
        self.recording, self._snapshot = False, None
        self.head = msgspec.structs.replace(self.head, number=self.head.number + 1)
        self.folder.turn()

    def _say(self, words: str) -> None:
        self.socket.sendall(words.replace("\n", " ").encode() + b"\n")
