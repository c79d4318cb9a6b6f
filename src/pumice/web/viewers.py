"""The page of many viewers: each is served from caches in which there is only what he may list. Equal rights share them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cluster import Cluster
from pumice.web.following import CHILDREN, Configuration, Following
from pumice.web.informers import Hub, Seen, SeenMonitors
from pumice.web.monitors import Monitors
from pumice.web.rights import EVERYTHING, NAMESPACES_ASKED, Reviews, Rights, Unknown
from pumice.web.views import ClusterSite, Views
from pumice.wire.kinds import PODS

log = logging.getLogger("pumice.web")

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
