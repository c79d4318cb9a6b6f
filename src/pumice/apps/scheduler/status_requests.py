"""The requests of conditions, statuses, events and evictions: an effect in, its requests out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import (
    Event,
    Evict,
    GroupStatus,
    HyperNodeStatus,
    Nominate,
    OpenGate,
    PodCondition,
    QueueAllocated,
    SchedulerEffect,
)
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import PODS, eviction
from pumice.wire.names import QUEUE_GATE
from pumice.wire.volcano import HYPER_NODES, POD_GROUPS, QUEUES, PodGroupCondition, stamp

log = logging.getLogger("pumice.scheduler.status")

MARKS_WAIT = 1.0
"""Seconds that an eviction waits for its marks to be written."""


@dataclass(slots=True)
class StatusRequests:
    """``report`` takes an event that belongs to an eviction."""

    cluster: Cluster
    clock: Clock
    component: str
    report: Callable[[Event], None]
    _recorder: EventRecorder = field(init=False)

    def __post_init__(self) -> None:
        self._recorder = EventRecorder(self.cluster, self.clock, self.component, log, action="Scheduling")

    async def write(self, effect: SchedulerEffect) -> None:
        match effect:
            case PodCondition():
                await self._patch_pod(effect.namespace, effect.name, effect.uid, [_condition(
                    "PodScheduled", "False", effect.reason, effect.message, self.clock.now())])  # fmt: skip
            case GroupStatus():
                status: dict[str, Any] = {
                    "phase": effect.phase,
                    "conditions": [_dated(condition, self.clock.now()) for condition in effect.conditions],
                    "running": effect.running, "succeeded": effect.succeeded, "failed": effect.failed,
                }  # fmt: skip
                await self.cluster.patch(POD_GROUPS, effect.name, {"status": status}, effect.namespace)
            case QueueAllocated():
                await self._write_queue(effect)
            case HyperNodeStatus():
                status = {"nodeCount": effect.node_count, "conditions": msgspec.to_builtins(effect.conditions)}
                await self.cluster.patch(HYPER_NODES, effect.name, {"status": status}, subresource="status")
            case Event():
                await self._recorder.write(effect)
            case Evict(gently=True):
                await self._evict(effect)
            case Evict():
                await self._delete(effect)
            case Nominate():
                body = {"status": {"nominatedNodeName": effect.node or None}}
                await self.cluster.patch(PODS, effect.name, body, effect.namespace, subresource="status", kind="strategic")
            case OpenGate():
                gates = [{"$patch": "delete", "name": QUEUE_GATE}]
                opened = {"metadata": {"uid": effect.uid}, "spec": {"schedulingGates": gates}}
                await self.cluster.patch(PODS, effect.name, opened, effect.namespace, kind="strategic")

    async def _patch_pod(self, namespace: str, name: str, uid: str, conditions: list[dict[str, Any]]) -> None:
        """The uid keeps it off a successor of the same name."""
        body = {"metadata": {"uid": uid}, "status": {"conditions": conditions}}
        await self.cluster.patch(PODS, name, body, namespace, subresource="status", kind="strategic")

    async def _write_queue(self, effect: QueueAllocated) -> None:
        # A merge patch keeps resources that are no longer allocated unless they are named null.
        queue = await self.cluster.get(QUEUES, effect.name)
        old = (queue.get("status") or {}).get("allocated") or {}
        allocated: dict[str, Any] = {**dict.fromkeys(old, None), **effect.allocated}
        await self.cluster.patch(QUEUES, effect.name, {"status": {"allocated": allocated}}, subresource="status")

    async def _delete(self, effect: Evict) -> None:
        """Mark the pod and delete it (Volcano pkg/scheduler/cache/cache.go). The marks are for people: without them it goes
        all the same."""
        text = f"Pod is evicted, because of {effect.reason}"
        self.report(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Warning", "Evict", text))
        now = self.clock.now()
        why = f"{self.component}: preempting to accommodate a higher priority pod"
        conditions = [
            _condition("Ready", "False", "Evict", text, now),
            _condition("DisruptionTarget", "True", "PreemptionByScheduler", why, now),
        ]
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(MARKS_WAIT):
                await self._patch_pod(effect.namespace, effect.name, effect.uid, conditions)
        await self.cluster.delete(PODS, effect.name, effect.namespace, uid=effect.uid)

    async def _evict(self, effect: Evict) -> None:
        """Ask for its eviction: the API server marks it, where its PodDisruptionBudgets let it go."""
        request = eviction(effect.namespace, effect.name, effect.uid)
        await self.cluster.create(PODS, request, effect.namespace, subresource="eviction", name=effect.name)
        text = f"Pod is evicted, because of {effect.reason}"
        self.report(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Warning", "Evict", text))

    async def stays(self, effect: Evict, cause: str) -> None:
        """The pod is not deleted: take back the mark that said so."""
        if effect.gently:
            return  # it never had one
        why = f"the eviction was refused: {cause}"
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(MARKS_WAIT):
                await self._patch_pod(effect.namespace, effect.name, effect.uid, [
                    _condition("DisruptionTarget", "False", "EvictionRefused", why, self.clock.now())])  # fmt: skip


def _dated(condition: PodGroupCondition, now: float) -> dict[str, Any]:
    """As it is written; a condition that a cycle made has no time yet, for cycles read no clock."""
    written: dict[str, Any] = msgspec.to_builtins(condition)
    return {"lastTransitionTime": stamp(now), **written}


def _condition(type_: str, status: str, reason: str, message: str, now: float) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(now)}
