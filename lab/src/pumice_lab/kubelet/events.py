"""Events of one component, written in the background; the same event again raises its count."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping
from typing import Any, Literal

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import EVENTS
from pumice_lab.kubelet.status import timestamp

log = logging.getLogger("pumice.kubelet")
_QUEUE_MAX = 2000  # beyond it events are dropped: they must never hold up containers
_REMEMBERED = 512


class EventRecorder:
    def __init__(self, cluster: Cluster, clock: Clock, dice: random.Random, component: str, host: str = "") -> None:
        self.cluster, self.clock, self.dice, self.component, self.host = cluster, clock, dice, component, host
        self._queue: asyncio.Queue[tuple[dict[str, Any], tuple[str, ...]]] = asyncio.Queue(_QUEUE_MAX)
        self._seen: dict[tuple[str, ...], tuple[str, str, int]] = {}  # event -> (namespace, name, count)

    def record(self, about: Mapping[str, Any], kind: Literal["Normal", "Warning"], reason: str, message: str, *,
               container: str = "", container_list: str = "containers") -> None:
        """``about`` is a Pod or Node object. Never blocks, never raises."""
        meta, now = about["metadata"], timestamp(self.clock.now())
        involved = {"kind": about.get("kind") or "Pod", "apiVersion": about.get("apiVersion") or "v1",
                    "name": meta["name"], "uid": meta.get("uid", "")}
        if meta.get("namespace"):
            involved["namespace"] = meta["namespace"]
        if container:
            involved["fieldPath"] = f"spec.{container_list}{{{container}}}"
        event = {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": f"{meta['name'][:200]}.{self.dice.getrandbits(64):016x}",
                         "namespace": meta.get("namespace") or "default"},
            "involvedObject": involved, "type": kind, "reason": reason, "message": message[:1024], "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": {"component": self.component, "host": self.host},
            "reportingComponent": self.component, "reportingInstance": self.host,
        }  # fmt: skip
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait((event, (meta.get("uid", ""), container, kind, reason, message)))

    async def run(self) -> None:
        while True:
            event, key = await self._queue.get()
            try:
                await self._write(event, key)
            except ApiError as error:
                log.debug("event not written reason=%s cause=%s", event["reason"], error)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Wait until everything recorded so far is written (or refused)."""
        await self._queue.join()

    async def _write(self, event: dict[str, Any], key: tuple[str, ...]) -> None:
        if key in self._seen:
            namespace, name, count = self._seen[key]
            body = {"count": count + 1, "lastTimestamp": event["lastTimestamp"]}
            with contextlib.suppress(ApiError):
                await self.cluster.patch(EVENTS, name, body, namespace)
                self._seen[key] = (namespace, name, count + 1)
                return
        await self.cluster.create(EVENTS, event)
        while len(self._seen) >= _REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = (event["metadata"]["namespace"], event["metadata"]["name"], 1)
