"""Events go an hour after they were last written, as in Kubernetes (--event-ttl)."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from pumice.ports.clock import Clock
from pumice_lab.apiserver.resource_store import Json, Stored, StoreEvent
from pumice_lab.apiserver.storage import Storage

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
    return max((_unix(text) for text in reported if text), default=0.0)


def _unix(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
