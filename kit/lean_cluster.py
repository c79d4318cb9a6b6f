"""A cluster that only remembers: for tests with very many pods, where the embedded API server would be the slow part.

Lists and watches serve the objects given at the start and what Bindings make of pods; every status write, event and
other change hangs for ``answer_after`` seconds of the clock. Reads of single objects are answered at once.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from typing import Any

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Json, Resource, WatchEvent

_PLURALS = {"Node": "nodes", "Pod": "pods", "PodGroup": "podgroups", "Queue": "queues"}


class LeanCluster:
    """Implements ports.cluster.Cluster. ``bound_at`` holds the clock's time of each Binding by pod."""

    def __init__(self, clock: Clock, objects: Iterable[Json], answer_after: float = 0.0) -> None:
        self.clock, self.answer_after = clock, answer_after
        self.objects: dict[str, dict[str, Json]] = defaultdict(dict)
        self.bound_at: dict[str, float] = {}
        self.writes_begun = 0
        self.writes_done = 0
        self._version = 0
        self._news: dict[str, list[asyncio.Queue[WatchEvent]]] = defaultdict(list)
        for obj in objects:
            self._store(_PLURALS[obj["kind"]], obj)

    def _store(self, plural: str, obj: Json) -> bytes:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[plural][f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"] = obj
        return json.dumps(obj).encode()

    def arrive(self, *objects: Json) -> None:
        """Created now: the watches tell of it."""
        for obj in objects:
            plural = _PLURALS[obj["kind"]]
            raw = self._store(plural, obj)
            for queue in self._news[plural]:
                queue.put_nowait(WatchEvent("ADDED", raw))

    async def watch(self, resource: Resource, namespace: str = "", **_: Any) -> AsyncIterator[WatchEvent]:
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._news[resource.plural].append(queue)
        for obj in list(self.objects[resource.plural].values()):
            yield WatchEvent("ADDED", json.dumps(obj).encode())
        yield WatchEvent("SYNCED", b"")
        while True:
            yield await queue.get()

    async def bind(self, namespace: str, name: str, body: bytes) -> None:
        binding = json.loads(body)
        obj = self.objects["pods"][f"{namespace}/{name}"]
        assert not obj["spec"].get("nodeName"), f"{name} is bound twice"
        obj["spec"]["nodeName"] = binding["target"]["name"]
        obj["metadata"]["annotations"].update(binding["metadata"].get("annotations", {}))
        self.bound_at[name] = self.clock.monotonic()
        raw = self._store("pods", obj)
        for queue in self._news["pods"]:
            queue.put_nowait(WatchEvent("MODIFIED", raw))

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        found = self.objects[resource.plural].get(f"{namespace}/{name}")
        if found is None:
            raise ApiError(404, "NotFound", name)
        return found

    async def list(self, resource: Resource, namespace: str = "", **_: Any) -> Json:
        return {"items": list(self.objects[resource.plural].values())}

    async def create(self, resource: Resource, obj: Json, namespace: str = "", **_: Any) -> Json:
        if resource.plural == "queues":
            self._store("queues", obj)
            return obj
        return await self._slowly(obj)

    async def update(self, resource: Resource, obj: Json, **_: Any) -> Json:
        return await self._slowly(obj)

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "", **_: Any) -> Json:
        return await self._slowly({})

    async def delete(self, resource: Resource, name: str, namespace: str = "", **_: Any) -> Json:
        return await self._slowly({})

    async def _slowly(self, answer: Json) -> Json:
        self.writes_begun += 1
        await self.clock.sleep(self.answer_after)
        self.writes_done += 1
        return answer
