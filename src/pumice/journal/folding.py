"""Inputs and decisions folded into records, and unfolded again.

The folder remembers each pod as it was last told: what has not changed is not written again. It remembers the other objects,
too, for the snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from pumice.effects.vocabulary import Bind, SchedulerEffect
from pumice.journal.records import (
    Decided,
    Known,
    PhaseOf,
    PodBound,
    PodCame,
    PodGone,
    PodIs,
    PodLeft,
    Record,
    Snapshot,
    Spec,
    encode,
    encode_into,
)
from pumice.scheduler.inputs import KINDS, Bound, Configure, Drop, DropPod, Input, Put, PutPod
from pumice.wire.kubernetes import LAST_APPLIED
from pumice.wire.objects import Meta, Pod, PodSpec, PodStatus, convert, is_read

MOST_WORDS = 20_000
"""Specs and statuses that are remembered at a time, to be told by number."""
_rest = attrgetter("name", "namespace", "generation", "labels", "creation_timestamp", "deletion_timestamp",
                   "deletion_grace_period_seconds", "owner_references", "finalizers")  # fmt: skip
"""Of a pod's metadata, all but uid, version and annotations."""


class Seen(NamedTuple):
    """A pod as it was last told."""

    number: int
    rest: tuple[Any, ...]
    annotations: dict[str, str]
    meta: Meta
    scheduler: str
    spec: bytes
    node: str
    status: bytes


_NONE = encode([])
_BLOCK, _ARRAY = Struct(">BI"), 0xDD
"""The beginning of a list of so many values in MessagePack."""


def digest(told: bytes) -> bytes:
    """Of everything that effects say (``told_of``)."""
    return blake2b(told, digest_size=8).digest() if told != _NONE else b""


def told_of(effects: Sequence[SchedulerEffect]) -> bytes:
    """Everything that effects say."""
    return encode([(type(effect).__name__, effect) for effect in effects])


class Word(NamedTuple):
    """A spec or a status that has a number."""

    number: int
    blob: bytes


class Folder:
    """Makes records, and remembers what they speak of."""

    def __init__(self) -> None:
        self._block = bytearray(_BLOCK.size)
        """The records since they were last taken, as they are encoded, and before them the place of their number."""
        self._count = 0
        self.conf: Configure | None = None
        self._pods: dict[str, Seen] = {}
        self._objects: dict[tuple[str, str], bytes] = {}
        self._numbers = 0
        self._specs: dict[bytes, Word] = {}
        self._statuses: dict[bytes, Word] = {}
        self._words = 0
        self._read: set[str] = set()
        """Annotations that were found to be read."""

    def take(self) -> bytes:
        """Return the records so far as a block, and forget them."""
        _BLOCK.pack_into(self._block, 0, _ARRAY, self._count)
        block = bytes(self._block)
        self._forget()
        return block

    @property
    def size(self) -> int:
        """Bytes of the records so far."""
        return len(self._block) - _BLOCK.size

    def _add(self, record: Any) -> None:
        encode_into(record, self._block, -1)
        self._count += 1

    def _forget(self) -> None:
        del self._block[_BLOCK.size :]
        self._count = 0

    def turn(self) -> None:
        """A new file begins: nothing that was written before counts in it but for its snapshot."""
        self._forget()
        self._specs.clear()
        self._statuses.clear()

    def snapshot(self, engine: bytes) -> Snapshot:
        """Return what a file begins with, beside an engine."""
        objects = [(kind, Raw(blob)) for (kind, _), blob in self._objects.items()]
        pods = [Known(seen.number, Raw(encode(_pod_of(seen)))) for seen in self._pods.values()]  # type: ignore[arg-type]
        return Snapshot(engine, objects, pods, self.conf)

    # -- inputs -------------------------------------------------------------------------------------------------

    def fold(self, found: Any) -> None:
        """Make records of an input."""
        kind = type(found)
        if kind is PutPod:
            self._put_pod(found.pod, found.now)
        elif kind is DropPod:
            self._drop_pod(found.pod)
        elif kind is Bound and (seen := self._pods.get(found.uid)):
            self._add(PodBound(seen.number))
        elif kind is Put or kind is Drop:
            self._object(found)
        else:
            if kind is Configure:
                self.conf = found
            self._add(found)

    def _put_pod(self, pod: Pod, now: float) -> None:
        meta, spec = pod.metadata, pod.spec
        annotations = self._read_of(meta.annotations)
        node = spec.node_name  # it is the one word in which pods of a kind differ
        blob, status_blob = encode(replace(spec, node_name="") if node else spec), encode(pod.status)
        word = self._specs.get(blob) or self._word(Spec, self._specs, blob)
        status = self._statuses.get(status_blob) or self._word(PhaseOf, self._statuses, status_blob)
        rest, seen = _rest(meta), self._pods.get(meta.uid)
        if seen is not None and seen.rest == rest:
            number = seen.number
            news = None if annotations == seen.annotations else annotations
            self._add(PodIs(number, word.number, node, status.number, now, meta.resource_version, news))
        else:
            if seen is None:
                self._numbers += 1
            number = self._numbers if seen is None else seen.number
            told = meta if annotations is meta.annotations else replace(meta, annotations=annotations)
            self._add(PodCame(number, word.number, node, status.number, now, told))
        self._pods[meta.uid] = Seen(number, rest, annotations, meta, spec.scheduler_name, word.blob, node, status.blob)

    def _drop_pod(self, pod: Pod) -> None:
        meta, scheduler = pod.metadata, pod.spec.scheduler_name
        seen = self._pods.get(meta.uid)
        annotations = self._read_of(meta.annotations)
        if seen is not None and (seen.meta.name, seen.meta.namespace) == (meta.name, meta.namespace):
            del self._pods[meta.uid]
            if seen.scheduler == scheduler and seen.annotations == annotations:
                self._add(PodGone(seen.number))
                return
        told = replace(meta, annotations=annotations)
        self._add(PodLeft(Pod(told, PodSpec(scheduler_name=scheduler))))

    def _read_of(self, annotations: dict[str, str]) -> dict[str, str]:
        """Return those annotations that are read by anybody."""
        if not annotations or annotations.keys() <= self._read:
            return annotations
        kept = {key: value for key, value in annotations.items() if is_read(key)}
        if len(self._read) < MOST_WORDS:
            self._read.update(kept)
        return kept

    def _word(self, kind: type[Spec] | type[PhaseOf], words: dict[bytes, Word], blob: bytes) -> Word:
        if len(words) >= MOST_WORDS:
            words.clear()
        self._words += 1
        words[blob] = word = Word(self._words, blob)
        self._add(kind(word.number, Raw(blob)))  # type: ignore[arg-type]
        return word

    def _object(self, found: Put | Drop) -> None:
        obj = msgspec.msgpack.decode(encode(found.obj))
        meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
        if notes := meta.get("annotations"):
            meta["annotations"] = {key: value for key, value in notes.items() if key != LAST_APPLIED}
        blob = encode({**obj, "metadata": meta})
        name = f"{meta.get('namespace')}/{meta.get('name')}"
        if isinstance(found, Put):
            self._objects[found.kind, name] = blob
        else:
            self._objects.pop((found.kind, name), None)
        self._add(type(found)(found.kind, Raw(blob)))

    # -- cycles -------------------------------------------------------------------------------------------------

    def decided(self, now: float, wall: float, bits: bytes, answers: list[int], effects: Sequence[SchedulerEffect]) -> None:
        """Make a record of a cycle."""
        binds, others, pods = list[tuple[int | str, str]](), list[tuple[str, SchedulerEffect]](), self._pods
        for effect in effects:
            if type(effect) is Bind:
                seen = pods.get(effect.uid)
                binds.append((effect.uid if seen is None else seen.number, effect.node))
            else:
                others.append((type(effect).__name__, effect))
        self._add(Decided(now, wall, bits, answers, binds, others, digest(told_of(effects))))


def _pod_of(seen: Seen) -> Pod:
    spec = msgspec.msgpack.decode(seen.spec, type=PodSpec)
    spec.node_name = seen.node
    return Pod(replace(seen.meta, annotations=seen.annotations), spec, msgspec.msgpack.decode(seen.status, type=PodStatus))


# -- and back ----------------------------------------------------------------------------------------------------------


class Unfolder:
    """Gives back the inputs and decisions of a file, whose snapshot it begins with. Raises KeyError and ValueError where a
    record speaks of what no other has told."""

    def __init__(self, pods: Iterable[Known] = ()) -> None:
        self._specs: dict[int, PodSpec] = {}
        self._statuses: dict[int, PodStatus] = {}
        self._pods = {known.number: known.pod for known in pods}

    def unfold(self, records: Iterable[Record]) -> Iterator[Input | Decided]:
        for record in records:
            match record:
                case Spec():
                    self._specs[record.number] = record.spec
                case PhaseOf():
                    self._statuses[record.number] = record.status
                case PodCame():
                    yield self._put(record, record.meta)
                case PodIs():
                    meta = self._pods[record.number].metadata
                    notes = meta.annotations if record.annotations is None else record.annotations
                    yield self._put(record, replace(meta, resource_version=record.version, annotations=notes))
                case PodGone():
                    yield DropPod(self._pods.pop(record.number))
                case PodLeft():
                    yield DropPod(record.pod)
                case PodBound():
                    yield Bound(self._pods[record.number].metadata.uid)
                case Decided():
                    binds = [(self._pods[who].metadata.uid if isinstance(who, int) else who, node) for who, node in record.binds]
                    yield replace(record, binds=binds)
                case Put() | Drop():
                    slice_ = KINDS[record.kind].slice_
                    yield type(record)(record.kind, record.obj if slice_ is None else convert(slice_, record.obj))
                case _:
                    yield record

    def _put(self, record: PodCame | PodIs, meta: Meta) -> PutPod:
        spec = replace(self._specs[record.spec], node_name=record.node)
        pod = self._pods[record.number] = Pod(meta, spec, self._statuses[record.status])
        return PutPod(pod, record.now)
