"""A journal that was cut, damaged or written by somebody else is played as far as it is whole, or refused with a sentence."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.property.test_journals import parts, played, recorded

from pumice import __version__
from pumice.adapters.segments import LOCK, SUFFIX, Segments, files_of
from pumice.cli.main import main
from pumice.journal.freezing import Unreadable, thaw
from pumice.journal.playing import Broken, play
from pumice.journal.reading import Part, Segment, parts_of, segment_of
from pumice.journal.records import BLOCK, FORM, Head, encode, frame, framed, frames, head
from pumice.model.errors import BadInput

MANY = int(os.environ.get("PUMICE_HISTORIES", "60")) * 10


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    return recorded(3)


def read(content: bytes) -> Segment | None:
    """None where it is refused with a sentence."""
    try:
        return segment_of("x", content)
    except BadInput:
        return None


def plays(segment: Segment) -> int:
    """The cycles that are played until it is over, or is said to be."""
    cycles = 0
    with contextlib.suppress(Broken):
        for _ in play(Part(segment.head, segment.snapshot, [segment])):
            cycles += 1
    return cycles


def test_of_a_file_that_is_cut_at_any_byte_the_whole_frames_are_used_and_the_cut_is_said(files: list[bytes]) -> None:
    content = files[0]
    whole = segment_of("x", content).blocks
    ends = [len(content)]
    for number in range(len(whole)):
        ends.append(ends[-1] - len(list(_packed(content))[-1 - number]))
    at_end = set(ends)
    for cut in range(len(content)):
        found = read(content[:cut])
        if found is not None:
            assert found.blocks == whole[: len(found.blocks)]
            assert bool(found.fault) is (cut not in at_end), (cut, found.fault)
    found = read(content[: len(content) * 9 // 10])
    assert found is not None
    assert plays(found) > 0


def _packed(content: bytes) -> Iterator[bytes]:
    """The frames of a file as they lie."""
    import struct

    at = content.index(b"\n") + 1
    while at < len(content):
        size, _, _ = struct.unpack_from("<IIB", content, at)
        yield content[at : at + 9 + size]
        at += 9 + size


def test_a_flipped_bit_ends_a_file_before_the_frame_in_which_it_is(files: list[bytes]) -> None:
    rng, content = Random(1), files[0]
    whole = segment_of("x", content).blocks
    for _ in range(MANY):
        at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
        found = read(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
        if found is not None:
            assert found.fault
            assert found.blocks == whole[: len(found.blocks)]


def test_records_of_somebody_else_end_in_a_sentence_and_never_in_a_traceback(files: list[bytes]) -> None:
    """Frames are whole, and what is in them is not what a scheduler writes."""
    rng, used = Random(2), 0
    found = list(frames(files[1]))
    for _ in range(MANY // 15):
        content, broken = head(Head(FORM, __version__, "a", 0.0, 1, False, ["volcano"])), rng.randrange(1, len(found))
        for number, one in enumerate(found[1:], 1):
            payload = bytearray(one.payload)
            if number == broken:
                for _ in range(rng.choice((1, 1, 3, 30))):
                    payload[rng.randrange(len(payload))] = rng.randrange(256)
            content += frame(one.kind, bytes(payload))
        segment = read(content)
        if segment is not None and (segment.snapshot is not None):
            used += plays(segment)
    assert used > 0


CYCLE: list[Any] = ["c", 5.0, 5.0, b"0" * 16, [1], [], [], b""]


@pytest.mark.parametrize("record", [
    [*CYCLE[:2], 1e300, *CYCLE[3:]], [*CYCLE[:2], float("nan"), *CYCLE[3:]], [*CYCLE[:2], -1e9, *CYCLE[3:]],
    ["d", 7], ["q", 7, 7, "n", 7, 1.0, ""], ["put", "Nothing", {}], ["b", 9],
    ["c", 5.0, 5.0, b"", [], [[9, "\x1b[2J"]], [], b"x"],
])  # fmt: skip
def test_a_record_of_what_cannot_be_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: list[Any]
) -> None:
    block = frame(BLOCK, msgspec.msgpack.encode([record, CYCLE]))
    content = head(Head(FORM, __version__, "a", 0.0, 0, True, ["volcano"])) + block
    (tmp_path / f"x{SUFFIX}").write_bytes(content)
    with pytest.raises(SystemExit) as end:
        main(["replay", str(tmp_path)])
    said = capsys.readouterr()
    assert end.value.code == 1
    assert "\x1b" not in said.out + said.err
    assert "Traceback" not in said.err


def test_records_nested_beyond_measure_and_payloads_that_unpack_without_end_are_damage() -> None:
    first = head(Head(FORM, __version__, "a", 0.0, 0, True, ["volcano"]))
    deep = read(first + frame(BLOCK, b"\x91\x93\xa3put\xa1x" + b"\x91" * 100_000 + b"\xc0"))
    assert deep is not None
    assert "cannot be read" in deep.fault
    bomb = read(first + frame(BLOCK, bytes(300 << 20)))
    assert bomb is not None
    assert "damaged" in bomb.fault
    assert read(first + framed(BLOCK, b"no zlib")) is not None


class Calls:
    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what


def _hostile() -> dict[str, bytes]:
    from fractions import Fraction

    from pumice.wire.times import stamp

    fill = np.empty(0).__reduce__()[0]
    build = b"\x80\x04cpumice.scheduler.engine\nEngine\nN}X\x05\x00\x00\x00cycleK\x01s\x86b."
    return {
        "an array whose bytes are taken for pointers":
            pickle.dumps(Calls(np.ndarray, ((1,), np.dtype("O"), b"12345678")), 4),
        "the same by its state":
            pickle.dumps(Calls(fill, (np.ndarray, (0,), b"b"), (1, (1,), np.dtype("O"), False, b"12345678")), 4),
        "a structure that hides them": pickle.dumps(np.zeros(2, dtype=[("a", "O")]), 4),
        "a function": pickle.dumps(Calls(stamp, (5,)), 4),
        "a command": pickle.dumps(Calls(os.system, ("true",)), 4),
        "a number without end": pickle.dumps(Calls(Fraction, ("1e999999999",)), 4),
        "a list without end": pickle.dumps(Calls(list, (range(10**10),)), 4),
        "a method in a class's place": build,
        "no engine": pickle.dumps([1]),
        "nothing": b"",
    }  # fmt: skip


@pytest.mark.parametrize("what", sorted(_hostile()))
def test_a_snapshot_of_somebody_else_calls_nothing_and_changes_nothing(what: str) -> None:
    with pytest.raises(Unreadable):
        thaw(_hostile()[what])


def test_a_second_writer_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    first, second = Segments(tmp_path / "journal", 1000), Segments(tmp_path / "journal", 5)
    first.begin("a", b"12345")
    with pytest.raises(OSError, match="another scheduler"):
        second.begin("b", b"1")
    first.append(b"6")
    first.end()
    second.begin("b", b"1")
    assert [path.name for path in files_of(tmp_path / "journal")] == [f"b{SUFFIX}"], "the bound of the second is smaller"


def test_files_and_their_folder_are_their_owners_and_links_are_none_of_the_journal(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("x" * 100)
    folder = tmp_path / "journal"
    segments = Segments(folder, 50)
    segments.begin("b", b"12345")
    (folder / f"a{SUFFIX}").symlink_to(victim)
    (folder / f"0{SUFFIX}").mkdir()
    os.mkfifo(folder / f"1{SUFFIX}")
    segments.append(b"6")
    assert {path.name for path in folder.iterdir()} == {LOCK, f"a{SUFFIX}", f"0{SUFFIX}", f"1{SUFFIX}", f"b{SUFFIX}"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"b{SUFFIX}").stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="more than the 50"):
        segments.append(b"7" * 50)
    assert victim.read_text() == "x" * 100


WRITER = """
import sys
from random import Random
from pathlib import Path
from tests.property.test_journals import RecordedDoor, head_of
from tests.property.history.runner import OPEN, at_once, draw
from pumice.adapters.segments import Segments

segments = Segments(Path(sys.argv[1]), 1 << 30)
class Files(list):
    def append(self, content):
        segments.begin(f"{len(self):06}", content)
        super().append(content)
    def __setitem__(self, at, content):
        segments.append(content[len(self[at]):])
        super().__setitem__(at, content)
        print(len(self), flush=True)
files = Files()
def door(conf, rng):
    found = RecordedDoor.__new__(RecordedDoor)
    found.files = files
    found.__init__(conf, rng)
    return found
for seed in range(100):
    draw(seed, door, without=OPEN, drive=at_once)
"""


def _write(folder: Path, lines: int = 10**9, limit: int = 0) -> None:
    """Play histories in a process of their own that writes their journal, and kill it after so many blocks."""

    def bounds() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=bounds, cwd=Path.cwd()) as child:
        assert child.stdout is not None
        for number, _ in enumerate(child.stdout, 1):
            if number >= lines:
                child.send_signal(signal.SIGKILL)
                break


@pytest.mark.parametrize("blocks", [3, 40])
def test_of_a_process_that_was_killed_while_it_wrote_all_whole_cycles_are_played(tmp_path: Path, blocks: int) -> None:
    _write(tmp_path, blocks)
    segments = [segment_of(path.name, path.read_bytes()) for path in sorted(files_of(tmp_path))]
    assert sum(len(segment.blocks) for segment in segments) >= blocks
    found, remarks = parts_of(iter(segments))
    assert sum(played(part) for part in found) > blocks // 2  # in some blocks there was nothing to decide
    assert all("what is before is used" in remark for remark in remarks)


def test_of_a_file_that_met_a_full_disk_in_the_middle_of_a_write_the_cycles_before_are_played(tmp_path: Path) -> None:
    _write(tmp_path, limit=9000)
    contents = [path.read_bytes() for path in sorted(files_of(tmp_path))]
    assert max(map(len, contents)) <= 9000
    found, remarks = parts_of(segment_of(f"{number}", content) for number, content in enumerate(contents))
    assert sum(played(part) for part in found) > 0
    assert any("cut at byte" in remark for remark in remarks)


def replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["replay", str(folder)])
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def _folder(at: Path, contents: list[bytes]) -> Path:
    for number, content in enumerate(contents):
        (at / f"{number:06}{SUFFIX}").write_bytes(content)
    return at


@pytest.mark.parametrize("left", [0, 7, 16, 40], ids=lambda left: f"{left} bytes")
def test_of_a_folder_whose_first_file_was_cut_before_its_head_ended_the_others_are_played_and_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: list[bytes], left: int
) -> None:
    """So it is after a kill or a full disk at the moment when a file begins."""
    whole = replayed(_folder(tmp_path, files), capsys)
    code, out, err = replayed(_folder(tmp_path, [files[0][:left], *files[1:]]), capsys)
    assert (whole[0], whole[2]) == (0, "")
    assert code == 0
    assert "every decision is the same, bit for bit" in out
    assert f"000000{SUFFIX}: it is cut " in err
    assert err.endswith("; left out\n")
    assert len(err.splitlines()) == 1


def test_of_a_folder_with_files_of_another_version_those_of_this_one_are_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: list[bytes]
) -> None:
    """So it is after an upgrade."""
    older = head(Head(FORM, "0.0.9", "b", -1.0, 0, True, ["volcano"]))
    code, out, err = replayed(_folder(tmp_path, [*files, older]), capsys)
    assert code == 0
    assert "bit for bit" in out
    assert "written by pumice 0.0.9" in err
    assert err.endswith("; left out\n")


def test_a_folder_of_nothing_but_cut_files_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = replayed(_folder(tmp_path, [b"", b"PUMICE"]), capsys)
    assert code == 2
    assert "it is cut before its head" in err
    assert len(err.splitlines()) == 1


def test_whole_files_are_all_played(files: list[bytes]) -> None:
    assert sum(played(part) for part in parts(files)) > 20


def test_an_encoder_of_records_and_its_decoder_agree() -> None:
    assert list(frames(head(Head(FORM, __version__, "a", 0.0, 0, True, [])) + frame(BLOCK, encode([]))))[1].payload == b"\x90"
