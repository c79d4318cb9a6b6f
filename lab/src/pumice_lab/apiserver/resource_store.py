"""The storage's state in memory: objects at their revision, in key order, and the recent events on them."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Json = dict[str, Any]
Change = Literal["ADDED", "MODIFIED", "DELETED"]
Index = tuple[Mapping[str, str], Mapping[str, str]]
"""Labels, and the fields that can be selected on."""
Indexer = Callable[[str, Json], Index]

OBJECT_LIMIT = 2 * 1024 * 1024
"""Bytes of one: etcd takes requests of 1.5 MiB, in which a Secret's bytes are not base64."""
NAMESPACE_LIMIT = 512 * 1024 * 1024
"""Bytes of all objects of a namespace, which are kept in memory: no more is made there, and all others go on."""
_decode = msgspec.json.Decoder().decode


class Stored:
    """One object at one revision: its JSON, and labels and selectable fields for selectors (made at first use)."""

    __slots__ = ("_index", "_indexer", "data", "name", "namespace", "resource", "revision")

    def __init__(self, resource: str, namespace: str, name: str, revision: int, data: bytes, indexer: Indexer) -> None:
        self.resource, self.namespace, self.name = resource, namespace, name
        self.revision, self.data = revision, data
        self._indexer = indexer
        self._index: Index | None = None

    def value(self) -> Json:
        """A fresh copy of the object, free to change."""
        return _decode(self.data)  # type: ignore[no-any-return]

    def told_at(self, revision: int) -> Stored:
        """The same, at the revision of what happened to it."""
        value = self.value()
        value["metadata"]["resourceVersion"] = str(revision)
        return Stored(self.resource, self.namespace, self.name, revision, msgspec.json.encode(value), self._indexer)

    @property
    def index(self) -> Index:
        if self._index is None:
            self._index = self._indexer(self.resource, self.value())
        return self._index


@dataclass(slots=True)
class StoreEvent:
    """A write as watchers see it. ``previous`` is what the key held before; a deletion's object is its last state."""

    change: Change
    revision: int
    stored: Stored
    previous: Stored | None
    line: bytes | None = field(default=None, repr=False)


class ResourceStore:
    """All objects of one resource, in key order, and the recent events on them."""

    __slots__ = ("events", "first", "held", "keys", "objects", "ordered", "waiters")

    def __init__(self, held: Counter[str] | None = None) -> None:
        """``held``: the bytes of each namespace, over all resources."""
        self.held = Counter() if held is None else held
        self.objects: dict[tuple[str, str], Stored] = {}
        self.keys: list[tuple[str, str]] = []
        self.ordered: list[Stored] = []  # as the keys
        self.events: list[StoreEvent] = []
        self.first = 0  # events before this index are forgotten
        self.waiters: set[asyncio.Future[None]] = set()

    def set(self, stored: Stored) -> None:
        key = (stored.namespace, stored.name)
        at = bisect_left(self.keys, key)
        self.held[stored.namespace] += len(stored.data)
        if key in self.objects:
            self.held[stored.namespace] -= len(self.objects[key].data)
            self.ordered[at] = stored
        else:
            self.keys.insert(at, key)
            self.ordered.insert(at, stored)
        self.objects[key] = stored

    def remove(self, key: tuple[str, str]) -> None:
        self.held[key[0]] -= len(self.objects.pop(key).data)
        at = bisect_left(self.keys, key)
        del self.keys[at], self.ordered[at]

    def since(self, revision: int) -> list[StoreEvent]:
        """Return the events after ``revision``, as far as it is remembered."""
        start = bisect_right(self.events, revision, lo=self.first, key=lambda event: event.revision)
        return self.events[start:]

    def forget_oldest(self) -> None:
        self.events[self.first] = None  # type: ignore[call-overload] # free the bytes now, the slot later
        self.first += 1
        if self.first > 512 and self.first * 2 > len(self.events):
            del self.events[: self.first]
            self.first = 0
