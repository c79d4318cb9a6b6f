"""The doorway through which everything goes into an engine, and the notes of it, where somebody keeps a journal.

Records are made of what is told at once (``folding``), while it is still in the processor's caches. To put it off costs the loop
as much: what is kept meanwhile has the next objects read into cold memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pumice.effects.vocabulary import SchedulerEffect
from pumice.journal.folding import Folder
from pumice.scheduler.cycle.cycle import Plan
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Drop, DropPod, Input, Put

BLOCK_SIZE = 1 << 20
"""Bytes of records that wait for no company."""


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


class Notes:
    """Makes records of what it is told, in turn, and hands them over to ``send`` in blocks; ``lost`` is told why there are none.
    ``thin``: the cycles, and what they need to be played, are left out, and nothing is handed over."""

    def __init__(self, send: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        self.send, self.lost = send, lost
        self.thin = False
        self.folder = Folder()

    def note(self, found: Input) -> None:
        if self.thin and type(found) not in (Put, Drop, DropPod):
            return
        try:
            self.folder.fold(found)
        except (TypeError, ValueError, OverflowError) as error:
            self.lost(f"what cannot be encoded: {type(error).__name__}: {error}")
        if self.folder.size > BLOCK_SIZE:
            self.flush()

    def decided(self, now: float, wall: float, bits: bytes, answers: list[int], effects: Sequence[SchedulerEffect]) -> None:
        if not self.thin:
            self.folder.decided(now, wall, bits, answers, effects)

    def flush(self) -> None:
        """Hand over what was noted so far."""
        if self.thin:
            self.folder.turn()
        elif self.folder.size:
            self.send(self.folder.take())


class Doorway:
    """The one entry to the engine, which the journal hears. ``notes`` is None where no journal is kept; then it costs a call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.notes: Notes | None = None

    def note(self, found: Input) -> None:
        """Note what is about to be told to the engine."""
        if self.notes is not None:
            self.notes.note(found)

    def __call__(self, found: Input) -> Any:
        """Tell the engine, and return its answer."""
        if self.notes is not None:
            self.notes.note(found)
        return found.apply(self.engine)

    def cycle(self, now: float, rng: Random, *, wall: float | None = None, **bounds: Any) -> Plan:
        """Run a cycle (``Engine.cycle``)."""
        if self.notes is None:
            return self.engine.cycle(now, rng, wall=wall, **bounds)
        bits, answers = rng.getrandbits(128).to_bytes(16, "big"), Answers()
        plan = self.engine.cycle(now, Drawn(bits), wall=wall, heard=answers, **bounds)
        self.notes.decided(now, now if wall is None else wall, bits, answers.runs, plan.effects)
        return plan
