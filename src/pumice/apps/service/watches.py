"""A daemon's endless watch of one kind of object: what cannot be read is set aside, and the watch goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Resource, WatchEvent
from pumice.wire.objects import decode

ABSENT_KIND_RETRY = 10.0
ABSENT_OR_FORBIDDEN, SELDOM = (403, 404), 60.0
"""For kinds that one can do without; after so many seconds one is looked for again."""

Handler = Callable[[WatchEvent], None]
T = TypeVar("T")


def object_of(kind: type[T], event: WatchEvent) -> T:
    """Return the object of the event. Raises msgspec.MsgspecError."""
    found: T = decode(kind, event.raw) if event.obj is None else event.obj
    return found


@dataclass(frozen=True, slots=True)
class Watcher:
    """The watches of a daemon. ``arrived`` is told the name of each list that is complete; ``absent`` are answers that say
    that there is nothing to watch, after which it is looked for again ``pause`` seconds later."""

    cluster: Cluster
    clock: Clock
    log: logging.Logger
    arrived: Callable[[str], None]
    absent: tuple[int, ...] = (404,)
    pause: float = ABSENT_KIND_RETRY
    lacks: Callable[[str, str], None] = lambda name, answer: None
    """Told the name of each list that there is not, with the API server's answer; and with an empty one when there is."""

    async def watch(
        self, name: str, resource: Resource, take: Callable[[WatchEvent], object], namespace: str = "", field_selector: str = "",
        kind: type[Any] | None = None, label_selector: str = "",
    ) -> None:  # fmt: skip
        """Watch one kind for ever. ``take`` raises nothing (``taken``)."""
        while True:
            try:
                selectors = {"field_selector": field_selector, "label_selector": label_selector}
                async for event in self.cluster.watch(resource, namespace, **selectors, kind=kind):
                    if event.type == "SYNCED":
                        self.lacks(name, "")
                        self.arrived(name)
                    elif event.type != "BOOKMARK":
                        take(event)
            except ApiError as error:
                # A kind that is not installed (no CRDs, no storage API) is empty, and looked for again now and then.
                if error.code not in self.absent:
                    self.log.error("cannot watch %s: %s", name, error)
                else:
                    self.lacks(name, str(error))
                    self.arrived(name)
                await self.clock.sleep(self.pause)

    def taken(self, name: str, handle: Handler, event: WatchEvent) -> bool:
        """Return whether the object could be used."""
        try:
            handle(event)
        except (msgspec.MsgspecError, ValueError) as error:
            self.log.warning("object set aside kind=%s cause=%s", name, error)
        except Exception:  # whoever wrote it, one object must not end the daemon, again and again at each start
            self.log.exception("object set aside kind=%s", name)
        else:
            return True
        return False
