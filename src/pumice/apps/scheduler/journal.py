"""The scheduler's journal while it runs: records are sent to a child that writes them (``journal_writer``), and each file but the
first of a run begins with a snapshot of the engine that another child works out.

Nothing waits for it. What cannot be written, or comes quicker than it can be, ends the record, which is said once, and a new file
with a new snapshot begins when one can be written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from signal import SIGKILL
from socket import MSG_DONTWAIT, SHUT_WR, socket

from pumice.adapters.segments import Segments
from pumice.apps.scheduler.forked import ask, beside
from pumice.apps.scheduler.journal_writer import GAP, MESSAGE, NEXT, PACKED, RECORDS, Writer
from pumice.journal.freezing import freeze
from pumice.journal.recorder import Doorway, Notes
from pumice.journal.records import LEVEL, Head, encode
from pumice.ports.clock import Clock
from pumice.scheduler.inputs import BeginFile

log = logging.getLogger("pumice.scheduler.journal")

RETRY = 30.0
"""Seconds after which a new file is tried where one could not be written."""
MOST = 64 << 20
"""Bytes that wait for the writer at most: beyond it the record ends, until it has caught up."""
TOO_SLOW = "it cannot be written as quickly as the scheduler decides"
FLUSH = 0.25
"""Seconds for which records wait for company in their block."""
LAST_NOTES = 10.0
"""Seconds that the writer is given when the scheduler stops."""


class _Sender(threading.Thread):
    """Sends messages beside the loop, since the writer may not take them at once. It ends after None."""

    def __init__(self, joined: socket) -> None:
        super().__init__(name="journal", daemon=True)
        self.joined = joined
        self.messages: SimpleQueue[bytes | None] = SimpleQueue()
        self.sent = 0
        self.fault = ""

    def run(self) -> None:
        try:
            while (message := self.messages.get()) is not None:
                self.joined.sendall(message)
                self.sent += len(message)
        except OSError as error:
            self.fault = str(error)


@dataclass(slots=True)
class Journal:
    """The journal of a running scheduler. ``first`` is how the first file of the run begins. ``recording`` False: what happens
    now is not kept."""

    segments: Segments
    enter: Doorway
    clock: Clock
    first: Head
    recording: bool = True
    report: Callable[[], None] = lambda: None
    """Called when ``recording`` changes."""
    _notes: Notes = field(init=False)
    _socket: socket | None = None
    _writer: int = 0
    """Process id."""
    _sender: _Sender = field(init=False)
    _given: int = 0
    """Bytes that were given to the sender."""
    _heard: bytes = b""
    _full: bool = False
    _again: float = 0.0

    def begin(self) -> None:
        """From now on everything is noted. Before the engine is told anything."""
        self._notes = self.enter.notes = Notes(self._keep, self._lost)
        self._writer, self._socket = beside(lambda joined: Writer(joined, self.segments, self.first).run())
        self._sender = _Sender(self._socket)
        self._sender.start()

    async def run(self) -> None:
        """Send what was noted, for ever."""
        while True:
            await self.clock.sleep(FLUSH)
            self._notes.flush()
            self._hear()
            if self._full if self.recording else self.waiting <= MOST and self.clock.monotonic() >= self._again:
                await self._turn()

    async def finish(self) -> None:
        """Let the writer write what is left."""
        self._notes.flush()
        self.enter.notes = None
        if self._socket is not None:
            self._sender.messages.put(None)
            await asyncio.to_thread(self._sender.join, LAST_NOTES)
            if self._sender.is_alive():
                log.error("journal cut folder=%s cause=its writer is late by more than %.0f s", self.segments.folder, LAST_NOTES)
                os.kill(self._writer, SIGKILL)
            with contextlib.suppress(OSError):
                self._socket.shutdown(SHUT_WR)
            await asyncio.to_thread(os.waitpid, self._writer, 0)
            if not self._sender.fault:
                self._hear()
            self._end()

    def _keep(self, block: bytes) -> None:
        """Send a block of records, as long as not too much waits."""
        self._send(RECORDS, block)
        if self.waiting > MOST and not self._notes.thin:
            self._notes.thin = True
            self._send(GAP, TOO_SLOW.encode())
            self._stopped(TOO_SLOW)  # the writer itself may take nothing any more

    def _send(self, kind: int, payload: bytes) -> None:
        if self._socket is None:
            return
        message = MESSAGE.pack(len(payload), kind) + payload
        self._given += len(message)
        self._sender.messages.put(message)

    @property
    def waiting(self) -> int:
        """Bytes that wait for the writer."""
        return self._given - self._sender.sent

    async def _turn(self) -> None:
        """Begin the next file, with the engine as it is now."""
        engine, notes = self.enter.engine, self._notes
        notes.flush()
        notes.folder.turn()
        self._send(NEXT, b"")
        self._full, notes.thin = False, False
        self._again = self.clock.monotonic() + RETRY
        self.enter(BeginFile())
        packed = await ask(lambda: zlib.compress(encode(notes.folder.snapshot(freeze(engine))), LEVEL))
        self._send(PACKED, packed or b"")

    def _hear(self) -> None:
        """Take what the writer says."""
        if self._socket is None:
            return
        if self._sender.fault:
            self._lost(f"its writer has ended ({self._sender.fault})")
            return
        with contextlib.suppress(OSError):
            self._heard += self._socket.recv(1 << 16, MSG_DONTWAIT)
        *words, self._heard = self._heard.split(b"\n")
        for word in words:
            what, _, cause = word.decode().partition(" ")
            if what == "full":
                self._full = True
            elif what == "going":
                self._goes_on()
            else:
                self._stopped(cause)

    def _goes_on(self) -> None:
        if not self.recording:
            log.info("journal goes on folder=%s", self.segments.folder)
            self.recording = True
            self.report()

    def _stopped(self, cause: str) -> None:
        self._again = self.clock.monotonic() + RETRY
        if self.recording:
            log.error("journal stopped folder=%s retry_in=%.0fs cause=%s", self.segments.folder, RETRY, cause)
            self.recording = False
            self.report()

    def _lost(self, cause: str) -> None:
        """There is no journal any more while this scheduler runs."""
        log.error("journal ended folder=%s cause=%s", self.segments.folder, cause)
        self.enter.notes, self.recording, self._again = None, False, float("inf")
        self._sender.messages.put(None)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._writer, SIGKILL)
            os.waitpid(self._writer, os.WNOHANG)
        self._end()
        self.report()

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
