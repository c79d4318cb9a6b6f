"""Conditions, PodGroup and queue status, events and evictions: written beside the cycles, in order, the latest value wins.

The requests of conditions, statuses, events and evictions: an effect in, its requests out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import msgspec

from pumice.apps.service.lease import without_election
from pumice.effects.backoff import Backoff
from pumice.effects.recorder import EventRecorder, SpamFilter
from pumice.effects.tasks import Bell
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
from pumice.wire.times import stamp
from pumice.wire.volcano import COMPLETED, HYPER_NODES, INQUEUE, POD_GROUPS, QUEUES, RUNNING, PodGroupCondition

MARKS_WAIT = 1.0
"""Seconds that an eviction waits for its marks to be written."""


@dataclass(slots=True)
class StatusRequests:
    """The requests that write statuses. ``report`` takes an event that belongs to an eviction."""

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

    async def gone(self, effect: Evict, error: ApiError) -> bool:
        """Return whether that answer means that the pod is gone or goes. A conflict may: another pod may have its name by now."""
        if error.code != 409:
            return error.code == 404
        try:
            meta = (await self.cluster.get(PODS, effect.name, effect.namespace))["metadata"]
        except ApiError as unknown:
            return unknown.code == 404
        return meta["uid"] != effect.uid or "deletionTimestamp" in meta

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


log = logging.getLogger("pumice.scheduler.status")

ATTEMPTS, AGAIN = 6, Backoff(0.1, 6.4)
OVERTAKEN = 2.0
"""Seconds for which a Binding waits at most for a condition of its pod that is on its way."""
REFUSED = frozenset({400, 403, 405, 422})
"""Answers to an eviction that asking again does not change."""
FINAL = (403, 404, 422)
"""Refusals of other writes after which they are not tried again."""
NOT_NOW = REFUSED | {409, 429}
"""The same by the Eviction API: a PodDisruptionBudget allows none now, or it is another pod by now."""
BACKLOG_LIMIT = 100_000
GIVE_WAY = 0.02
"""Seconds between two writes of events and status while many Bindings are on their way: each costs the processor as much as a
Binding, and ten thousand pods that wait have ten thousand conditions to be told."""
GIVE_WAY_AT_MOST = 30.0
"""After so many seconds without a pause of the Bindings they are written as fast as they come."""
STANDS = 1.0
"""Seconds for which the status of a group that stands waits, as upstream's for its next session: its pods start, and one write
tells of both. So does what a queue holds, which each Binding changes."""
NUMBERS = 5.0
"""Seconds for which the status of a group waits of which only numbers are new: where 200 pods go, or come, each changes them."""
LAST_WORD = 4.0
"""Seconds for which the status of a group that has ended waits: most go then, and are written for nobody."""
MANY, MOMENT = 8, 0.5
"""Groups that are let in, and the seconds within which so many are many: as urgent as Bindings."""


@dataclass(slots=True)
class _Lane:
    """Writes in their order, the latest value a key, and who waits for one. Each waits for ``pause`` seconds."""

    pause: float = 0.0
    todo: OrderedDict[tuple[str, ...], SchedulerEffect] = field(default_factory=OrderedDict)
    bell: Bell = field(default_factory=Bell)


@dataclass(slots=True)
class StatusWriter:
    """A queue of writes keyed by what they write; of ``events`` those are written that ``spam`` admits.

    While ``busy`` says that many Bindings are on their way, writes give way to them for a while: few pass.
    """

    cluster: Cluster
    clock: Clock
    rng: Random
    component: str = "volcano"
    workers: int = 8
    events: bool = True
    spam: SpamFilter = field(default_factory=SpamFilter)
    busy: Callable[[], bool] = lambda: False
    allowed: Callable[[], Awaitable[bool]] = without_election
    """True where this scheduler leads: nothing is written without the lease."""
    refused: Callable[[Evict, str], None] = lambda effect, cause: None
    """Told of an eviction that the API server refuses for good."""
    shut: Callable[[OpenGate], None] = lambda effect: None
    """Told of a gate that could not be taken off."""
    admitting: int = 32
    """Groups that are let in side by side: their pods are made after that, by controllers that wait for it."""
    _rest: _Lane = field(default_factory=_Lane)
    _evictions: _Lane = field(default_factory=_Lane)
    """Apart from the rest: no backlog and no write that hangs keeps them waiting, and none of them is dropped."""
    _let_in: _Lane = field(default_factory=_Lane)
    """PodGroups that may have their pods made, and gates of pods: no Binding comes before them, so they give way to none."""
    _standing: _Lane = field(default_factory=lambda: _Lane(STANDS))
    _last_words: _Lane = field(default_factory=lambda: _Lane(LAST_WORD))
    _numbers: _Lane = field(default_factory=lambda: _Lane(NUMBERS))
    _due: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Until when each waits of what waits."""
    _admitted: deque[float] = field(default_factory=lambda: deque(maxlen=MANY))
    """When the last groups were let in."""
    _hurry: bool = False
    """True if nothing waits any more, for this is the end."""
    _writing: dict[tuple[str, ...], bool] = field(default_factory=dict)
    """Keys on their way, each by one worker at a time, so that an older value never overtakes a newer one; and whether the
    value is still wanted."""
    _busy_since: float | None = None
    _next_turn: float = 0.0
    _requests: StatusRequests = field(init=False)

    def __post_init__(self) -> None:
        self._requests = StatusRequests(self.cluster, self.clock, self.component, self.put)

    def put(self, effect: SchedulerEffect) -> None:
        key = self._key(effect)
        if key is None:
            return
        if isinstance(effect, PodCondition) and effect.event:
            self.put(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Warning", "FailedScheduling",
                           effect.message))  # fmt: skip
        lane = self._lane(effect)
        for other in self._lanes:
            if other is not lane:
                other.todo.pop(key, None)
        if lane.pause and key not in lane.todo:
            self._due[key] = self.clock.monotonic() + lane.pause
        lane.todo[key] = effect
        if lane is self._let_in:
            self._admitted.append(self.clock.monotonic())
        while len(self._rest.todo) > BACKLOG_LIMIT:
            self._rest.todo.popitem(last=False)
        lane.bell.ring()

    @property
    def _lanes(self) -> tuple[_Lane, ...]:
        return self._rest, self._evictions, self._let_in, self._standing, self._last_words, self._numbers

    def _lane(self, effect: SchedulerEffect) -> _Lane:
        if isinstance(effect, Evict):
            return self._evictions
        if isinstance(effect, OpenGate):
            return self._let_in
        if isinstance(effect, QueueAllocated):
            return self._standing
        if not isinstance(effect, GroupStatus):
            return self._rest
        if effect.phase == INQUEUE and not effect.conditions:
            return self._let_in
        if effect.minor:  # what it belongs to may not be written yet, and shall not wait for its numbers
            key = self._key(effect)
            return next((lane for lane in self._lanes if key in lane.todo), self._numbers)
        return {RUNNING: self._standing, COMPLETED: self._last_words}.get(effect.phase, self._rest)

    def forget(self, uid: str) -> None:
        """The pod was bound: a condition that is not yet written is out of date."""
        self._drop(("pod", uid))

    def forget_group(self, namespace: str, name: str) -> None:
        """It is gone, and its status with it."""
        self._drop(("group", namespace, name))

    def _drop(self, key: tuple[str, ...]) -> None:
        for lane in self._lanes:
            lane.todo.pop(key, None)
        self._due.pop(key, None)
        if key in self._writing:
            self._writing[key] = False

    def overtaking(self, uid: str) -> Awaitable[None] | None:
        """The write that a Binding of the pod waits for: a condition on its way, which would call a bound pod pending."""
        return self._landed(("pod", uid)) if ("pod", uid) in self._writing else None

    async def _landed(self, key: tuple[str, ...]) -> None:
        deadline = self.clock.monotonic() + OVERTAKEN
        while key in self._writing and self.clock.monotonic() < deadline:
            await self.clock.sleep(0.005)

    @property
    def backlog(self) -> int:
        return len(self._rest.todo) + len(self._let_in.todo)

    async def run(self) -> None:
        """Write for ever. What is on its way when this is cancelled is written by the next run or flush."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.workers):
                group.create_task(self._work(self._rest, self._gives_way))
                group.create_task(self._work(self._evictions, lambda: 0.0))
                for lane in (self._standing, self._last_words, self._numbers):
                    group.create_task(self._work(lane, partial(self._waits_its_turn, lane)))
            for _ in range(self.admitting):
                group.create_task(self._work(self._let_in, lambda: 0.0))

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is left to write, at most that long."""
        deadline = self.clock.monotonic() + seconds
        while (self._left() or self._writing) and self.clock.monotonic() < deadline:
            await self.clock.sleep(0.01)

    def _left(self) -> bool:
        return any(lane.todo for lane in self._lanes)

    async def flush(self, seconds: float) -> None:
        """Write what is left, at most that long, when nobody runs any more."""
        self._hurry = True
        if self._left():
            async with asyncio.TaskGroup() as group:
                workers = group.create_task(self.run())
                await self.drain(seconds)
                workers.cancel()

    def _waits_in(self, lane: _Lane) -> float:
        """Return how many seconds the next of a lane waits."""
        key = next(iter(lane.todo), None)
        return 0.0 if key is None or self._hurry else max(0.0, self._due.get(key, 0.0) - self.clock.monotonic())

    def _waits_its_turn(self, lane: _Lane) -> float:
        return self._waits_in(lane) or self._gives_way()

    def _many_are_let_in(self) -> bool:
        return len(self._admitted) == MANY and self.clock.monotonic() - self._admitted[0] < MOMENT

    def _gives_way(self) -> float:
        """Return how many seconds to wait now."""
        if not (self.busy() or self._many_are_let_in()):
            self._busy_since = None
            return 0.0
        now = self.clock.monotonic()
        if self._busy_since is None:
            self._busy_since, self._next_turn = now, now + GIVE_WAY
        if now < self._next_turn and now - self._busy_since < GIVE_WAY_AT_MOST:
            return GIVE_WAY
        self._next_turn = now + GIVE_WAY
        return 0.0

    async def _work(self, lane: _Lane, gives_way: Callable[[], float]) -> None:
        while True:
            if pause := gives_way():
                await self.clock.sleep(pause)
                continue
            key = next((key for key in lane.todo if key not in self._writing), None)
            if key is None:
                await lane.bell.wait()
                continue
            effect = lane.todo.pop(key)
            self._due.pop(key, None)
            self._writing[key] = True
            try:
                await self._write(key, effect)
            except asyncio.CancelledError:
                if self._writing[key] and not isinstance(effect, Event) and not self._waits(key):
                    lane.todo[key] = effect
                raise
            finally:
                del self._writing[key]
                for waiting in self._lanes:
                    if key in waiting.todo:
                        waiting.bell.ring()

    async def _write(self, key: tuple[str, ...], effect: SchedulerEffect) -> None:
        attempt = 0
        must_go = isinstance(effect, Evict) and not effect.gently  # who was told to go must go
        while self._writing[key] and (attempt < ATTEMPTS or must_go):
            if not await self.allowed():
                if isinstance(effect, Evict):
                    self.refused(effect, "this scheduler leads no longer")
                return
            try:
                await self._requests.write(effect)
                return
            except ApiError as error:
                if isinstance(effect, Evict) and error.code in (NOT_NOW if effect.gently else REFUSED):
                    await self._requests.stays(effect, error.message)
                    self.refused(effect, error.message)
                    return
                final = await self._requests.gone(effect, error) if isinstance(effect, Evict) else error.code in FINAL
                if final or isinstance(effect, Event):
                    log.debug("not written %s: %s", effect, error)
                    if isinstance(effect, OpenGate):
                        self.shut(effect)
                    return
                if self._waits(key):
                    return  # a newer value is waiting
                await self.clock.sleep(AGAIN.pause(attempt, self.rng, least=error.retry_after))
                attempt += 1
        if self._writing[key]:
            log.warning("given up after %d attempts: %s", ATTEMPTS, effect)
            if isinstance(effect, Evict):
                self.refused(effect, f"the API server did not carry it out in {ATTEMPTS} attempts")
            if isinstance(effect, OpenGate):
                self.shut(effect)

    def _waits(self, key: tuple[str, ...]) -> bool:
        return any(key in lane.todo for lane in self._lanes)

    def _key(self, effect: SchedulerEffect) -> tuple[str, ...] | None:
        match effect:
            case PodCondition():
                return ("pod", effect.uid)
            case GroupStatus():
                return ("group", effect.namespace, effect.name)
            case QueueAllocated():
                return ("queue", effect.name)
            case HyperNodeStatus():
                return ("hypernode", effect.name)
            case Evict():
                return ("evict", effect.uid)
            case Nominate():
                return ("nominate", effect.uid)
            case OpenGate():
                return ("gate", effect.uid)
            case Event():
                key = ("event", effect.uid, effect.reason, effect.message)
                said = self.events and (key in self._rest.todo or self.spam.admits(effect, self.clock.monotonic()))
                return key if said else None
        return None
