"""The handling of a Binding's answer: the scheduler's state follows it, and a gang that cannot stand whole is given up.

Of a gang that is given up the members that somebody makes anew are evicted. A pod without a controller would be lost with all
that its owner wrote down: it stays, and the rest of its gang is tried again and again, unless an option says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from pumice.apps.scheduler.binder import COUNTED_SILENCE, GANG_PATIENCE, Outcome
from pumice.apps.scheduler.status_writer import StatusWriter
from pumice.effects.vocabulary import Bind, Event, Evict, OpenGate, PodCondition
from pumice.journal.recorder import Doorway
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.ports.clock import Clock
from pumice.scheduler.inputs import BindFailed, Bound, Evicting, EvictionRefused, GateStays, HoldBack
from pumice.scheduler.state.jobs import Job, Status, Task

log = logging.getLogger("pumice.scheduler")

BROKEN_GANG = "its gang could not be bound as a whole"
REMEMBERED_GANGS = 1000


@dataclass(slots=True)
class BindResults:
    """Takes each Binding's outcome once (``apps.binder.Binder.done``)."""

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
        """The Binding is about to be sent (``apps.binder.Binder.sent``)."""
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
        """Why the gang of a Binding that is still to be sent was given up; empty while it was not."""
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
        log.warning("evicting pod=%s reason=%s", task.key, BROKEN_GANG)
        self.metrics.evicted("gang")
        self.enter(Evicting(task.uid))
        self.writer.put(Evict(task.uid, task.namespace, task.name, BROKEN_GANG))
        return True

    def eviction_refused(self, effect: Evict, error: str) -> None:
        """The API server will not delete the pod (``StatusWriter.refused``): it stays, and is counted as what it was."""
        log.warning("eviction refused pod=%s/%s cause=%s", effect.namespace, effect.name, error)
        self.enter(EvictionRefused(effect.uid, self.clock.monotonic()))
        text = f"it was to be evicted, because of {effect.reason}, which was refused: {error}"
        self.writer.put(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Warning", "EvictionRefused", text))
        self.metrics.moves += 1
        self.wake.set()

    def gate_stays(self, effect: OpenGate) -> None:
        """Its queue lets the pod in anew after a while."""
        self.enter(GateStays(effect.uid, self.clock.monotonic()))
        self.wake.set()
