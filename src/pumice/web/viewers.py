"""The page of many viewers: each is served from caches in which there is only what he may list. Equal rights share them.

One list and watch a kind by the page's own account, and what each set of rights sees of it.

``Seen`` is an API server as a client with those rights would meet it: it gives what may be listed and refuses the rest. So every
page is made of what ``kubectl`` would show, by the code that serves the user of a kubeconfig; nothing has to be taken out again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec import Struct

from pumice.model.errors import BadInput, PumiceError, Unavailable
from pumice.node.history import PodHistory
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.web.following import CHILDREN, Configuration, Following
from pumice.web.monitors import Monitors, NodeUse
from pumice.web.rights import EVERYTHING, NAMESPACES_ASKED, Reviews, Rights, Unknown
from pumice.web.views import ClusterSite, Views
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


HEADER = "X-Pumice-Token"
"""Where no Authorization comes through: the API server's proxy takes that for itself."""
CACHES, FRESH = 8, 30.0
"""So many sets of rights beside the one of all are served at once; a cache that somebody has read within so many seconds is not
evicted for others'."""


def token_of(headers: Any) -> str:
    """Return the token that a request brings; empty where there is none."""
    own = str(headers.get(HEADER, "")).strip()
    scheme, _, token = str(headers.get("Authorization", "")).partition(" ")
    return own or (token.strip() if scheme.lower() == "bearer" else "")


@dataclass(slots=True)
class RightsCache:
    """The pages of one set of rights."""

    number: int
    site: ClusterSite
    task: asyncio.Task[None]
    looked: float


@dataclass(slots=True)
class Viewers:
    """The engines by rights of viewers. ``configured`` reads the scheduler's configuration by the page's own account."""

    cluster: Cluster
    configured: Callable[[Cluster], Awaitable[Configuration]]
    hub: Hub
    monitors: Monitors
    reviews: Reviews = field(init=False)
    most_caches: int = CACHES
    _caches: OrderedDict[Rights, RightsCache] = field(default_factory=OrderedDict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _children: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CHILDREN))
    _number: int = 0

    def __post_init__(self) -> None:
        self.reviews = Reviews(self.cluster, self.monitors.clock, self.hub.namespaces, self.hub.reports)

    async def start(self) -> None:
        """Begin with the cache of those who may list everything; by them it is known what there is. Raises BadInput and
        Unavailable."""
        await self._open(EVERYTHING)

    @property
    def whole(self) -> RightsCache:
        return self._caches[EVERYTHING]

    @property
    def ready(self) -> bool:
        return not self.whole.site.following.unsynced

    async def failed(self) -> None:
        """Wait until the cache that all others lean on can be kept no more; raises what ended them."""
        await asyncio.shield(self.whole.task)

    async def of(self, token: str) -> RightsCache | None:
        """Return the cache of whoever bears the token; None where nobody knows it. Raises Unknown."""
        rights = await self.reviews.rights(token)
        if rights is None:
            return None
        found = self._caches.get(rights)
        if found is None or found.task.done():
            async with self._opening:
                found = self._caches.get(rights)
                if found is None or found.task.done():
                    try:
                        found = await self._open(rights)
                    except (BadInput, Unavailable) as error:
                        raise Unknown(str(error)) from None
        found.looked = self.monitors.clock.now()
        self._caches.move_to_end(rights)
        return found

    async def _open(self, rights: Rights) -> RightsCache:
        """Raises Unknown, BadInput and Unavailable."""
        self._evict_oldest(rights)
        seen = cast("Cluster", Seen(self.hub, rights))
        following = Following(seen, lambda _: self.configured(self.cluster), _children=self._children)
        await following.start()
        pages = Views(following, cast("Monitors", SeenMonitors(self.monitors, rights)))
        site = ClusterSite(following, pages, limits_of(rights), quotes=rights.everything)
        self._number += 1
        made = RightsCache(self._number, site, asyncio.ensure_future(following.run()), self.monitors.clock.now())
        self._caches[rights] = made
        return made

    def _evict_oldest(self, rights: Rights) -> None:
        gone = self._caches.pop(rights, None)
        if gone is not None:
            gone.task.cancel()
        others = [(cache.looked, key) for key, cache in self._caches.items() if key != EVERYTHING]
        if len(others) < self.most_caches:
            return
        looked, oldest = min(others, key=lambda one: one[0])
        if self.monitors.clock.now() - looked < FRESH:
            raise Unknown("viewers with too many different rights look at this page now; come again in a minute")
        self._caches.pop(oldest).task.cancel()

    async def close(self) -> None:
        tasks = [cache.task for cache in self._caches.values()]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.hub.close()


def limits_of(rights: Rights) -> tuple[str, ...]:
    """Return what a reader has to know of pages that do not show all."""
    spaces = rights.namespaces()
    if rights.everything or rights.may(PODS):
        return ()
    named = ", ".join(spaces[:20]) + (f" and {len(spaces) - 20} more" if len(spaces) > 20 else "")
    found = [f"You may list pods in {named or 'no namespace that is known'} alone: all figures, totals and answers are of those, "
             "and a card may be fuller than seen. The scheduler's own words of a pod that waits are its conditions."]  # fmt: skip
    if rights.partial:
        found.append(f"Only the first {NAMESPACES_ASKED} namespaces were asked for.")
    return tuple(found)
