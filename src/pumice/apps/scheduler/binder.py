"""Bindings on their way: concurrent and bounded, and what to believe when one is answered by an error.

A Binding that was answered by a timeout may have been done all the same, so the pod is looked at before anything is
given back. A gang's Bindings are repeated on the same node until they are in, are refused for good, or their time is up; time
in which nobody answers does not count.

The handling of a Binding's answer: the scheduler's state follows it, and a gang that cannot stand whole is given up.

Of a gang that is given up the members that somebody makes anew are evicted. A pod without a controller would be lost with all
that its owner wrote down: it stays, and the rest of its gang is tried again and again, unless an option says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

import msgspec

from pumice.apps.scheduler.node_locks import NodeLocks
from pumice.apps.scheduler.status_writer import StatusWriter
from pumice.apps.scheduler.volume_wait import POD_WENT, VolumeWait
from pumice.apps.service.lease import without_election
from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import Bind, Event, Evict, OpenGate, PodCondition
from pumice.journal.recorder import Doorway
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.scheduler.inputs import BindFailed, Bound, Evicting, EvictionRefused, GateStays, HoldBack
from pumice.scheduler.state.jobs import Job, Status, Task
from pumice.wire.kinds import PODS

log = logging.getLogger("pumice.scheduler.bind")

GANG_PATIENCE = 5.0
"""Seconds for which a gang's Binding is repeated before the gang is given up as a whole."""
COUNTED_SILENCE = 1.0
"""Of a Binding that is not answered by an API server that answers otherwise, so many seconds count at most: the server may have
been away for the rest of them."""
BIND_AGAIN = Backoff(0.1, 1.0)
LOOK_AGAIN = Backoff(0.1, 5.0)
"""At a pod of which nobody knows whether it is bound."""
UNTIL_ALLOWED = 0.5
CAUTIOUS = frozenset({0, 401, 404, 408, 409, 410, 429, 500, 502, 503, 504})
"""Answers after which the pod is looked at: it may be bound, or still there, in spite of them. Others are refusals for good."""

_encode = msgspec.json.Encoder().encode


class Outcome(Enum):
    """The final result of one Binding."""

    BOUND = "bound"
    FAILED = "failed"
    GONE = "gone"  # the pod is not there any more, or is another one of that name
    ELSEWHERE = "elsewhere"  # somebody else bound it


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt. ``final``: trying again at once would be refused again. ``spent``: seconds of it that count
    as the gang's, because the API server was there."""

    outcome: Outcome
    error: str = ""
    final: bool = True
    spent: float = 0.0


@dataclass(slots=True)
class Binder:
    """Sends Bindings and reports each outcome once by ``done(effect, outcome, error text)``."""

    cluster: Cluster
    clock: Clock
    rng: Random
    done: Callable[[Bind, Outcome, str], None]
    volumes: VolumeWait
    concurrency: int = 32
    locks: Callable[[], NodeLocks | None] = lambda: None
    """The node locks, while the configuration asks for them (deviceshare.NodeLockEnable)."""
    sent: Callable[[Bind], None] = lambda effect: None
    """Told of each Binding right before it is sent for the first time."""
    took: Callable[[str, float], None] = lambda stage, seconds: None
    """Told how long PreBind (volumes, locks) and Bind (the call) took."""
    allowed: Callable[[], Awaitable[bool]] = without_election
    """True if Bindings may be sent now. Without the lease they wait: another scheduler may lead, and place others there."""
    not_ours: Callable[[Bind], str] = lambda effect: ""
    """Why a Binding may not be sent though this scheduler leads: another one has its node by now. Empty where it may."""
    given_up: Callable[[Bind], str] = lambda effect: ""
    """Why the gang of a Binding is not bound any more, while it is not; then the rest of it is not sent."""
    overtaking: Callable[[Bind], Awaitable[None] | None] = lambda effect: None
    """The writes on their way that the Binding must not overtake."""
    begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.create_task
    """Begins a task; the daemon's group, so that none outlives it or fails unseen."""
    on_way: dict[str, str] = field(default_factory=dict)
    """By the pods' UIDs, the nodes of Bindings that may come in at any time."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.Semaphore | None = None
    _one_less: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, effect: Bind) -> None:
        """Bind that pod. The members of a gang are sent in one go: the event loop has no turn between them."""
        self.volumes.expect(effect)
        task = self.begin(self._run(effect))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._one_less.set()

    @property
    def in_flight(self) -> int:
        """Bindings on their way; what still waits for volumes is none yet."""
        return len(self._running) - self.volumes.waiting

    def pod_over(self, uid: str) -> None:
        """A pod has ended or is gone: what it has of a node's lock is given back."""
        locks = self.locks()
        if locks is not None and (lock := locks.left_by(uid)) is not None:
            self.begin(locks.release(lock))

    async def drain(self) -> None:
        """Wait until every Binding on its way is answered. Those that still wait for volumes are not sent any more."""
        while self.in_flight:
            self._one_less.clear()
            await self._one_less.wait()

    async def abandon(self) -> None:
        """Send nothing any more. What was sent and is not answered is for a successor to find out."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, effect: Bind) -> None:
        try:
            await self._carry_out(effect)
        except Exception:  # nobody waits for this task: its pod would keep its place, unbound, for ever
            log.exception("binding failed pod=%s/%s", effect.namespace, effect.name)
            self.done(effect, Outcome.FAILED, "an error of the scheduler's own; its log says more")

    async def _carry_out(self, effect: Bind) -> None:
        if self._room is None:
            self._room = asyncio.Semaphore(self.concurrency)
        locks = self.locks()
        began = self.clock.monotonic()
        lock, error = None, await self.volumes.ready(effect)
        if locks is not None and not error:
            lock, error = await locks.take(effect)
        self.took("PreBind", self.clock.monotonic() - began)
        if error:
            await self.volumes.undo(effect)
            self.done(effect, Outcome.GONE if error == POD_WENT else Outcome.FAILED, error)
            return
        if (earlier := self.overtaking(effect)) is not None:
            await earlier
        self.sent(effect)
        outcome, error = await self._bind(effect)
        if locks is not None and lock is not None and outcome is not Outcome.BOUND:
            await locks.release(lock)
        if outcome in (Outcome.FAILED, Outcome.GONE):
            await self.volumes.undo(effect)
        self.done(effect, outcome, error)

    async def _bind(self, effect: Bind) -> tuple[Outcome, str]:
        """Send it; a gang's again and again until its patience ends."""
        assert self._room is not None
        spent, tries = 0.0, 0
        while True:
            async with self._room:
                while not await self.allowed():
                    await self.clock.sleep(UNTIL_ALLOWED)
                if error := self.not_ours(effect) or (self.given_up(effect) if effect.gang else ""):
                    return Outcome.FAILED, error
                began, self.on_way[effect.uid] = self.clock.monotonic(), effect.node
                try:
                    answer = await self._once(effect)
                finally:
                    del self.on_way[effect.uid]
                self.took("Bind", self.clock.monotonic() - began)
            spent += answer.spent + BIND_AGAIN.pause(tries)
            if answer.final or not effect.gang or spent > GANG_PATIENCE:
                return answer.outcome, answer.error
            await self.clock.sleep(BIND_AGAIN.pause(tries, self.rng))
            tries += 1

    async def _once(self, effect: Bind) -> Answer:
        began = self.clock.monotonic()
        try:
            await self._send(effect)
        except ApiError as error:
            log.info("binding refused pod=%s/%s node=%s cause=%s", effect.namespace, effect.name, effect.node, error)
            if error.code not in CAUTIOUS:
                return Answer(Outcome.FAILED, error.message)
            took, requested = self.clock.monotonic() - began, self.clock.monotonic()
            outcome, text = await self._look(effect, error)
            there = self.clock.monotonic() - requested < COUNTED_SILENCE
            return Answer(outcome, text, outcome is not Outcome.FAILED, min(took, COUNTED_SILENCE) if there else 0.0)
        return Answer(Outcome.BOUND)

    async def _send(self, effect: Bind) -> None:
        """Raises ApiError. A gang cannot wait as long as a request may last, or as a busy server asks for."""
        if not effect.gang:
            await self.cluster.bind(effect.namespace, effect.name, binding_body(effect))
            return
        try:
            async with asyncio.timeout(GANG_PATIENCE):
                await self.cluster.bind(effect.namespace, effect.name, binding_body(effect))
        except TimeoutError as error:
            raise ApiError(0, "Timeout", f"no answer within {GANG_PATIENCE:g} s") from error

    async def _look(self, effect: Bind, error: ApiError) -> tuple[Outcome, str]:
        """Read the pod from the API server after an answer that may be wrong. It is asked until it answers: as long as nobody
        knows, the pod keeps its place and its cards."""
        pod = await self.find(effect.namespace, effect.name)
        if pod is None:
            return Outcome.GONE, "it is not there any more"
        if pod.get("metadata", {}).get("uid") != effect.uid:
            return Outcome.GONE, "another pod has taken its name"
        node = pod.get("spec", {}).get("nodeName", "")
        if node:
            return (Outcome.BOUND, "") if node == effect.node else (Outcome.ELSEWHERE, f"it runs on {node}")
        return Outcome.FAILED, error.message

    async def find(self, namespace: str, name: str) -> Json | None:
        """The pod as the API server holds it, None when it holds none. Asked for until there is an answer."""
        tries = 0
        while True:
            try:
                return await self.cluster.get(PODS, name, namespace)
            except ApiError as error:
                if error.code == 404:
                    return None
                await self.clock.sleep(LOOK_AGAIN.pause(tries, self.rng))
                tries += 1


def binding_body(effect: Bind) -> bytes:
    """The Binding with its annotations (Volcano pkg/scheduler/cache/cache.go). Its uid makes the API server refuse a
    successor."""
    metadata: dict[str, object] = {"name": effect.name, "namespace": effect.namespace, "uid": effect.uid}
    if effect.annotations:
        metadata["annotations"] = effect.annotations
    target = {"apiVersion": "v1", "kind": "Node", "name": effect.node}
    return _encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


scheduler_log = logging.getLogger("pumice.scheduler")

BROKEN_GANG = "its gang could not be bound as a whole"
REMEMBERED_GANGS = 1000


@dataclass(slots=True)
class BindResults:
    """Takes each Binding's outcome once (``Binder.done``)."""

    enter: Doorway
    metrics: SchedulerMetrics
    writer: StatusWriter
    clock: Clock
    wake: asyncio.Event
    evict_bare_pods: bool = False
    _broken_gangs: dict[tuple[str, str], str] = field(default_factory=dict)
    """Gang and attempt to why it was given up."""
    _members: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Gang and attempt to the members whose Bindings were accepted."""

    def take(self, effect: Bind, outcome: Outcome, error: str) -> None:
        if outcome is Outcome.BOUND:
            self._bound(effect)
        elif outcome is Outcome.FAILED:
            text = f"failed to bind to node {effect.node}: {error}"
            self.enter(BindFailed(effect.uid, self.clock.monotonic()))
            self.metrics.failed()
            self.writer.put(PodCondition(effect.uid, effect.namespace, effect.name, "SchedulerError", text))
        elif outcome is Outcome.GONE:
            self.enter(BindFailed(effect.uid, self.clock.monotonic() + 1))  # the watch will say that it is gone
        if effect.gang and outcome in (Outcome.FAILED, Outcome.GONE):
            self._give_up_gang(effect, error)
        self.metrics.moves += 1
        self.wake.set()

    def sent(self, effect: Bind) -> None:
        """The Binding is about to be sent (``Binder.sent``)."""
        self.metrics.reached("PreBound", self.enter.engine.state.tasks.get(effect.uid), self.clock.now())

    def _bound(self, effect: Bind) -> None:
        task = self.enter(Bound(effect.uid))
        self.metrics.reached("Bound", task, self.clock.now())
        text = f"Successfully assigned {effect.namespace}/{effect.name} to {effect.node}"
        self.writer.put(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Normal", "Scheduled", text))
        if effect.gang:
            self._members.setdefault((effect.gang, effect.attempt), []).append(effect.uid)
            if len(self._members) > REMEMBERED_GANGS:
                self._members.pop(next(iter(self._members)))
        if task is not None and (effect.gang, effect.attempt) in self._broken_gangs:
            self._evict(task)

    def given_up(self, effect: Bind) -> str:
        """Return why the gang of a Binding that is still to be sent was given up; empty while it was not."""
        cause = self._broken_gangs.get((effect.gang, effect.attempt), "")
        return cause and f"{BROKEN_GANG}: {cause}"

    def _give_up_gang(self, effect: Bind, error: str) -> None:
        """A member could not be bound: those that could are evicted, so that no partial gang holds cards, and it is tried again
        after a pause."""
        job, attempt = self.enter.engine.state.jobs.get(effect.gang), (effect.gang, effect.attempt)
        if job is None or job.ready_count >= job.min_available or attempt in self._broken_gangs:
            return
        cause = f"{effect.name} on node {effect.node}: {error}"
        self._broken_gangs[attempt] = cause
        if len(self._broken_gangs) > REMEMBERED_GANGS:
            self._broken_gangs.pop(next(iter(self._broken_gangs)))
        pause = self.enter(HoldBack(job.key, f"{BROKEN_GANG}: {cause}", self.clock.monotonic()))
        self.writer.put(job.event("Warning", "FailedScheduling", f"{BROKEN_GANG}: {cause}; it is tried again in {pause:g} s"))
        # Of a gang that stood before, what ran goes on.
        self._evict_all(job, self._members.get(attempt, []) if job.stood else job.tasks)

    async def finish_gangs(self, find: Callable[[str, str], Awaitable[object]]) -> None:
        """At the start: gangs whose Bindings another scheduler did not finish are completed in their time, or given up. ``find``
        asks the API server for a pod until it answers: time in which it was away does not count."""
        found = self.enter.engine.half_bound()
        while found:
            await self.clock.sleep(GANG_PATIENCE)
            requested = self.clock.monotonic()
            member = next(iter(found[0].tasks.values()), None)
            if member is not None:
                await find(member.namespace, member.name)
            left = self.enter.engine.half_bound()
            found = [job for job in found if job in left]
            if self.clock.monotonic() - requested < COUNTED_SILENCE:
                break
        for job in found:
            self._evict_all(job, job.tasks)
            self.wake.set()

    def _evict_all(self, job: Job, members: Iterable[str]) -> None:
        bound = [task for uid in members if (task := job.tasks.get(uid)) and task.status in (Status.BOUND, Status.RUNNING)]
        gone = [task for task in bound if self._evict(task)]
        if gone:
            self.writer.put(job.event("Normal", "Evict", BROKEN_GANG))
        if len(gone) < len(bound):
            text = f"{len(bound) - len(gone)} of its pods stay: no controller would make them anew; the others are tried again"
            self.writer.put(job.event("Warning", "PartlyBound", text))

    # -- evictions ------------------------------------------------------------------------------------------------

    def _evict(self, task: Task) -> bool:
        """Delete the pod, unless it would be gone for good."""
        if not (task.controlled or self.evict_bare_pods):
            return False
        scheduler_log.warning("evicting pod=%s reason=%s", task.key, BROKEN_GANG)
        self.metrics.evicted("gang")
        self.enter(Evicting(task.uid))
        self.writer.put(Evict(task.uid, task.namespace, task.name, BROKEN_GANG))
        return True

    def eviction_refused(self, effect: Evict, error: str) -> None:
        """The API server will not delete the pod (``StatusWriter.refused``): it stays, and is counted as what it was."""
        scheduler_log.warning("eviction refused pod=%s/%s cause=%s", effect.namespace, effect.name, error)
        self.enter(EvictionRefused(effect.uid, self.clock.monotonic()))
        text = f"it was to be evicted, because of {effect.reason}, which was refused: {error}"
        self.writer.put(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Warning", "EvictionRefused", text))
        self.metrics.moves += 1
        self.wake.set()

    def gate_stays(self, effect: OpenGate) -> None:
        """Its queue lets the pod in anew after a while."""
        self.enter(GateStays(effect.uid, self.clock.monotonic()))
        self.wake.set()
