"""The doorway through which everything goes into an engine, and the notes of it, where somebody keeps a journal.

A note costs the loop a copy: pods are noted as the lines of the watch in which they came. What of them is read, what is the
same as before, what it is called, and how it lies in a file is found out by whoever reads the notes (``folding``), in another
process. Copies lie in chunks that are used again; lines that are kept instead have the next ones read into cold memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from io import SEEK_END, BytesIO
from random import Random
from struct import Struct
from typing import Any

from msgspec import Raw

from pumice.effects.vocabulary import SchedulerEffect
from pumice.journal.records import Told, encode
from pumice.scheduler.cycle.cycle import Plan
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Drop, DropPod, Input, Put

CHUNK = 256 << 10
"""Bytes, about, that are sent together."""
SPARE = 8
"""Chunks that are kept to be used again."""
MESSAGE = Struct("<IBd")
"""The head of a message: its size, kind and time, of the clock that is never set."""
NOTE, PUT_LINE, DROP_LINE, ENGINE, GAP = range(5)
"""An input or a cycle (``records.decode_told``); the lines of a watch, by which a pod came or went; a packed engine for a
snapshot; why the record ends."""
_pack = MESSAGE.pack


class Drawn(Random):
    """A random generator whose next bits are given."""

    def __init__(self, bits: bytes) -> None:
        super().__init__(0)
        self.bits = bits

    def getrandbits(self, k: int, /) -> int:
        return int.from_bytes(self.bits, "big")


class Answers:
    """Counts, in turn, of how often a cycle found that there was time left, and that there was none."""

    def __init__(self) -> None:
        self.runs, self._last = [0], False

    def __call__(self, answer: bool) -> bool:
        if answer is self._last:
            self.runs[-1] += 1
        else:
            self.runs.append(1)
            self._last = answer
        return answer


def messages(came: bytearray) -> Iterator[tuple[int, bytes, float]]:
    """Take the messages that are whole: kind, content and time of each."""
    at = 0
    while len(came) >= at + MESSAGE.size:
        size, kind, now = MESSAGE.unpack_from(came, at)
        end = at + MESSAGE.size + size
        if len(came) < end:
            break
        payload = bytes(memoryview(came)[at + MESSAGE.size : end])
        at = end
        yield kind, payload, now
    del came[:at]


def told_of(effects: Sequence[SchedulerEffect]) -> bytes:
    """Everything that effects say."""
    return encode([(type(effect).__name__, effect) for effect in effects])


class Notes:
    """Notes in turn, handed over to ``send`` in chunks, each written up to its position. ``thin``: the cycles, and what they need
    to be played, are left out."""

    def __init__(self, send: Callable[[BytesIO], None]) -> None:
        self.send = send
        self.thin = False
        self._spare: deque[BytesIO] = deque()
        self._chunk = BytesIO()

    def note(self, found: Input, line: bytes = b"") -> None:
        """Encoded at once, where no ``line`` of the watch tells the same: an engine may go on to write into what it was given."""
        if self.thin and type(found) not in (Put, Drop, DropPod):
            return
        if not line:
            self.put(NOTE, encode(found))
            return
        chunk = self._chunk
        if type(found) is DropPod:
            chunk.write(_pack(len(line), DROP_LINE, 0.0))
        else:
            chunk.write(_pack(len(line), PUT_LINE, found.now))  # type: ignore[attr-defined]
        chunk.write(line)
        if chunk.tell() >= CHUNK:
            self.flush()

    def put(self, kind: int, payload: bytes) -> None:
        chunk = self._chunk
        chunk.write(_pack(len(payload), kind, 0.0))
        chunk.write(payload)
        if chunk.tell() >= CHUNK:
            self.flush()

    def decided(self, now: float, wall: float, bits: bytes, answers: list[int], effects: Sequence[SchedulerEffect]) -> None:
        if not self.thin:
            self.put(NOTE, encode(Told(now, wall, bits, answers, Raw(told_of(effects)))))

    def flush(self) -> None:
        if self._chunk.tell():
            chunk, self._chunk = self._chunk, self._spare.pop() if self._spare else BytesIO()
            self.send(chunk)

    def again(self, chunk: BytesIO) -> None:
        """A chunk was sent; called by another thread."""
        if len(self._spare) < SPARE and chunk.seek(0, SEEK_END) < 2 * CHUNK:  # one with a snapshot is large
            chunk.seek(0)
            self._spare.append(chunk)


class Doorway:
    """``notes`` is None where no journal is kept; then it costs a call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.notes: Notes | None = None

    def note(self, found: Input) -> None:
        """Note what is about to be told to the engine."""
        if self.notes is not None:
            self.notes.note(found)

    def __call__(self, found: Input, line: bytes = b"") -> Any:
        """Tell the engine, and return its answer. ``line``: see ``Notes.note``."""
        if self.notes is not None:
            self.notes.note(found, line)
        return found.apply(self.engine)

    def cycle(self, now: float, rng: Random, *, wall: float | None = None, **bounds: Any) -> Plan:
        """Run a cycle (``Engine.cycle``)."""
        if self.notes is None:
            return self.engine.cycle(now, rng, wall=wall, **bounds)
        bits, answers = rng.getrandbits(128).to_bytes(16, "big"), Answers()
        plan = self.engine.cycle(now, Drawn(bits), wall=wall, heard=answers, **bounds)
        self.notes.decided(now, now if wall is None else wall, bits, answers.runs, plan.effects)
        return plan
