"""One list and watch a kind by the page's own account, and what each set of rights sees of it.

``Seen`` is an API server as a client with those rights would meet it: it gives what may be listed and refuses the rest. So every
page is made of what ``kubectl`` would show, by the code that serves the user of a kubeconfig; nothing has to be taken out again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from pumice.model.errors import PumiceError
from pumice.node.history import PodHistory
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.web.monitors import Monitors, NodeUse
from pumice.web.rights import Rights
from pumice.wire.kinds import EVENTS, NAMESPACES, PODS
from pumice.wire.objects import Meta, decode

RETRY = 30.0
"""Seconds before a list that was refused is asked for again."""

Choice = tuple[Resource, str, str, str]
"""Kind, namespace, label selector, field selector."""


class _Object(Struct):
    metadata: Meta


def meta_of(event: WatchEvent) -> Meta:
    found: Meta = event.obj.metadata if event.obj is not None else decode(_Object, event.raw).metadata
    return found


@dataclass(slots=True)
class _List:
    """All of one kind, as it is now. ``refused``: why there is none."""

    objects: dict[str, tuple[str, WatchEvent]] = field(default_factory=dict)
    """By namespace/name: uid, and what tells of it as new."""
    synced: bool = False
    refused: ApiError | None = None
    followers: list[_Follower] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, event: WatchEvent) -> None:
        if event.type == "BOOKMARK":
            return
        namespace = ""
        if event.type == "SYNCED":
            self.synced, self.refused = True, None
            self.changed.set()
        else:
            try:
                meta = meta_of(event)
            except (PumiceError, ValueError):
                return
            key, namespace = f"{meta.namespace}/{meta.name}", meta.namespace
            if event.type == "DELETED":
                if key in self.objects and self.objects[key][0] == meta.uid:
                    del self.objects[key]
            else:
                self.objects[key] = meta.uid, WatchEvent("ADDED", event.raw, event.obj, True)
        for follower in self.followers:
            follower.put(namespace, event)

    def refuse(self, error: ApiError) -> None:
        self.refused, self.synced = error, False
        self.objects.clear()
        self.changed.set()
        for follower in self.followers:
            follower.end(error)


class _Follower:
    """A watch of a list by one set of rights: the events that it may be given and has not taken."""

    def __init__(self, sees: Callable[[str], bool]) -> None:
        self.sees, self.events, self.news = sees, deque[WatchEvent | ApiError](), asyncio.Event()

    def put(self, namespace: str, event: WatchEvent) -> None:
        if event.type == "SYNCED" or self.sees(namespace):
            self.events.append(event)
            self.news.set()

    def end(self, error: ApiError) -> None:
        self.events.append(error)
        self.news.set()

    async def next(self) -> WatchEvent:
        """Raises ApiError where the list came to an end."""
        while not self.events:
            self.news.clear()
            await self.news.wait()
        found = self.events.popleft()
        if isinstance(found, ApiError):
            raise found
        return found


@dataclass(slots=True)
class Hub:
    """The cache of all viewers."""

    cluster: Cluster
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _lists: dict[Choice, _List] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def of(self, choice: Choice, kind: type[Any] | None) -> _List:
        """Return the list, which is followed from the first question on."""
        found = self._lists.get(choice)
        if found is None:
            found = self._lists[choice] = _List()
            self._tasks.append(asyncio.ensure_future(self._follow(choice, kind, found)))
        return found

    async def _follow(self, choice: Choice, kind: type[Any] | None, into: _List) -> None:
        resource, namespace, labels, fields = choice
        while True:
            try:
                selectors = {"label_selector": labels, "field_selector": fields}
                async for event in self.cluster.watch(resource, namespace, **selectors, kind=kind):
                    into.take(event)
            except ApiError as error:
                into.refuse(error)
            await self.sleep(RETRY)

    def namespaces(self) -> set[str]:
        """Return those in which there are pods."""
        found = self._lists.get((PODS, "", "", ""))
        return set() if found is None else {key.partition("/")[0] for key in found.objects}

    def reports(self) -> list[str]:
        """Return the namespaces of whose ConfigMaps something is followed."""
        return [choice[1] for choice in self._lists if choice[0].plural == "configmaps"]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(slots=True)
class Seen:
    """Implements what the page asks of ports.cluster.Cluster, for whoever has these rights."""

    hub: Hub
    given: Rights

    def _sees(self, resource: Resource, namespace: str) -> Callable[[str], bool]:
        """Return what tells whether an object of that namespace may be seen. Raises ApiError where none may."""
        if self.given.may(resource, namespace):
            return lambda _: True
        if namespace or not resource.namespaced or not self.given.some(resource):
            raise ApiError(403, "Forbidden", f"you may not list {resource.plural}{f' in {namespace}' if namespace else ''}")
        return lambda space: self.given.may(resource, space)

    async def watch(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = "",
        kind: type[Any] | None = None,
    ) -> AsyncIterator[WatchEvent]:  # fmt: skip
        found = self.hub.of((resource, namespace, label_selector, field_selector), kind)
        sees = self._sees(resource, namespace)
        while not found.synced:
            if found.refused is not None:
                raise found.refused
            found.changed.clear()
            await found.changed.wait()
        follower = _Follower(sees)
        now = [event for key, (_, event) in found.objects.items() if sees(key.partition("/")[0])]
        found.followers.append(follower)
        try:
            for count, event in enumerate(now):
                yield event
                if count % 100 == 99:
                    await asyncio.sleep(0)
            yield WatchEvent("SYNCED", b"")
            while True:
                yield await follower.next()
        finally:
            found.followers.remove(follower)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return a pod that may be seen; of the namespace ``default`` only that there is an answer, by which one is told."""
        if resource == NAMESPACES and name == "default":
            try:
                await self.hub.cluster.get(resource, name)
            except ApiError as error:
                if error.code == 0 or error.code >= 500:
                    raise
            return {}
        if resource != PODS or not self.given.may(resource, namespace):
            raise ApiError(403, "Forbidden", f"you may not list {resource.plural} in {namespace}")
        return await self.hub.cluster.get(resource, name, namespace)

    async def list(self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Json:
        if resource != EVENTS or not self.given.may(resource, namespace):
            raise ApiError(403, "Forbidden", f"you may not list {resource.plural} in {namespace}")
        return await self.hub.cluster.list(resource, namespace, label_selector=label_selector, field_selector=field_selector)

    async def create(self, resource: Resource, obj: Json, namespace: str = "", **more: Any) -> Json:
        """Refused: nothing is written, and rights are asked for elsewhere (``Reviews``)."""
        raise ApiError(404, "NotFound", resource.plural)


@dataclass(slots=True)
class SeenMonitors:
    """The figures of monitors, which are read once for all, of pods alone that somebody may list."""

    all: Monitors
    given: Rights

    async def of_node(self, node: str) -> NodeUse:
        found = await self.all.of_node(node)
        told = {key: use for key, use in found.pods.items() if self.given.may(PODS, key.partition("/")[0])}
        return NodeUse(found.at, told, found.unknown)

    async def history(self, node: str, namespace: str, pod: str) -> tuple[PodHistory | None, str]:
        if not self.given.may(PODS, namespace):
            return None, f"you may not list pods in {namespace}"
        return await self.all.history(node, namespace, pod)
