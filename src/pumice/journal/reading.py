"""Read the files of a journal: what is whole is used, and what is not is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from pumice import __version__
from pumice.journal.records import (
    BLOCK,
    FORM,
    HEAD,
    MAGIC,
    SNAPSHOT,
    Fault,
    Head,
    Record,
    Snapshot,
    decode_block,
    decode_snapshot,
    frames,
    is_journal,
    read_head,
)
from pumice.model.errors import BadInput


@dataclass(slots=True)
class Segment:
    """One file: what of it is whole."""

    name: str
    head: Head
    blocks: list[bytes] = field(default_factory=list)
    snapshot: Snapshot | None = None
    fault: str = ""


@dataclass(slots=True)
class Part:
    """Files that follow one upon another without a gap, from a new engine or a snapshot on. ``gap`` says why it ends where more
    files follow."""

    head: Head
    snapshot: Snapshot | None
    segments: list[Segment]
    fault: str = ""

    @property
    def records(self) -> Iterator[Record]:
        for segment in self.segments:
            for block in segment.blocks:
                yield from decode_block(block)


def segment_of(name: str, content: bytes) -> Segment:
    """Read one file. Raises BadInput where it is no journal, or one of another version."""
    if not is_journal(content):
        cut = MAGIC.startswith(content)
        raise BadInput(f"{name}: it is cut before its head" if cut else f"{name}: no journal of a scheduler")
    found: Segment | None = None
    try:
        for frame in frames(content):
            if frame.kind == HEAD:
                if found is not None:
                    raise Fault("it has two heads")
                found = Segment(name, _checked(name, read_head(frame)))
            elif found is None:
                raise Fault("it does not begin with a head")
            elif frame.kind == BLOCK:
                decode_block(frame.payload)
                found.blocks.append(frame.payload)
            elif frame.kind == SNAPSHOT:
                found.snapshot = decode_snapshot(frame.payload)
    except (Fault, msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
        said = str(error) if isinstance(error, Fault) else f"a record cannot be read: {error or type(error).__name__}"
        if found is None:
            raise BadInput(f"{name}: {said}") from None
        found.fault = said
    if found is None:
        raise BadInput(f"{name}: it is cut before its head ends")
    return found


def whole_of(files: Iterable[tuple[str, bytes]]) -> tuple[list[Segment], list[str]]:
    """Read several files, and say which are left out: one that was cut before its head ended, as a kill or a full disk leaves it,
    or one of another version. Raises BadInput where none is left, with what is said of the first."""
    found: list[Segment] = []
    refused: list[BadInput] = []
    for name, content in files:
        try:
            found.append(segment_of(name, content))
        except BadInput as error:
            refused.append(error)
    if refused and not found:
        raise refused[0]
    return found, [f"{error}; left out" for error in refused]


def _checked(name: str, head: Head) -> Head:
    if head.form != FORM:
        raise BadInput(f"{name}: written in form {head.form}, this pumice reads form {FORM}; use the one that wrote it")
    if head.pumice != __version__:
        raise BadInput(f"{name}: written by pumice {head.pumice}, this is {__version__}; use the one that wrote it, for another "
                       f"one may decide otherwise")  # fmt: skip
    return head


def _follows(head: Head, before: Head) -> bool:
    return (head.run, head.began, head.number) == (before.run, before.began, before.number + 1)


def parts_of(segments: Iterable[Segment]) -> tuple[list[Part], list[str]]:
    """Put files together to what can be played from its beginning, and say what cannot."""
    parts: list[Part] = []
    remarks: list[str] = []
    last: Segment | None = None
    for segment in sorted(segments, key=lambda found: (found.head.began, found.head.run, found.head.number)):
        if segment.fault:
            remarks.append(f"{segment.name}: {segment.fault}; what is before is used")
        if last is not None and not last.fault and not segment.head.fresh and _follows(segment.head, last.head):
            parts[-1].segments.append(segment)
        elif segment.head.fresh or segment.snapshot is not None:
            parts.append(Part(segment.head, segment.snapshot, [segment]))
        else:
            remarks.append(f"{segment.name}: it begins with no snapshot, and the file before it is not there; left out")
            last = None
            continue
        last = segment
    return parts, remarks
