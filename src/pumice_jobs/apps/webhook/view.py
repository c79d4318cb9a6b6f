"""The view of the cluster that the rules have: watched, and asked for where a watch may be behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire.kinds import NAMESPACES
from pumice.wire.names import DEFAULT_QUEUE
from pumice.wire.volcano import QUEUES
from pumice_jobs.admission.review import Request


@dataclass(slots=True)
class Watched:
    cluster: Cluster
    objects: dict[Resource, dict[str, Json]] = field(default_factory=lambda: {QUEUES: {}, NAMESPACES: {}})

    def queue(self, name: str) -> Mapping[str, Any] | None:
        return self.objects[QUEUES].get(name)

    def queues(self) -> Iterable[Mapping[str, Any]]:
        return self.objects[QUEUES].values()

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        return self.objects[NAMESPACES].get(name)

    def take(self, resource: Resource, event: WatchEvent) -> None:
        found = msgspec.json.decode(event.raw)
        name = found["metadata"]["name"]
        if event.type == "DELETED":
            self.objects[resource].pop(name, None)
        else:
            self.objects[resource][name] = found

    async def look_up(self, word: str, request: Request) -> None:
        """A queue that was made a moment ago: its watch may be behind its user."""
        spec = request.object.get("spec") or {}
        if word == "cronjobs":
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        if word in ("jobs", "podgroups", "cronjobs"):
            await self._fetch(QUEUES, spec.get("queue") or DEFAULT_QUEUE)
        elif word == "queues" and spec.get("parent"):
            await self._fetch(QUEUES, spec["parent"])

    async def _fetch(self, resource: Resource, name: str) -> None:
        if name in self.objects[resource]:
            return
        try:
            self.objects[resource][name] = await self.cluster.get(resource, name)
        except ApiError as error:
            if error.code != 404:
                raise
