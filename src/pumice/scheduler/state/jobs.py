"""Pods, jobs (PodGroups) and queues as they know each other, with counts and sums kept up to date.

A queue owns its jobs, a job its tasks; each knows its owner again. What concerns a pod or a queue alone stands in ``tasks`` and
``queues``, which know nothing of jobs.

``Job.move`` and ``Job.join``/``leave`` are the only places where a task's status and the sums of job and queue change. Most of
tens of thousands of jobs are one running pod, alike: what jobs hold is therefore shared between equal ones, replaced and
never changed in place (``allocated``, ``inqueue``, ``elastic``, ``counts``, and the empty mappings).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from pumice.effects.vocabulary import Event, Severity
from pumice.scheduler.state.active_jobs import ActiveJobs
from pumice.scheduler.state.claim_charges import Part
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.queues import QueueRecord
from pumice.scheduler.state.resources import NOTHING, Vector, add, changed, exceeded, nothing, shared, spare, subtract
from pumice.scheduler.state.tasks import (
    ALLOCATED_STATUSES,
    DONE_STATUSES,
    MOVES,
    NO_BACKOFF,
    READY_STATUSES,
    SCHEDULED_STATUSES,
    Gate,
    IllegalMove,
    Reason,
    Retry,
    Status,
    TaskRecord,
    name_index,
    task_status,
)
from pumice.wire.names import SCHEDULER_NAME
from pumice.wire.volcano import INQUEUE, OPEN, PENDING, RUNNING, SCHEDULING_API, UNKNOWN, PodGroup, PodGroupCondition

# -- how many pods of a job stand, and whether its minimum and those of its roles are met ------------------------------


NO_COUNTS = (0,) * len(Status)
_COUNTS_KEPT = 4096
_counts: dict[tuple[tuple[int, ...], Status, int], tuple[int, ...]] = {}


def counted(counts: tuple[int, ...], status: Status, sign: int) -> tuple[int, ...]:
    """``counts`` with one more or less of a status; equal ones are one object."""
    key = counts, status, sign
    found = _counts.get(key)
    if found is None:
        if len(_counts) >= _COUNTS_KEPT:
            _counts.clear()
        found = _counts[key] = (*counts[:status], counts[status] + sign, *counts[status + 1 :])
    return found


_ROLE_VALID = READY_STATUSES | {Status.PIPELINED, Status.PENDING}


# -- tasks, queues and jobs --------------------------------------------------------------------------------------------


class Task(TaskRecord):
    """One pod of ours, or one of another scheduler that has a node."""

    job: Job | None = None

    @property
    def rank(self) -> int:
        """The priority that counts where pods of different jobs are compared."""
        return self.priority if self.job is None else self.job.priority

    def check(self, status: Status) -> None:
        """Raises IllegalMove where no path leads from its status to that one."""
        if status not in MOVES[self.status]:
            raise IllegalMove(f"{self.story()} and cannot become {status.label}")

    def story(self) -> str:
        """Return what is known of how it came to be what it is, for whoever looks for an error."""
        job = "no job" if self.job is None else f"job {self.job.key}, {self.job.phase or 'new'}"
        known = {
            "node": self.node, "gate": self.gate is not Gate.NONE and self.gate.name, "unresolvable": self.unresolvable,
            "tried": self.trial, "told": self.condition, "refused Bindings": self.backoff.times,
            "error": self.error and self.error.text,
        }  # fmt: skip
        said = "".join(f", {name}: {value}" for name, value in known.items() if value)
        return f"pod {self.key} (uid {self.uid}, class {self.cls.number}, {job}{said}) is {self.status.label}"


@dataclass(slots=True, eq=False)
class QueueState(QueueRecord):
    """One queue and the jobs in it."""

    jobs: dict[Job, None] = field(default_factory=dict)
    """In the order in which they came: a set's would depend on where they lie in memory, and no journal could play it again."""
    active: ActiveJobs[Job] = field(default_factory=ActiveJobs)
    waiters: dict[Job, None] = field(default_factory=dict)
    """Jobs with pending pods, in order of arrival."""
    changed: dict[QueueState, None] = field(default_factory=dict)
    """Place of queues of which what they hold or were promised has changed (``QueueTree.changed``)."""

    def stir(self) -> None:
        """Note that what it holds or was promised has changed."""
        self.changed[self] = None


class Job(Struct, eq=False):
    """One PodGroup with its tasks. ``group`` is None while only its pods are known; then it counts as a group of one
    when ``implicit`` (bare pods) and does not take part otherwise."""

    key: str
    namespace: str
    name: str
    queue: QueueState
    created: float = 0.0
    uid: str = ""
    group: PodGroup | None = None
    implicit: bool = False
    wait_until: float = 0.0
    """An owned bare pod waits this long for the PodGroup that the controller makes for its owner."""
    priority: int = 0
    min_resources: Vector | None = None
    phase: str = ""
    conditions: dict[str, PodGroupCondition] = msgspec.field(default_factory=nothing)
    pending: dict[str, Task] = msgspec.field(default_factory=nothing)
    pending_best_effort: int = 0
    runnable: int = 0
    """Pending tasks that are not aside."""
    stalled: bool = False
    """It cannot start, whatever is released: it lacks members that may run, or its PodGroup."""
    sort_key: tuple[Any, ...] | None = None
    """Its place among waiting jobs, kept while nothing of the job changes."""
    allocated: Vector = msgspec.field(default_factory=nothing)
    refusal: Reason | None = None
    """Why the job as a whole was not tried; None when its pods were."""
    share: float = 0.0
    waits_since: float | None = None
    """Time at which it was created, by the clock of the cycles; None until somebody asks."""
    inqueue: Vector = msgspec.field(default_factory=nothing)
    elastic: Vector = msgspec.field(default_factory=nothing)
    announced: tuple[str, str] = ("", "")
    scheduled_at: float = 0.0
    """Time at which its gang first stood."""
    backoff: Retry = NO_BACKOFF
    """It could not be bound as a whole, and is not tried before."""
    resting: bool = False
    whole: bool = False
    """All of its minimum had nodes at some time since this PodGroup was seen."""
    problem: str = ""
    min_available: int = 1
    role_minimum: dict[str, int] = msgspec.field(default_factory=nothing)
    tasks: dict[str, Task] = msgspec.field(default_factory=dict)
    counts: tuple[int, ...] = NO_COUNTS
    """Tasks by status."""
    ready_count: int = 0
    """Tasks that are bound, on their way, or have succeeded."""

    # -- the gang -------------------------------------------------------------------------------------------------
    # As Volcano pkg/scheduler/api/job_info.go counts it, but a best-effort member counts when it has a place, like any other:
    # upstream counts it while it is pending, and so binds a gang by halves where no node has room for one pod more.

    def count(self, *statuses: Status) -> int:
        return sum(self.counts[s] for s in statuses)

    @property
    def allocated_count(self) -> int:
        return self.count(*ALLOCATED_STATUSES)

    @property
    def firm_count(self) -> int:
        """Those of its ready tasks that no refused Binding takes away any more."""
        return self.ready_count - self.counts[Status.BINDING] - self.counts[Status.ALLOCATED]

    @property
    def valid_count(self) -> int:
        return self.ready_count + self.counts[Status.PIPELINED] + self.counts[Status.PENDING]

    def is_ready(self) -> bool:
        return self.ready_count >= self.min_available

    def is_pipelined(self) -> bool:
        return self.counts[Status.PIPELINED] + self.ready_count >= self.min_available

    def role_counts(self, statuses: Iterable[Status], without: Collection[Task] = ()) -> dict[str, int]:
        wanted = frozenset(statuses)
        found: dict[str, int] = {}
        for task in self.tasks.values():
            if task.status in wanted and task not in without:
                found[task.role] = found.get(task.role, 0) + 1
        return found

    def _roles_hold(self, statuses: Iterable[Status], without: Collection[Task] = ()) -> bool:
        if not self.role_minimum or self.min_available < sum(self.role_minimum.values()):
            return True
        have = self.role_counts(statuses, without)
        return all(have.get(role, 0) >= least for role, least in self.role_minimum.items())

    def role_valid(self) -> bool:
        return self._roles_hold(_ROLE_VALID)

    def role_ready(self, without: Collection[Task] = ()) -> bool:
        return self._roles_hold(READY_STATUSES, without)

    def role_pipelined(self) -> bool:
        return self._roles_hold(READY_STATUSES | {Status.PIPELINED})

    # -- membership and status ----------------------------------------------------------------------------------

    def join(self, task: Task) -> None:
        task.job = self
        self.tasks[task.uid] = task
        self._count(task, task.status, 1)
        self.weigh()

    def leave(self, task: Task) -> None:
        self._count(task, task.status, -1)
        self.weigh()
        del self.tasks[task.uid]
        task.job = None

    def move(self, task: Task, status: Status) -> None:
        """Raises IllegalMove, with the task's story, where no path leads there."""
        before = task.status
        if before is status:
            return
        task.check(status)
        task.status = status
        if before in ALLOCATED_STATUSES and status in ALLOCATED_STATUSES:  # what it holds, it held before: no sum changes
            self.counts = counted(counted(self.counts, before, -1), status, 1)
            self.sort_key = None
            return
        self._count(task, before, -1)
        self._count(task, status, 1)
        self.weigh()

    def _count(self, task: Task, status: Status, sign: int) -> None:
        self.counts = counted(self.counts, status, sign)
        self.sort_key = None
        if status in READY_STATUSES:
            self.ready_count += sign
        change = add if sign > 0 else subtract
        if status in ALLOCATED_STATUSES:
            self._charge(task.amounts, sign)
            self._share(task, sign)
        elif status is Status.PIPELINED:
            self._await(task, sign)
        elif status is Status.PENDING:
            self.queue.version += 1
            change(self.queue.pending, task.cls.demand)
            self.runnable += 0 if task.aside else sign
            self._ask(task, sign)
            self._keep(task, sign)
            if task.best_effort:
                self.pending_best_effort += sign
                self.queue.best_effort += sign
            if sign > 0:
                if not self.pending:
                    self.pending = {}
                    self.queue.waiters[self] = None
                self.pending[task.uid] = task
            elif self.pending.pop(task.uid, None) is not None and not self.pending:
                self.pending = NOTHING
                self.queue.waiters.pop(self, None)

    def _await(self, task: Task, sign: int) -> None:
        """Count what it was promised for its queue before it is there."""
        (add if sign > 0 else subtract)(self.queue.awaited, task.cls.amounts.items())
        self.queue.stir()

    def _ask(self, task: Task, sign: int) -> None:
        """Count the request of a pending pod as asked for by its queue, or as aside."""
        self.queue.device_request(task.cls, sign, task.aside or self.stalled)

    def _keep(self, task: Task, sign: int) -> None:
        """Count what its queue keeps for a pod that it let in."""
        if task.let_in:
            (add if sign > 0 else subtract)(self.queue.let_in, task.cls.amounts.items())
            self.queue.stir()

    def weigh(self) -> None:
        """Look again whether it could start if there were room."""
        members = self.runnable + self.ready_count + self.counts[Status.PIPELINED]
        stalled = members < self.min_available or (self.group is None and not self.implicit)
        if stalled is not self.stalled:
            for sign in (-1, 1):
                for task in self.pending.values():
                    self._ask(task, sign)
                self.stalled = stalled

    def set_gate(self, task: Task, gate: Gate) -> None:
        """The gates of one of its tasks are others: it may start or not, and its queue keeps for it what it asks for or not."""
        if gate is task.gate:
            return  # most events
        pending, kept = task.status is Status.PENDING, task.let_in
        if pending and kept and gate is not Gate.OPENING and gate is not Gate.OPENED:
            self._keep(task, -1)
        with self._turned(task, aside=gate is Gate.HELD or task.unresolvable):
            task.gate = gate
        if pending and task.let_in and not kept:
            self._keep(task, 1)

    def set_unresolvable(self, task: Task, unresolvable: bool) -> None:
        """No node could ever hold one of its tasks, or some node could after all."""
        if unresolvable is task.unresolvable:
            return
        with self._turned(task, aside=task.gate is Gate.HELD or unresolvable):
            task.unresolvable = unresolvable

    @contextmanager
    def _turned(self, task: Task, *, aside: bool) -> Iterator[None]:
        """Count a pending task anew where it stands aside within the block and did not before, or the other way round."""
        if task.aside is aside or task.status is not Status.PENDING:
            yield
            return
        self._ask(task, -1)
        yield
        self.runnable += -1 if aside else 1
        self._ask(task, 1)
        self.weigh()

    def _charge(self, amounts: Vector, sign: int) -> None:
        self.queue.version += 1
        self.queue.stir()
        self.allocated = changed(self.allocated, amounts, sign)
        (add if sign > 0 else subtract)(self.queue.allocated, amounts.items())

    def _share(self, task: Task, sign: int) -> None:
        """Count claims that several pods may use: the first one of a queue brings it the charge, the last one takes it away."""
        held = self.queue.claims_held
        for one in task.shared_claims:
            users = held.get(one, 0) + sign
            if users:
                held[one] = users
            else:
                held.pop(one, None)
            if users == (sign > 0):
                self.queue.version += 1
                self.queue.stir()
                (add if sign > 0 else subtract)(self.queue.allocated, one[1])

    def recharge(
        self, task: Task, charged: Vector | None, cls: PodClass | None = None, shared_claims: tuple[Part, ...] | None = None
    ) -> None:
        """Other cards or claims than were known before, or none, or another class of a task that is placed: the queue is charged
        what it comes to."""
        before = task.amounts
        task.charged, task.cls = charged, cls or task.cls
        counts = task.status in ALLOCATED_STATUSES
        if counts and task.amounts != before:
            self._charge(before, -1)
            self._charge(task.amounts, 1)
            self.recount()
        if shared_claims is not None and shared_claims != task.shared_claims:
            if counts:
                self._share(task, -1)
            task.shared_claims = shared_claims
            if counts:
                self._share(task, 1)

    def attach(self, queue: QueueState) -> None:
        """Move to another queue with all sums."""
        if queue is self.queue and self in queue.jobs:
            return
        self.detach()
        self.queue = queue
        queue.jobs[self] = None
        if self.pending:
            queue.waiters[self] = None
        self._sums(1)

    def detach(self) -> None:
        """It leaves its queue with all sums."""
        if self in self.queue.jobs:
            self._sums(-1)
        self.queue.jobs.pop(self, None)
        self.queue.active.leave(self)
        self.queue.waiters.pop(self, None)

    def _sums(self, sign: int) -> None:
        queue, change = self.queue, add if sign > 0 else subtract
        queue.version += 1
        queue.stir()
        change(queue.allocated, self.allocated.items())
        change(queue.inqueue, self.inqueue.items())
        change(queue.elastic, self.elastic.items())
        for task in self.tasks.values():
            if task.shared_claims and task.status in ALLOCATED_STATUSES:
                self._share(task, sign)
        for task in self.tasks.values() if self.counts[Status.PIPELINED] else ():
            if task.status is Status.PIPELINED:
                self._await(task, sign)
        queue.best_effort += sign * self.pending_best_effort
        for task in self.pending.values():
            change(queue.pending, task.cls.demand)
            self._ask(task, sign)
            self._keep(task, sign)

    def recount(self) -> None:
        """Bring up to date what its queue counts of the job (Volcano pkg/scheduler/plugins/proportion: inqueue and
        elastic)."""
        inqueue = elastic = NOTHING
        if self.min_resources is not None and not self.resting:
            promised = self.phase == INQUEUE or (
                self.phase == "Running" and self.allocated_count >= self.min_available
            )
            if promised:
                inqueue = exceeded(self.min_resources, self.allocated)
                for task in self.pending.values():
                    if task.gate is Gate.HELD:
                        inqueue = exceeded(inqueue, dict(task.cls.demand))
        if self.allocated:
            elastic = spare(self.allocated, self.min_resources)
        if elastic is not self.elastic and elastic != self.elastic:
            subtract(self.queue.elastic, self.elastic.items())
            add(self.queue.elastic, elastic.items())
            self.queue.stir()
            self.elastic = elastic
        if inqueue != self.inqueue:
            subtract(self.queue.inqueue, self.inqueue.items())
            add(self.queue.inqueue, inqueue.items())
            self.queue.stir()
            self.inqueue = shared(inqueue)

    def reserve_minimum(self) -> None:
        """Enqueued: its minimum is reserved for it in its queue."""
        self.phase, self.resting = INQUEUE, False
        if self.min_resources is not None:
            self.recount()

    def rest(self) -> None:
        """End the reservation of what it could not take."""
        self.resting = True
        self.recount()

    @property
    def known(self) -> bool:
        """Return whether it is a job still: it has pods or a PodGroup."""
        return self in self.queue.jobs

    def event(self, kind: Severity, reason: str, text: str) -> Event:
        """Return an Event on its PodGroup."""
        return Event("PodGroup", SCHEDULING_API, self.namespace, self.name, self.uid, kind, reason, text)

    def unit(self) -> Vector:
        """Return what its queue is charged when it goes on: its gang as far as it lacks members, else one pod."""
        lacking = max(1, self.min_available - self.ready_count)
        total: Vector = {}
        for task in self.pending.values():
            if not task.aside:
                if lacking == 1 and not total:
                    return task.amounts
                add(total, task.amounts.items())
                lacking -= 1
                if not lacking:
                    break
        return total

    @property
    def stood(self) -> bool:
        """Return whether its gang was whole before, as far as is known."""
        return self.whole or self.phase in (RUNNING, UNKNOWN)

    def is_pending(self) -> bool:
        return self.phase in ("", PENDING)

    def order(self) -> tuple[float, int, str]:
        """Fall-back order: age in whole seconds, then class, then uid. Jobs of one second count as of one age; putting
        equal requests side by side among them lets one evaluation serve many."""
        first = next(iter(self.pending.values()), None)
        return (self.created, first.cls.number if first is not None else 0, self.uid)


__all__ = [
    "ALLOCATED_STATUSES", "DONE_STATUSES", "INQUEUE", "OPEN", "READY_STATUSES", "SCHEDULED_STATUSES",
    "SCHEDULER_NAME", "Job", "QueueState", "Status", "Task", "name_index", "task_status",
]  # fmt: skip
