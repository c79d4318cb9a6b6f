"""Evictions as they are carried out: marks, deletion, what becomes of them without the lease; and where a pod waits for room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pytest
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.status_writer import StatusWriter
from pumice.effects.vocabulary import Evict, Nominate, SchedulerEffect
from pumice.ports.cluster import ApiError, Json, Resource


class Recorder:
    """Remembers what was asked of the API server."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, str, Any]] = []
        self.answers: list[ApiError] = []
        """What the next evictions are refused with."""
        self.conflicts = 0
        """How many of the next deletions meet a conflict."""
        self.there: Json = {"uid": "u1"}
        """The metadata of the pod that has the name."""

    async def create(self, resource: Resource, obj: Json, namespace: str = "", *, subresource: str = "", name: str = "") -> Json:
        if subresource:
            self.requested.append((subresource, name, obj["deleteOptions"]["preconditions"]["uid"]))
            if self.answers:
                raise self.answers.pop(0)
        else:
            self.requested.append(("create", resource.plural, obj.get("reason")))
        return obj

    async def patch(self, resource: Resource, name: str, body: Json, namespace: str = "", **how: Any) -> Json:
        self.requested.append(("patch", name, body["status"]))
        return body

    async def delete(self, resource: Resource, name: str, namespace: str = "", uid: str = "") -> None:
        self.requested.append(("delete", name, uid))
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "Conflict", "the object has been modified")

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        return {"metadata": self.there}


def written(*effects: SchedulerEffect, leads: bool = True, answers: Iterable[ApiError] = (), conflicts: int = 0,
            there: Json | None = None) -> tuple[Recorder, list[str]]:  # fmt: skip
    """Return the requests of these effects, and the refused evictions."""
    cluster, refused = Recorder(), list[str]()
    cluster.conflicts, cluster.there = conflicts, there or cluster.there
    cluster.answers.extend(answers)

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


@pytest.mark.parametrize(("there", "times"), [
    ({"uid": "u1"}, 3), ({"uid": "u2"}, 1), ({"uid": "u1", "deletionTimestamp": "2027-01-01T00:00:00Z"}, 1)])  # fmt: skip
def test_a_deletion_that_meets_a_conflict_is_asked_for_again_while_the_pod_stays(there: Json, times: int) -> None:
    cluster, refused = written(Evict("u1", "default", "low", "preempt"), conflicts=2, there=there)
    assert cluster.requested.count(("delete", "low", "u1")) == times
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


MOVED = Evict("u1", "default", "low", "defrag", gently=True)


def test_a_pod_that_is_moved_is_evicted_by_the_api_that_asks_its_budgets_and_is_not_marked() -> None:
    cluster, refused = written(MOVED)
    assert cluster.requested == [("eviction", "low", "u1"), ("create", "events", "Evict")]
    assert not refused


@pytest.mark.parametrize("code", [403, 409, 422, 429])
def test_a_budget_that_allows_no_eviction_ends_it_at_once(code: int) -> None:
    cluster, refused = written(MOVED, answers=[ApiError(code, "Refused", "it would violate the budget")])
    assert cluster.requested == [("eviction", "low", "u1")]
    assert refused == ["low: it would violate the budget"]


def test_an_answer_that_was_lost_is_asked_for_again_and_one_that_never_comes_is_a_refusal() -> None:
    cluster, refused = written(MOVED, answers=[ApiError(500, "Lost", "lost")])
    assert cluster.requested == [*2 * [("eviction", "low", "u1")], ("create", "events", "Evict")]
    assert not refused
    _, refused = written(MOVED, answers=99 * [ApiError(500, "Lost", "several budgets")])
    assert refused == ["low: the API server did not carry it out in 6 attempts"]


def test_without_the_lease_no_pod_is_moved() -> None:
    cluster, refused = written(MOVED, leads=False)
    assert not cluster.requested
    assert refused == ["low: this scheduler leads no longer"]
