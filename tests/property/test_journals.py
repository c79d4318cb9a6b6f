"""What a journal keeps of any history is played again bit for bit, from the beginning and from a snapshot amid it."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from tests.property.history.engine_door import Ears, EngineDoor
from tests.property.history.runner import CONFS, OPEN, at_once, draw

from pumice import __version__
from pumice.journal.freezing import freeze
from pumice.journal.playing import play
from pumice.journal.reading import Part, parts_of, segment_of
from pumice.journal.recorder import Notes
from pumice.journal.records import BLOCK, FORM, SNAPSHOT, Head, encode, frame, head
from pumice.scheduler.inputs import BeginFile, Configure

MANY = int(os.environ.get("PUMICE_HISTORIES", "60"))


def head_of(number: int, fresh: bool) -> bytes:
    return head(Head(FORM, __version__, "a", 0.0, number, fresh, ["volcano"]))


class RecordedDoor(EngineDoor):
    """A history whose scheduler keeps a journal; after so many cycles a block is written, or a new file begins. ``files``
    are those of all doors."""

    with_claims = True
    turn_after, block_after = 7, 3
    files: list[bytes]

    def make(self) -> Ears:
        ears = super().make()
        ears.enter.notes = Notes(self._keep, pytest.fail)
        ears.enter.note(Configure(self.conf, "test", False, None))
        self.cycles = 0
        self.files.append(head_of(len(self.files), True))
        return ears

    def _keep(self, block: bytes) -> None:
        self.files[-1] += frame(BLOCK, block)

    def _cycle(self) -> None:
        super()._cycle()
        notes = self.enter.notes
        assert notes is not None
        self.cycles += 1
        if self.cycles % self.block_after == 0:
            notes.flush()
        if self.cycles % self.turn_after == 0:
            notes.flush()
            notes.folder.turn()
            self.enter(BeginFile())
            snapshot = encode(notes.folder.snapshot(freeze(self.engine)))
            self.files.append(head_of(len(self.files), False) + frame(SNAPSHOT, snapshot))


def recorded(seed: int, conf: str = "") -> list[bytes]:
    files: list[bytes] = []

    def door(conf: str, rng: Random) -> Any:
        found = RecordedDoor.__new__(RecordedDoor)
        found.files = files
        found.__init__(conf, rng)  # type: ignore[misc]
        return found

    history = draw(seed, door, without=OPEN, drive=at_once, conf=conf)
    assert not history.complaints, history.complaints
    return files


def parts(files: list[bytes]) -> list[Part]:
    found, remarks = parts_of(segment_of(f"{number}", content) for number, content in enumerate(files))
    assert not remarks
    return found


def played(part: Part) -> int:
    cycles = 0
    for one in play(part):
        assert not one.differs, one.differs
        cycles += 1
    return cycles


@pytest.mark.parametrize("conf", sorted(CONFS))
def test_any_history_is_played_again_bit_for_bit(conf: str) -> None:
    cycles = resumed = 0
    for seed in range(max(1, MANY // len(CONFS))):
        files = recorded(seed, conf)
        for part in parts(files):
            cycles += played(part)
        for number, content in enumerate(files):  # and from each snapshot alone
            segment = segment_of(f"{number}", content)
            if segment.snapshot is not None:
                resumed += played(Part(segment.head, segment.snapshot, [segment]))
    assert cycles > resumed > 0
