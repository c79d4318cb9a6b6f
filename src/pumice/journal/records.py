"""The records of a journal, and how they lie in its files.

A file is a head, then frames: length, checksum, kind, and a payload that is compressed. Most payloads are blocks of records; one
is the snapshot that the file's records begin with. Pods are told by numbers, their specs and statuses by the number under which
they came first, since thousands are alike.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from pumice.scheduler import inputs
from pumice.wire.objects import Meta, Pod, PodSpec, PodStatus

MAGIC = b"PUMICE-JOURNAL\n"
FORM = 2
HEAD, BLOCK, SNAPSHOT = 0, 1, 2
_FRAME = struct.Struct("<IIB")
LARGEST = {HEAD: 1 << 20, BLOCK: 1 << 28, SNAPSHOT: 1 << 30}
"""Bytes of a payload, as it lies and unpacked: beyond it a file is damaged, whatever its frame says."""
LEVEL = 1
"""Of zlib. Level 6 takes twice the time, and four fifths of the bytes."""


class Head(Struct):
    """The first frame of each file. ``pumice`` is the version that wrote it. ``fresh``: the engine was new, and had the settings
    of a state that follow; else a snapshot is among the frames. Of a ``run`` of a scheduler, which ``began`` at that time of
    day, ``number`` grows by one from file to file."""

    form: int
    pumice: str
    run: str
    began: float
    number: int
    fresh: bool
    scheduler_names: list[str]
    default_queue: str = "default"
    implicit_groups: bool = True
    names_groups: bool = False


# -- records -----------------------------------------------------------------------------------------------------------


class Spec(Struct, array_like=True, tag="S", gc=False):
    """A pod's spec, but for its node, that came for the first time."""

    number: int
    spec: PodSpec


class PhaseOf(Struct, array_like=True, tag="T", gc=False):
    """A pod's status that came for the first time."""

    number: int
    status: PodStatus


class PodCame(Struct, array_like=True, tag="p", gc=False):
    """A pod that came for the first time, or is another one under its number."""

    number: int
    spec: int
    node: str
    status: int
    now: float
    meta: Meta


class PodIs(Struct, array_like=True, tag="q", gc=False):
    """A pod that is known. What is left out is as it was."""

    number: int
    spec: int
    node: str
    status: int
    now: float
    version: str
    annotations: dict[str, str] | None = None


class PodGone(Struct, array_like=True, tag="d", gc=False):
    """A pod that is known is gone."""

    number: int


class PodLeft(Struct, array_like=True, tag="D", gc=False):
    """The same of one that is told otherwise than it was known."""

    pod: Pod


class PodBound(Struct, array_like=True, tag="b", gc=False):
    """The Binding of a pod that is known was accepted."""

    number: int


class Decided(Struct, array_like=True, tag="c", gc=False):
    """A cycle and its decisions.

    ``bits``: what it drew; ``answers``: how often in turn there was time and was none; ``binds``: pods (by number, else by uid)
    and nodes; ``others``: all other effects; ``digest``: of all effects.
    """

    now: float
    wall: float
    bits: bytes
    answers: list[int]
    binds: list[tuple[int | str, str]]
    others: list[tuple[str, Any]]
    digest: bytes


_OTHERS = (
    inputs.Put | inputs.Drop | inputs.ForgetReports | inputs.BeginFile | inputs.Configure | inputs.QueueNamed
    | inputs.Bound | inputs.BindFailed | inputs.Lacking | inputs.Sharded | inputs.HoldBack | inputs.Evicting
    | inputs.EvictionRefused | inputs.GateStays
)  # fmt: skip
Record = Spec | PhaseOf | PodCame | PodIs | PodGone | PodLeft | PodBound | Decided | _OTHERS


class Known(Struct, array_like=True, gc=False):
    """A pod in a snapshot."""

    number: int
    pod: Pod


class Snapshot(Struct):
    """The engine as it was when the file began, and the objects that it knew, by kind."""

    engine: bytes
    objects: list[tuple[str, Any]]
    pods: list[Known]
    conf: inputs.Configure | None = None


_encoder = msgspec.msgpack.Encoder()
encode, encode_into = _encoder.encode, _encoder.encode_into
decode_block = msgspec.msgpack.Decoder(list[Record]).decode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
_decode_head = msgspec.json.Decoder(Head).decode

# -- frames ------------------------------------------------------------------------------------------------------------


def head(value: Head) -> bytes:
    """Return how a file begins."""
    return MAGIC + frame(HEAD, msgspec.json.encode(value))


def frame(kind: int, payload: bytes) -> bytes:
    return framed(kind, zlib.compress(payload, LEVEL))


def framed(kind: int, packed: bytes) -> bytes:
    """Frame a payload that is compressed already."""
    return _FRAME.pack(len(packed), zlib.crc32(packed, kind), kind) + packed


class Frame(NamedTuple):
    kind: int
    payload: bytes


class Fault(Exception):
    """The bytes of a file end, or are damaged, before it does."""


def is_journal(first: bytes) -> bool:
    """Return whether a file begins as a journal's do."""
    return first.startswith(MAGIC)


def frames(content: bytes) -> Iterator[Frame]:
    """Yield the frames of a file. Raises Fault where no whole one follows, after those before it."""
    at = len(MAGIC)
    while at < len(content):
        start = at + _FRAME.size
        if start > len(content):
            raise Fault(f"it is cut at byte {at:,} of {len(content):,}")
        size, check, kind = _FRAME.unpack_from(content, at)
        packed, most = content[start : start + size], LARGEST.get(kind, 0)
        if size > most or (len(packed) == size and zlib.crc32(packed, kind) != check):
            raise Fault(f"it is damaged at byte {at:,} of {len(content):,}")
        if len(packed) < size:
            raise Fault(f"it is cut at byte {at:,} of {len(content):,}")
        unpacking = zlib.decompressobj()
        try:
            payload = unpacking.decompress(packed, most)
        except zlib.error as error:
            raise Fault(f"it is damaged at byte {at:,} of {len(content):,}: {error}") from None
        if not unpacking.eof:
            raise Fault(f"it is damaged at byte {at:,} of {len(content):,}")
        yield Frame(kind, payload)
        at = start + size


def read_head(found: Frame) -> Head:
    """Raises Fault."""
    try:
        return _decode_head(found.payload)
    except msgspec.MsgspecError as error:
        raise Fault(f"its head cannot be read: {error}") from None
