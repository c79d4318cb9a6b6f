"""Objects on disk and in memory, under one revision that only grows.

SQLite keeps one append-only log: a row per write, numbered by the revision. The current state is the newest row of each
key; older rows are the history that watches and continued lists read, until compaction removes them. A restart therefore
finds objects, revision and history as they were. Journal mode WAL with synchronous=NORMAL: an acknowledged write survives
the death of the process (kill -9), a power cut may lose the last moments.

Writes are staged in memory at once and reach the disk together at the end of the event loop's turn (one transaction for
all of them). ``durable`` waits for that; watchers hear of a write only after it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from pumice.ports.clock import Clock
from pumice.wire.times import seconds
from pumice_lab.apiserver.disk import Disk, Row
from pumice_lab.apiserver.resource_store import (
    NAMESPACE_LIMIT,
    OBJECT_LIMIT,
    Change,
    Index,
    Indexer,
    Json,
    ResourceStore,
    Stored,
    StoreEvent,
)

_encode = msgspec.json.Encoder().encode


class Gone(Exception):
    """The revision asked for is no longer (or not yet) in the history."""


class Stale(Exception):
    """The object is not at the revision that the writer saw."""


class TooLarge(Exception):
    """The object is larger than any may be."""


class Storage:
    """The log and the state that it amounts to. ``window`` bounds the history, in events and in bytes."""

    def __init__(self, path: Path | str, window: int = 20_000, window_bytes: int = 24 << 20) -> None:
        self._disk = Disk(path)
        self._window, self._window_bytes = window, window_bytes
        self._held, self.namespace_limit = Counter[str](), NAMESPACE_LIMIT
        self._stores: dict[str, ResourceStore] = {}
        self._history: deque[StoreEvent] = deque()
        self._history_bytes = 0
        self._pending: list[StoreEvent] = []
        self._doomed: list[tuple[int]] = []
        self._flushed: asyncio.Future[None] | None = None
        self.failed: sqlite3.Error | None = None  # why the last transaction did not reach the disk
        self.revision = 0
        self.oldest = 0  # watches may start at this revision or later
        self.indexer: Indexer = _labels_only
        self.hooks: dict[str, Callable[[StoreEvent], None]] = {}  # by resource: told of a write when it is staged
        self.staged: Callable[[StoreEvent], None] = lambda event: None  # told of every one, and may stage more
        self._open()

    def _open(self) -> None:
        self.oldest = self._disk.compacted
        damaged: list[tuple[Row, str, bytes | None]] = []
        for row, problem in self._disk.rows():
            revision, resource, namespace, name, change, data = row
            self.revision = revision
            before = self.get(resource, namespace, name)
            if problem:
                gone = change == "DELETED" and before is not None
                damaged.append((row, problem, before.data if gone and before else None))
                if not gone or before is None:
                    continue  # what the key held before is the best that is known of it
                data = before.data
            stored = Stored(resource, namespace, name, revision, data, self._index)
            event = self._enter(cast("Change", change), stored)
            if revision > self.oldest:
                self._remember(event)
            else:
                self._doom(event)  # left over from a process that died before it could
        for row, problem, instead in damaged:
            self._disk.set_aside(row, problem, instead)
        self.revision = max(self.revision, self.oldest, self._disk.highest_damaged)
        self._trim()

    def _index(self, resource: str, value: Json) -> Index:
        return self.indexer(resource, value)

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        store = self._stores.get(resource)
        return store.objects.get((namespace, name)) if store else None

    def objects(self, resource: str, namespace: str = "") -> list[Stored]:
        """Objects in the order of namespace and name; of one namespace only when it is given."""
        store = self._stores.get(resource)
        if not store:
            return []
        if not namespace:
            return store.ordered[:]
        return store.ordered[bisect_left(store.keys, (namespace, "")) : bisect_left(store.keys, (f"{namespace}\0", ""))]

    def objects_at(self, resource: str, namespace: str, revision: int) -> list[Stored]:
        """The list as it was at ``revision``. Raises Gone when the history does not reach that far."""
        store = self._stores.get(resource) or ResourceStore()
        if revision > self.revision or revision < self.oldest:
            raise Gone(revision)
        then = {key: s for key, s in store.objects.items() if not namespace or key[0] == namespace}
        for event in reversed(store.since(revision)):
            key = (event.stored.namespace, event.stored.name)
            if namespace and key[0] != namespace:
                continue
            if event.previous is None:
                then.pop(key, None)
            else:
                then[key] = event.previous
        return [then[key] for key in sorted(then)]

    def count(self, resource: str) -> int:
        store = self._stores.get(resource)
        return len(store.objects) if store else 0

    def changes(self, resource: str, revision: int) -> list[StoreEvent]:
        """Events after ``revision`` that are on disk. Raises Gone when some are forgotten."""
        if revision < self.oldest:
            raise Gone(revision)
        return self._store(resource).since(revision)

    @property
    def settled(self) -> int:
        """The newest revision that is on disk and has been told to watchers."""
        return self._history[-1].revision if self._history else self.revision

    def next_change(self, resource: str) -> asyncio.Future[None]:
        """Done when the resource has a new event; cancel it when it is no longer wanted."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._store(resource).waiters
        waiters.add(waiter)
        waiter.add_done_callback(waiters.discard)
        return waiter

    def secret(self, name: str) -> bytes:
        """Random bytes that stay the same for the life of the database."""
        return self._disk.secret(name)

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, resource: str, namespace: str, name: str, value: Json, expect: int | None = None) -> Stored:
        """Stages an object and gives it the next revision, also written into ``value``.

        ``expect`` is the revision that the writer saw (0: the object must not exist); another raises Stale. Raises TooLarge.
        """
        before = self.get(resource, namespace, name)
        self._check(before, expect)
        revision = self.revision + 1
        value["metadata"]["resourceVersion"] = str(revision)
        data = _encode(value)
        if len(data) > OBJECT_LIMIT:
            raise TooLarge(f"the object has {len(data)} bytes, more than {OBJECT_LIMIT}")
        growth = len(data) - (len(before.data) if before else 0)
        ends = value["metadata"].get("deletionTimestamp")
        if namespace and growth > 0 and not ends and self._held[namespace] + growth > self.namespace_limit:
            raise TooLarge(f"the namespace holds {self._held[namespace]} bytes already, at most {self.namespace_limit}")
        stored = Stored(resource, namespace, name, revision, data, self._index)
        stored._index = self.indexer(resource, value)
        self._stage("MODIFIED" if before else "ADDED", stored)
        return stored

    def remove(self, resource: str, namespace: str, name: str, value: Json, expect: int | None = None) -> Stored:
        """Stages a deletion; ``value`` is the last state, as watchers will see it."""
        self._check(self.get(resource, namespace, name), expect)
        revision = self.revision + 1
        value["metadata"]["resourceVersion"] = str(revision)
        stored = Stored(resource, namespace, name, revision, _encode(value), self._index)
        self._stage("DELETED", stored)
        return stored

    async def durable(self) -> None:
        """Returns when everything staged so far is on disk. Raises sqlite3.Error when it could not be written."""
        if self._flushed is not None:
            await asyncio.shield(self._flushed)

    async def quiet(self) -> None:
        """Returns when nothing is staged: what is in memory now is on disk."""
        while (flushed := self._flushed) is not None:
            await asyncio.wait((flushed,))

    def flush(self) -> None:
        """Writes what is staged, in one transaction, then tells watchers and waiting writers.

        What the disk refuses never was: memory goes back to what the disk holds, and the next write tries again.
        """
        flushed, self._flushed = self._flushed, None
        pending, self._pending = self._pending, []
        doomed, self._doomed = self._doomed, []
        rows = ((e.revision, e.stored.resource, e.stored.namespace, e.stored.name, e.change, e.stored.data) for e in pending)
        try:
            self._disk.write(rows, doomed, self.oldest)
        except sqlite3.Error as problem:
            self.failed = problem
            self._doomed = doomed
            self._undo(pending)
            if flushed is not None and not flushed.done():
                flushed.set_exception(problem)
                flushed.exception()  # nobody has to ask
            return
        self.failed = None
        for event in pending:
            store = self._remember(event)
            for waiter in tuple(store.waiters):
                if not waiter.done():
                    waiter.set_result(None)
            store.waiters.clear()
        self._trim()
        if flushed is not None and not flushed.done():
            flushed.set_result(None)

    def _undo(self, pending: list[StoreEvent]) -> None:
        """Takes staged writes back, newest first. Their revisions were told to nobody and are given anew."""
        for event in reversed(pending):
            stored, previous = event.stored, event.previous
            if previous is not None:
                self._store(stored.resource).set(previous)
            elif event.change != "DELETED":
                self._store(stored.resource).remove((stored.namespace, stored.name))
            self.revision = stored.revision - 1
        for event in reversed(pending):
            if hook := self.hooks.get(event.stored.resource):
                now = event.previous
                change: Change = "MODIFIED" if now else "DELETED"
                hook(StoreEvent(change, self.revision, now or event.stored, None))

    def close(self) -> None:
        if self._pending or self._doomed:
            self.flush()
        self._disk.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self, before: Stored | None, expect: int | None) -> None:
        if expect is not None and (before.revision if before else 0) != expect:
            raise Stale(expect)

    def _stage(self, change: Change, stored: Stored) -> None:
        self.revision = stored.revision
        event = self._enter(change, stored)
        self._pending.append(event)
        if self._flushed is None:
            loop = asyncio.get_running_loop()
            self._flushed = loop.create_future()
            loop.call_soon(self.flush)
        if hook := self.hooks.get(stored.resource):
            hook(event)
        self.staged(event)

    def _enter(self, change: Change, stored: Stored) -> StoreEvent:
        store = self._store(stored.resource)
        key = (stored.namespace, stored.name)
        previous = store.objects.get(key)
        if change == "DELETED":
            if previous is not None:
                store.remove(key)
        else:
            store.set(stored)
        return StoreEvent(change, stored.revision, stored, previous)

    def _remember(self, event: StoreEvent) -> ResourceStore:
        store = self._store(event.stored.resource)
        store.events.append(event)
        self._history.append(event)
        self._history_bytes += len(event.stored.data)
        return store

    def _trim(self) -> None:
        """Forgets the oldest events beyond the window; their dead rows leave the disk with the next write."""
        history = self._history
        while len(history) > self._window or self._history_bytes > self._window_bytes:
            event = history.popleft()
            self._history_bytes -= len(event.stored.data)
            self._store(event.stored.resource).forget_oldest()
            self.oldest = event.revision
            self._doom(event)

    def _doom(self, event: StoreEvent) -> None:
        if event.previous is not None:
            self._doomed.append((event.previous.revision,))
        if event.change == "DELETED":
            self._doomed.append((event.revision,))

    def _store(self, resource: str) -> ResourceStore:
        store = self._stores.get(resource)
        if store is None:
            store = self._stores[resource] = ResourceStore(self._held)
        return store


def _labels_only(resource: str, value: Json) -> Index:
    return value.get("metadata", {}).get("labels") or {}, {}


def open_storage(path: Path | str, window: int = 20_000) -> Storage:
    """Opens or makes the database ``path`` (":memory:" for a test), for its owner's eyes only: it holds secrets.

    Raises sqlite3.Error when it cannot.
    """
    if str(path) != ":memory:":
        try:
            Path(path).touch(mode=0o600)  # SQLite gives its side files the same mode
        except OSError as problem:
            raise sqlite3.OperationalError(str(problem)) from problem
    return Storage(path, window)


# -- Events go an hour after they were last written, as in Kubernetes (--event-ttl) ---------------------------------


EVENTS = "v1/events"
TTL = 3600.0
_AT_ONCE = 100  # removed by one request, so that none has to wait for all


class Expiry:
    """Every event in the order of its last write; those of an earlier life of the server by the times that they tell."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage, self._clock = storage, clock
        now = clock.now()
        reported = sorted(
            ((min(now, _last_seen(stored.value())), stored) for stored in storage.objects(EVENTS)), key=lambda e: e[0]
        )
        self._queue: deque[tuple[float, Stored]] = deque(reported)
        storage.hooks[EVENTS] = self._written

    def _written(self, event: StoreEvent) -> None:
        if event.change != "DELETED":
            self._queue.append((self._clock.now(), event.stored))

    def sweep(self) -> None:
        """Removes what is due. Costs nothing when nothing is."""
        limit = self._clock.now() - TTL
        for _ in range(_AT_ONCE):
            if not self._queue or self._queue[0][0] > limit:
                return
            _, stored = self._queue.popleft()
            if self._storage.get(EVENTS, stored.namespace, stored.name) is stored:
                self._storage.remove(EVENTS, stored.namespace, stored.name, stored.value(), expect=stored.revision)


def _last_seen(event: Json) -> float:
    series = event.get("series") or {}
    reported = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"),
            event["metadata"].get("creationTimestamp"))  # fmt: skip
    return max(map(seconds, reported))
