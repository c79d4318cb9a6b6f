"""Object caches of the controllers: one watch per kind, indexes by owner and namespace."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire.kinds import PODS
from pumice_lab.controllers.garbage import Bare, Graph, Meta, Vertex

_TOMBSTONES = 5000
_decode_bare = msgspec.json.Decoder(Bare, strict=False).decode
Changed = Callable[[Resource, Meta, dict[str, Any] | None], None]  # None: the object is gone


class Caches:
    """Full objects of the kinds in ``full``, metadata of all watched kinds in ``graph``.

    Answers to our own writes are put in at once (``put``), so that a controller sees what it did before the watch tells;
    a watch event older than that is dropped by its resource version.
    """

    def __init__(self, cluster: Cluster, full: Iterable[Resource], changed: Changed, released: Callable[[str], None]) -> None:
        """``released`` is told the uid of an owner that an object no longer names."""
        self.cluster, self.changed, self.released = cluster, changed, released
        self.full: dict[Resource, dict[str, dict[str, Any]]] = {resource: {} for resource in full}
        self.graph = Graph()
        self.names: dict[tuple[Resource, str, str], str] = {}  # (resource, namespace, name) -> uid
        self.by_namespace: dict[str, set[str]] = {}
        self.synced: set[Resource] = set()
        self.all_synced = asyncio.Event()
        self._expected: dict[Resource, None] = {}
        self._dropped: OrderedDict[str, None] = OrderedDict()
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what ended a watch for good: the objects here are out of date from then on."""

    def watch(self, resource: Resource) -> None:
        if resource not in self._tasks:
            self._expected[resource] = None
            self.all_synced.clear()
            self._tasks[resource] = task = asyncio.create_task(self._follow(resource), name=f"watch {resource.plural}")
            task.add_done_callback(lambda task: self._ended(resource, task))

    def watched(self) -> list[Resource]:
        """Every kind that ever was, also those that are served no more: what they owned has to go."""
        return list(self._expected)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.broken.cancel()

    def _ended(self, resource: Resource, task: asyncio.Task[None]) -> None:
        """A kind that is not served may be later (a CustomResourceDefinition that comes again): who asks again is heard."""
        self._tasks.pop(resource, None)
        if not task.cancelled() and (error := task.exception()) is not None and not self.broken.done():
            self.broken.set_exception(error)

    async def _follow(self, resource: Resource) -> None:
        try:
            async for event in self.cluster.watch(resource):
                if event.type == "SYNCED":
                    self._is_synced(resource)
                elif event.type == "DELETED":
                    self.drop(resource, _decode_bare(event.raw).metadata)
                elif event.type in ("ADDED", "MODIFIED"):
                    self._take(resource, event.raw)
        except ApiError as error:
            if error.code not in (403, 404, 405):
                raise
            self._is_synced(resource)  # a kind that this server does not serve has no objects

    def _is_synced(self, resource: Resource) -> None:
        self.synced.add(resource)
        if self._expected.keys() <= self.synced:
            self.all_synced.set()

    def _take(self, resource: Resource, raw: bytes) -> None:
        meta = _decode_bare(raw).metadata
        if self._is_news(meta):
            self._store(resource, meta, msgspec.json.decode(raw) if resource in self.full else None)

    def put(self, resource: Resource, obj: dict[str, Any]) -> None:
        """The answer to a write of ours."""
        meta = msgspec.convert(obj["metadata"], Meta, strict=False)
        if self._is_news(meta):
            self._store(resource, meta, obj if resource in self.full else None)

    def drop(self, resource: Resource, meta: Meta) -> None:
        before = self.graph.vertices.get(meta.uid)
        self._dropped[meta.uid] = None
        if len(self._dropped) > _TOMBSTONES:
            self._dropped.popitem(last=False)
        if before is None:
            return
        self.full.get(resource, {}).pop(meta.uid, None)
        self.graph.drop(meta.uid)
        self.by_namespace.get(before.meta.namespace, set()).discard(meta.uid)
        if self.names.get((resource, before.meta.namespace, before.meta.name)) == meta.uid:
            del self.names[resource, before.meta.namespace, before.meta.name]
        self.changed(resource, before.meta, None)

    def _is_news(self, meta: Meta) -> bool:
        if meta.uid in self._dropped:
            return False
        before = self.graph.vertices.get(meta.uid)
        return before is None or _version(meta) >= _version(before.meta)

    def _store(self, resource: Resource, meta: Meta, obj: dict[str, Any] | None) -> None:
        if obj is not None:
            self.full[resource][meta.uid] = obj
        before = self.graph.vertices.get(meta.uid)
        self.graph.put(resource, meta)
        self.names[resource, meta.namespace, meta.name] = meta.uid
        self.by_namespace.setdefault(meta.namespace, set()).add(meta.uid)
        self.changed(resource, meta, obj)
        for uid in {o.uid for o in before.meta.owner_references} - {o.uid for o in meta.owner_references} if before else ():
            self.released(uid)

    # -- questions ------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, uid: str) -> dict[str, Any] | None:
        return self.full[resource].get(uid)

    def every(self, resource: Resource) -> list[dict[str, Any]]:
        return list(self.full[resource].values())

    def owned(self, resource: Resource, uid: str) -> list[dict[str, Any]]:
        """Full objects of a kind that name ``uid`` as an owner."""
        table = self.full[resource]
        return [table[d] for d in sorted(self.graph.dependents.get(uid, ())) if d in table]

    def pods_on(self, node: str) -> list[dict[str, Any]]:
        return [pod for pod in self.every(PODS) if pod["spec"].get("nodeName") == node]

    def named(self, resource: Resource, meta: Mapping[str, Any]) -> dict[str, Any] | None:
        uid = self.names.get((resource, meta["namespace"], meta["name"]))
        return self.get(resource, uid) if uid else None

    def in_namespace(self, name: str) -> list[Vertex]:
        return [self.graph.vertices[uid] for uid in sorted(self.by_namespace.get(name, ())) if uid in self.graph.vertices]


def _version(meta: Meta) -> int:
    return int(meta.resource_version) if meta.resource_version.isdigit() else 0
