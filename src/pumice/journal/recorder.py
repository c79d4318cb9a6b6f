"""The doorway through which everything goes into an engine, and which notes it where somebody keeps a journal."""

from __future__ import annotations

from random import Random
from typing import Any

from pumice.journal.folding import Folder
from pumice.scheduler.cycle.cycle import Plan
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import Input


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


class Doorway:
    """``folder`` is None where no journal is kept; then it costs a call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.folder: Folder | None = None

    def note(self, found: Input) -> None:
        """Note what is about to be told to the engine."""
        if self.folder is not None:
            self.folder.note(found)

    def __call__(self, found: Input) -> Any:
        """Tell the engine, and return its answer."""
        if self.folder is not None:
            self.folder.note(found)
        return found.apply(self.engine)

    def cycle(self, now: float, rng: Random, *, wall: float | None = None, **bounds: Any) -> Plan:
        """Run a cycle (``Engine.cycle``)."""
        if self.folder is None:
            return self.engine.cycle(now, rng, wall=wall, **bounds)
        bits, answers = rng.getrandbits(128).to_bytes(16, "big"), Answers()
        plan = self.engine.cycle(now, Drawn(bits), wall=wall, heard=answers, **bounds)
        self.folder.decided(now, now if wall is None else wall, bits, answers.runs, plan.effects)
        return plan
