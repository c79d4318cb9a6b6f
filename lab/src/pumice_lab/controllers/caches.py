"""The object cache of the controllers, filled by one watch per kind, with indexes by name and namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire.kinds import PODS
from pumice_lab.controllers.garbage import Bare, Graph, Meta, Vertex, dependents

_decode_bare = msgspec.json.Decoder(Bare, strict=False).decode
Changed = Callable[[Resource, Meta, dict[str, Any] | None], None]  # None: the object is gone


class Caches:
    """Full objects of the kinds in ``full``, metadata of all watched kinds in ``graph``.

    Answers to our own writes are put in at once (``put``), so that a controller sees what it did before the watch tells.
    """

    def __init__(
        self, cluster: Cluster, full: Iterable[Resource], changed: Changed, released: Callable[[str], None],
        doubted: Callable[[str], None],
    ) -> None:  # fmt: skip
        """``released`` is told the uid of an owner that an object no longer names; ``doubted`` that of an object of which only
        the answer to a write told, when a list has passed: what was deleted before that list, no watch will ever tell of."""
        self.cluster, self.changed, self.released, self.doubted = cluster, changed, released, doubted
        self.full: dict[Resource, dict[str, dict[str, Any]]] = {resource: {} for resource in full}
        self.graph = Graph()
        self.names: dict[tuple[Resource, str, str], str] = {}  # (resource, namespace, name) -> uid
        self.by_namespace: dict[str, set[str]] = {}
        self.synced: set[Resource] = set()
        self.all_synced = asyncio.Event()
        self._untold: dict[Resource, set[str]] = {}
        """Uids of what the watch of a kind has not told of yet."""
        self._expected: dict[Resource, None] = {}
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
                    for uid in self._untold.get(resource, ()):
                        self.doubted(uid)
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
        self._untold.get(resource, set()).discard(meta.uid)
        self._store(Vertex(resource, meta, msgspec.json.decode(raw) if resource in self.full else None))

    def put(self, resource: Resource, obj: dict[str, Any]) -> None:
        """The answer to a write of ours."""
        meta = msgspec.convert(obj["metadata"], Meta, strict=False)
        known = meta.uid in self.graph.objects
        self._store(Vertex(resource, meta, obj if resource in self.full else None))
        if not known and meta.uid in self.graph.objects:
            self._untold.setdefault(resource, set()).add(meta.uid)

    def drop(self, resource: Resource, meta: Meta) -> None:
        self._untold.get(resource, set()).discard(meta.uid)
        before = self.graph.drop(meta.uid)
        if before is None:
            return
        meta = before.metadata
        self.full.get(resource, {}).pop(meta.uid, None)
        self.by_namespace.get(meta.namespace, set()).discard(meta.uid)
        if self.names.get((resource, meta.namespace, meta.name)) == meta.uid:
            del self.names[resource, meta.namespace, meta.name]
        self.changed(resource, meta, None)

    def _store(self, vertex: Vertex) -> None:
        resource, meta = vertex.resource, vertex.metadata
        before = self.graph.get(meta.uid)
        if not self.graph.put(vertex):
            return
        if vertex.whole is not None:
            self.full[resource][meta.uid] = vertex.whole
        self.names[resource, meta.namespace, meta.name] = meta.uid
        self.by_namespace.setdefault(meta.namespace, set()).add(meta.uid)
        self.changed(resource, meta, vertex.whole)
        if before is not None:
            for uid in {o.uid for o in before.metadata.owner_references} - {o.uid for o in meta.owner_references}:
                self.released(uid)

    # -- questions ------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, uid: str) -> dict[str, Any] | None:
        return self.full[resource].get(uid)

    def every(self, resource: Resource) -> list[dict[str, Any]]:
        return list(self.full[resource].values())

    def owned(self, resource: Resource, uid: str) -> list[dict[str, Any]]:
        """Full objects of a kind that name ``uid`` as an owner."""
        return [v.whole for v in dependents(self.graph, uid) if v.resource == resource and v.whole is not None]

    def pods_on(self, node: str) -> list[dict[str, Any]]:
        return [pod for pod in self.every(PODS) if pod["spec"].get("nodeName") == node]

    def named(self, resource: Resource, meta: Mapping[str, Any]) -> dict[str, Any] | None:
        uid = self.names.get((resource, meta["namespace"], meta["name"]))
        return self.get(resource, uid) if uid else None

    def in_namespace(self, name: str) -> list[Vertex]:
        return [self.graph.objects[uid] for uid in sorted(self.by_namespace.get(name, ())) if uid in self.graph.objects]
