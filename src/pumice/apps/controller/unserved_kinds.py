"""Objects of Volcano's kinds that nothing serves yet: each is told so by an event."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import msgspec

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire import volcano
from pumice.wire.without_effect import Row

log = logging.getLogger("pumice.controller")

LOOK_AGAIN = 60.0
"""Seconds between two looks whether a kind has been installed."""
REASON = "WithoutEffect"
COMPONENT = "pumice-controller"


@dataclass(slots=True)
class UnservedKind:
    """The watch of one kind."""

    row: Row
    cluster: Cluster
    clock: Clock
    leads: asyncio.Event
    """Set once this controller is the one that speaks."""
    _told: set[str] = field(default_factory=set)

    async def watch(self, kind: Resource) -> None:
        """Watch for ever; a kind that is not installed, or may not be looked at, is looked for again now and then."""
        await self.leads.wait()
        while True:
            try:
                async for event in self.cluster.watch(kind):
                    if event.type in ("ADDED", "MODIFIED", "DELETED"):
                        await self._take(event)
            except ApiError as error:
                if error.code not in (403, 404):
                    log.warning("cannot watch %s: %s", kind.plural, error)
            await self.clock.sleep(LOOK_AGAIN)

    async def _take(self, event: WatchEvent) -> None:
        obj = msgspec.json.decode(event.raw)
        uid = obj["metadata"].get("uid", "")
        if event.type == "DELETED":
            self._told.discard(uid)
        elif uid not in self._told and not _served_by_others(obj):
            self._told.add(uid)
            await self._tell(obj)

    async def _tell(self, obj: Json) -> None:
        meta, now = obj["metadata"], self.clock.now()
        namespace, text = meta.get("namespace", ""), f"{self.row.text} (no controller of ours serves this kind)"
        log.warning("without effect kind=%s object=%s/%s", self.row.name, namespace, meta["name"])
        event = {
            "metadata": {"name": f"{meta['name'][:200]}.{int(now * 1e6):x}", "namespace": namespace or "default"},
            "involvedObject": {"kind": self.row.name, "apiVersion": obj.get("apiVersion", ""), "namespace": namespace,
                               "name": meta["name"], "uid": meta.get("uid", "")},
            "type": "Warning", "reason": REASON, "message": text, "source": {"component": COMPONENT},
            "firstTimestamp": volcano.stamp(now), "lastTimestamp": volcano.stamp(now), "count": 1,
        }  # fmt: skip
        try:
            await self.cluster.create(volcano.EVENTS, event, namespace or "default")
        except ApiError as error:
            log.warning("not told on %s %s/%s: %s", self.row.name, namespace, meta["name"], error)


def _served_by_others(obj: Json) -> bool:
    """Whether some other controller has written its status: this one never does."""
    return bool(obj.get("status"))
