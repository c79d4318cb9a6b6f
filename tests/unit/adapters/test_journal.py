"""The journal of a cutter on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pumice.adapters import journal as file
from pumice.adapters.journal import FileJournal
from pumice.model.errors import Unavailable
from pumice.ports.slices import Entry, Phase, Place

MADE = Entry(Place("GPU-a", "2g.10gb", 4), "uid-1", Phase.MADE, "MIG-1")
MAKING = Entry(Place("GPU-a", "1g.5gb", 6), "uid-2", Phase.MAKING, was="MIG-2")


def test_what_was_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    FileJournal(tmp_path / "vgpu" / "mig.json").write([MADE, MAKING])
    assert FileJournal(tmp_path / "vgpu" / "mig.json").read() == (MADE, MAKING)
    assert [path.name for path in (tmp_path / "vgpu").iterdir()] == ["mig.json"]


def test_without_a_file_nothing_was_intended(tmp_path: Path) -> None:
    assert FileJournal(tmp_path / "mig.json").read() == ()


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}', '{"version": 9, "slices": []}', '{"version": 1, "slices": [3]}'])
def test_a_damaged_journal_claims_nothing_and_is_told_of(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mig.json").write_text(text)
    assert FileJournal(tmp_path / "mig.json").read() == ()
    assert "somebody else's" in caplog.text


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = FileJournal(tmp_path / "mig.json")
    journal.write([MADE])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file.os, "fsync", full)
    with pytest.raises(Unavailable, match="No space left"):
        journal.write([])
    monkeypatch.undo()
    assert journal.read() == (MADE,)
    assert [path.name for path in tmp_path.iterdir()] == ["mig.json"]


def test_two_cutters_of_one_machine_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "mig.json"
    with FileJournal(path).alone(), pytest.raises(Unavailable, match="somebody else has cut"), FileJournal(path, 0.05).alone():
        pass
    order: list[str] = []

    def other() -> None:
        with FileJournal(path, 60.0).alone():
            order.append("second")

    with FileJournal(path).alone():
        thread = threading.Thread(target=other)
        thread.start()
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]


@pytest.mark.parametrize("lies", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_cannot_be_read_now_is_not_taken_for_nothing(tmp_path: Path, lies: Callable[[Path], None]) -> None:
    """Rewriting the journal would lose the owners of slices. A FIFO blocks nobody, either."""
    lies(tmp_path / "mig.json")
    with pytest.raises(Unavailable, match=r"cannot read .*mig\.json"):
        FileJournal(tmp_path / "mig.json").read()


def test_a_damaged_journal_is_told_of_once_and_again_where_it_is_damaged_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = FileJournal(tmp_path / "mig.json")
    for text in ("{", "{", "[", "["):
        (tmp_path / "mig.json").write_text(text)
        journal.read()
    assert caplog.text.count("somebody else's") == 2
