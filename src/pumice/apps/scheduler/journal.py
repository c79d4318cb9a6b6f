"""The scheduler's journal while it runs: blocks of records are compressed and written in a thread, and each file but the first
of a run begins with a snapshot that a child worked out.

Nothing waits for it. What cannot be written ends the record, which is said once, and a new file with a new snapshot begins when
one can be written again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from pumice.adapters.segments import Segments
from pumice.apps.scheduler.forked import ask
from pumice.journal.folding import Folder
from pumice.journal.freezing import freeze
from pumice.journal.recorder import Doorway
from pumice.journal.records import BLOCK, SNAPSHOT, Head, encode, frame, head
from pumice.ports.clock import Clock
from pumice.scheduler.inputs import BeginFile

log = logging.getLogger("pumice.scheduler.journal")

PARTS = 8
"""Files that the bound is divided into."""
FLUSH = 0.25
"""Seconds between two looks at what is to be written."""
RETRY = 30.0
"""Seconds after which a new file is tried where one could not be written."""


@dataclass(slots=True)
class Journal:
    """``head`` is how the first file of the run begins. ``recording`` False: what happens now is not kept."""

    segments: Segments
    enter: Doorway
    clock: Clock
    first: Head
    recording: bool = True
    report: Callable[[], None] = lambda: None
    """Called when ``recording`` changes."""
    _folder: Folder = field(default_factory=Folder)
    _number: int = 0
    _began: bool = False
    _again: float = 0.0

    def begin(self) -> None:
        """From now on everything is noted. Before the engine is told anything."""
        self.enter.folder = self._folder

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self.clock.sleep(FLUSH)
            if not self.recording:
                self._folder.turn()
                if self.clock.monotonic() >= self._again:
                    await self._turn()
                continue
            await self._write()
            if self.recording and self.segments.written > self.segments.size / PARTS:
                await self._turn()

    async def finish(self) -> None:
        """Write what is left."""
        if self.recording:
            await self._write()
        self.enter.folder = None
        self.segments.end()

    async def _write(self) -> None:
        if self._folder.records:
            block = self._folder.take()
            await self._carry_out(lambda: self._append(block))

    def _append(self, block: bytes) -> None:
        if not self._began:
            self._begin_file(self.first)
            self._began = True
        self.segments.append(frame(BLOCK, block))

    async def _turn(self) -> None:
        """Begin the next file, with the engine as it is now."""
        before, folder, engine = self._folder.take() if self.recording else b"", self._folder, self.enter.engine
        folder.turn()
        self.enter(BeginFile())
        snapshot = await ask(lambda: frame(SNAPSHOT, encode(folder.snapshot(freeze(engine)))))
        self._number += 1
        then = msgspec.structs.replace(self.first, number=self._number, fresh=False)

        def write() -> None:
            if before and self._began:
                self.segments.append(frame(BLOCK, before))
            self._begin_file(then)
            self._began = True
            if snapshot is None:
                raise OSError("no snapshot could be made")
            if len(snapshot) > self.segments.size // 2:
                raise OSError(f"a snapshot takes {len(snapshot):,} bytes, more than half of what the journal may take")
            self.segments.append(snapshot)

        await self._carry_out(write)

    def _begin_file(self, value: Head) -> None:
        stamp = datetime.fromtimestamp(value.began, UTC).strftime("%Y%m%dT%H%M%SZ")
        self.segments.begin(f"{stamp}-{value.run}-{value.number:06}", head(value))

    async def _carry_out(self, write: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(write)
        except OSError as error:
            if self.recording:
                log.error("journal stopped folder=%s retry_in=%.0fs cause=%s", self.segments.folder, RETRY, error)
            self.recording, self._again = False, self.clock.monotonic() + RETRY
            self._number += 1  # a file that follows without a gap has the next number
            self._folder.turn()
            self.report()
        else:
            if not self.recording:
                log.info("journal goes on folder=%s", self.segments.folder)
                self.recording = True
                self.report()
