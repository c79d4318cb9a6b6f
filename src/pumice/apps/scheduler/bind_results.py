"""What follows from the answer to a Binding: the engine is told, and a gang that cannot stand whole is evicted whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from pumice.apps.scheduler.binder import GANG_PATIENCE, Outcome
from pumice.apps.scheduler.status_writer import StatusWriter
from pumice.engine.effects import Bind, Event, Evict, PodCondition
from pumice.engine.engine import Engine
from pumice.engine.state.jobs import Job, Status
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.ports.clock import Clock
from pumice.wire import volcano

log = logging.getLogger("pumice.scheduler")

BROKEN_GANG = "its gang could not be bound as a whole"
REMEMBERED_GANGS = 1000


@dataclass(slots=True)
class BindResults:
    """Takes each Binding's outcome once (``apps.binder.Binder.done``)."""

    engine: Engine
    metrics: SchedulerMetrics
    writer: StatusWriter
    clock: Clock
    wake: asyncio.Event
    _broken_gangs: dict[tuple[str, str], None] = field(default_factory=dict)
    _members: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Gang and attempt to the members whose Bindings were accepted."""

    def take(self, effect: Bind, outcome: Outcome, error: str) -> None:
        engine = self.engine
        if outcome is Outcome.BOUND:
            self._bound(effect)
        elif outcome is Outcome.FAILED:
            text = f"failed to bind to node {effect.node}: {error}"
            engine.bind_failed(effect.uid, self.clock.now())
            self.metrics.failed()
            self.writer.put(PodCondition(effect.uid, effect.namespace, effect.name, "SchedulerError", text))
        elif outcome is Outcome.GONE:
            engine.bind_failed(effect.uid, self.clock.now() + 1)  # the watch will say that it is gone
        if effect.gang and outcome in (Outcome.FAILED, Outcome.GONE):
            self._give_up_gang(effect)
        self.metrics.moves += 1
        self.wake.set()

    def sent(self, effect: Bind) -> None:
        """The Binding is about to be sent (``apps.binder.Binder.sent``)."""
        self.metrics.reached("PreBound", self.engine.state.tasks.get(effect.uid), self.clock.now())

    def _bound(self, effect: Bind) -> None:
        task = self.engine.bound(effect.uid)
        self.metrics.reached("Bound", task, self.clock.now())
        text = f"Successfully assigned {effect.namespace}/{effect.name} to {effect.node}"
        self.writer.put(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Normal", "Scheduled", text))
        if effect.gang:
            self._members.setdefault((effect.gang, effect.attempt), []).append(effect.uid)
            if len(self._members) > REMEMBERED_GANGS:
                self._members.pop(next(iter(self._members)))
        if (effect.gang, effect.attempt) in self._broken_gangs:
            self._evict(effect.uid, effect.namespace, effect.name)

    def _give_up_gang(self, effect: Bind) -> None:
        """A member could not be bound: the members that could are evicted, so that no partial gang holds cards."""
        job = self.engine.state.jobs.get(effect.gang)
        if job is None or job.ready_count >= job.min_available:
            return
        self._broken_gangs[effect.gang, effect.attempt] = None
        if len(self._broken_gangs) > REMEMBERED_GANGS:
            self._broken_gangs.pop(next(iter(self._broken_gangs)))
        if job.stood:  # what ran before goes on
            self._evict_all(job, self._members.get((effect.gang, effect.attempt), []))
        else:
            self._evict_all(job, job.tasks)

    async def finish_gangs(self) -> None:
        """At the start: gangs whose Bindings another scheduler did not finish are completed in their time, or evicted."""
        found = self.engine.half_bound()
        if not found:
            return
        await self.clock.sleep(GANG_PATIENCE)
        for job in self.engine.half_bound():
            if job in found:
                self._evict_all(job, job.tasks)
                self.wake.set()

    def _evict_all(self, job: Job, members: Iterable[str]) -> None:
        for task in [job.tasks[uid] for uid in members if uid in job.tasks]:
            if task.status in (Status.BOUND, Status.RUNNING):
                self._evict(task.uid, task.namespace, task.name)
        self.writer.put(Event("PodGroup", volcano.SCHEDULING_API, job.namespace, job.name, job.uid, "Normal", "Evict",
                              BROKEN_GANG))  # fmt: skip

    def _evict(self, uid: str, namespace: str, name: str) -> None:
        log.warning("evicting pod=%s/%s reason=%s", namespace, name, BROKEN_GANG)
        self.metrics.evicted("gang")
        self.engine.evicting(uid)
        self.writer.put(Evict(uid, namespace, name, BROKEN_GANG))
