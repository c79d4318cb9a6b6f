"""Evictions as they are carried out: marks, deletion, what becomes of them without the lease; and where a pod waits for room."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.status_writer import StatusWriter
from pumice.effects.vocabulary import Evict, Nominate, SchedulerEffect
from pumice.ports.cluster import Json, Resource


class Recorder:
    """Remembers what was asked of the API server."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, str, Any]] = []

    async def create(self, resource: Resource, obj: Json, namespace: str = "") -> Json:
        self.requested.append(("create", resource.plural, obj.get("reason")))
        return obj

    async def patch(self, resource: Resource, name: str, body: Json, namespace: str = "", **how: Any) -> Json:
        self.requested.append(("patch", name, body["status"]))
        return body

    async def delete(self, resource: Resource, name: str, namespace: str = "", uid: str = "") -> None:
        self.requested.append(("delete", name, uid))


def written(*effects: SchedulerEffect, leads: bool = True) -> tuple[Recorder, list[str]]:
    """Return the requests of these effects, and the refused evictions."""
    cluster, refused = Recorder(), list[str]()

    async def allowed() -> bool:
        return leads

    async def story() -> None:
        writer = StatusWriter(cluster, VirtualClock(), random.Random(1), allowed=allowed)  # type: ignore[arg-type]
        writer.refused = lambda effect, cause: refused.append(f"{effect.name}: {cause}")
        running = asyncio.create_task(writer.run())
        for effect in effects:
            writer.put(effect)
        await writer.drain(10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())
    return cluster, refused


def test_an_evicted_pod_is_marked_told_and_deleted_by_its_uid() -> None:
    cluster, refused = written(Evict("u1", "default", "low", "preempt"))
    conditions = next(body for verb, _, body in cluster.requested if verb == "patch")["conditions"]
    assert {condition["type"]: condition["reason"] for condition in conditions} == {
        "Ready": "Evict", "DisruptionTarget": "PreemptionByScheduler",
    }  # fmt: skip
    assert ("delete", "low", "u1") in cluster.requested
    assert ("create", "events", "Evict") in cluster.requested
    assert not refused


def test_without_the_lease_nobody_is_evicted_and_the_promise_is_undone() -> None:
    cluster, refused = written(Evict("u1", "default", "low", "preempt"), leads=False)
    assert not cluster.requested
    assert refused == ["low: this scheduler leads no longer"]


def test_a_pod_is_nominated_for_the_node_where_room_is_made_and_no_longer_when_there_is_none() -> None:
    cluster, _ = written(Nominate("u1", "default", "high", "n1"))
    assert cluster.requested == [("patch", "high", {"nominatedNodeName": "n1"})]
    cluster, _ = written(Nominate("u1", "default", "high", ""))
    assert cluster.requested == [("patch", "high", {"nominatedNodeName": None})]
