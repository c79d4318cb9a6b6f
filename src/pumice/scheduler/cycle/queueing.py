"""Queues and jobs that may be tried now, and the order in which queues take turns.

The cost of a pod for its queue, the room that the queue has for it, and the gate that a queue opens.

A pod that waits for its queue alone is no sign that nodes are missing: without the gate it would say Unschedulable, and a cluster
autoscaler would bring nodes for it. An evicted pod is charged to its queue no more, but its eviction may be refused: nobody is
bound within a share that is free only then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from pumice.effects.vocabulary import OpenGate
from pumice.scheduler.cycle import sharding
from pumice.scheduler.cycle.cycle import RETRY, Cycle
from pumice.scheduler.cycle.statement import Evict, Statement, charge_by_claims
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.resources import Vector, add
from pumice.scheduler.state.scheduling_queue import Hint, QueueEvent
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import Gate, Reason, Status, by_gang, by_queue
from pumice.wire.names import ROOT_QUEUE

# -- the gate of a queue: what a pod asks for is kept for it once it is let in, until it has a place -------------------


def open_gates(cycle: Cycle, job: Job, *, beyond: bool = False) -> None:
    """Let in the pods of a job for which its queue has room, in task order; of a gang that is not whole none, where it would not
    be whole by them. ``beyond`` its share where nobody else needs that."""
    waiting = [task for task in job.pending.values() if task.gate is Gate.QUEUE]
    if not waiting:
        return
    may = cycle.framework.may_borrow if beyond else cycle.framework.allocatable
    opened: list[Task] = []
    for task in sorted(waiting, key=cycle.framework.task_order_key):
        amounts = with_kept_for_others(task, task.cls.amounts)
        if may(job.queue, amounts):
            job.set_gate(task, Gate.OPENING)
            opened.append(task)
        else:
            task.error = by_queue(queue_shortage(cycle, task, amounts))
    pipelined = job.counts[Status.PIPELINED]
    if job.ready_count + pipelined + sum(task.let_in or not task.gated for task in job.pending.values()) < job.min_available:
        while opened:
            job.set_gate(opened.pop(), Gate.QUEUE)
    for task in opened:
        task.error = None
        cycle.effects.append(OpenGate(task.uid, task.namespace, task.name))
    if len(opened) < len(waiting):
        attempt = cycle.attempts[job]
        attempt.blocked = attempt.short_of_share = True


def with_kept_for_others(task: Task, amounts: Vector) -> Vector:
    """Return what its queue must have room for: what the pod asks for, and as much of the same as is kept for others."""
    assert task.job is not None
    kept = task.job.queue.let_in
    if not any(kept.values()):
        return amounts
    own = task.cls.amounts if task.let_in else {}
    return {name: value and value + kept.get(name, 0) - own.get(name, 0) for name, value in amounts.items()}


def queue_shortage(cycle: Cycle, task: Task, amounts: Vector) -> str:
    """Return what is said of a pod for which its queue has no room."""
    assert task.job is not None
    queue = task.job.queue
    short = cycle.framework.short_of(queue, task, amounts)
    if short and amounts is not task.cls.amounts and any(queue.let_in.values()):
        short += ", with what it keeps for pods that it let in"
    return f"queue {queue.name} has no room left for it" + (f" ({short})" if short else "")


# -- costs of cards and devices that are known only once they are chosen (``PodClass.quota_known_late``) ----------------


May = Callable[[QueueState, Vector], bool]
"""Says whether a queue may be charged so much more."""


@dataclass(slots=True)
class Cost:
    """The verdict on the cost of a placement for its queue. ``declined``: the amounts that were too much, when some were."""

    cycle: Cycle
    task: Task
    may: May
    declined: Vector | None = None

    def accepted(self, choice: Choice) -> bool:
        assert self.task.job is not None
        amounts = cost_for(self.cycle.state, self.task, self.task.cls, choice)
        if amounts is None:
            return True  # what the class says was looked at before
        if self.may(self.task.job.queue, with_kept_for_others(self.task, amounts)):
            return True
        self.declined = amounts
        return False


def cost_of(cycle: Cycle, task: Task, may: May) -> Cost | None:
    """Return the judge of its costs; None for a pod whose class says all that it costs."""
    return Cost(cycle, task, may) if task.cls.quota_known_late or task.cls.device_claims else None


def cost_for(state: State, task: Task, cls: PodClass, choice: Choice) -> Vector | None:
    """Return what its queue must have room for, if the pod, as one of that class, has these cards and devices; None where that
    is what the class says."""
    claims = charge_by_claims(state, task, choice)
    amounts = state.charges.of(cls, choice.allocations, claims.own)
    fresh = [one for one in claims.shared if task.job is None or one not in task.job.queue.claims_held]
    if not fresh:
        return amounts
    total = dict(cls.amounts if amounts is None else amounts)
    for _, more in fresh:
        add(total, more)
    return total


def agreed(cycle: Cycle, task: Task) -> Callable[[Choice], bool] | None:
    """Return whether its queue takes it with these cards; None where that was known before."""
    cost = cost_of(cycle, task, cycle.framework.allocatable)
    return None if cost is None else cost.accepted


# -- shares that are free only if evictions are carried out ------------------------------------------------------------


def affordable(cycle: Cycle, statement: Statement, *, beyond: bool = False) -> May:
    """Return whether a queue may be charged for a pod that is bound at once; ``beyond`` its share where nobody else needs
    that."""
    may = cycle.framework.may_borrow if beyond else cycle.framework.allocatable

    def pays(queue: QueueState, amounts: Vector) -> bool:
        if not may(queue, amounts):
            return False
        staying = _staying(cycle, queue, statement)
        if staying:
            add(staying, amounts.items())
        return not staying or may(queue, staying)

    return pays


def depends_on_evictions(cycle: Cycle, queue: QueueState) -> bool:
    """Return whether what its pods were promised, which it is charged already, is beyond its share should an eviction be
    refused."""
    staying = _staying(cycle, queue)
    return bool(staying) and not cycle.framework.allocatable(queue, staying)


def _staying(cycle: Cycle, queue: QueueState, statement: Statement | None = None) -> Vector:
    """Return what pods of the queue, and of those that share a parent with it, hold in the eyes of the API server."""
    reported = [(each.queue, each.amounts) for each in cycle.state.terminating.unanswered]
    if statement is not None and statement.evicts:
        going = (step.task for step in statement.steps if isinstance(step, Evict))
        reported += [(task.job.queue, task.amounts) for task in going if task.job is not None]
    found: Vector = {}
    if reported:
        tree = cycle.state.groups.tree
        above = {each for each in tree.above(queue) if each.name != ROOT_QUEUE}
        for paid_by, amounts in reported:
            if paid_by is queue or not above.isdisjoint((paid_by, *tree.above(paid_by))):
                add(found, amounts.items())
    return found


# -- turns of queues ---------------------------------------------------------------------------------------------------


class Turns:
    """Queues, the one whose turn it is first. Where they are a tree, the branches take turns, and the queues of a branch; what is
    placed in one changes the keys on its own path alone. A queue with jobs of its own and queues below it takes turns twice, as a
    queue and as a branch."""

    def __init__(self, framework: Framework, queues: Iterable[QueueState]) -> None:
        self._framework = framework
        self._heaps: dict[Hashable, list[tuple[Any, int, Hashable, bool]]] = {None: []}
        """Of each branch what takes turns below it: key, who joined first, and whether it is a queue."""
        self._joined = 0
        self._taken: tuple[QueueState, list[Hashable]] | None = None
        """The queue whose turn it is, and the branches above it, which are out of the heaps meanwhile."""
        for queue in queues:
            parent: Hashable = None
            for branch, key in framework.queue_place(queue):
                if branch is queue:
                    self._join(parent, key, queue, itself=True)
                elif branch not in self._heaps:
                    self._heaps[branch] = []
                    self._join(parent, key, branch)
                parent = branch

    def __bool__(self) -> bool:
        self._put_back()
        return bool(self._heaps[None])

    def take(self) -> QueueState:
        """Return the queue that is served next. It is not returned again until it is put in line ``again``."""
        self._put_back()
        above: list[Hashable] = []
        _, _, found, itself = heapq.heappop(self._heaps[None])
        while not itself:
            above.append(found)
            _, _, found, itself = heapq.heappop(self._heaps[found])
        assert isinstance(found, QueueState)
        self._taken = found, above
        return found

    def again(self, queue: QueueState) -> None:
        """It has more to be tried."""
        place = self._framework.queue_place(queue)
        self._join(place[-2][0] if len(place) > 1 else None, place[-1][1], queue, itself=True)

    def _put_back(self) -> None:
        if self._taken is None:
            return
        queue, above = self._taken
        self._taken = None
        keys = [key for _, key in self._framework.queue_place(queue)] if above else []
        for depth in range(len(above) - 1, -1, -1):
            if self._heaps[above[depth]]:
                self._join(above[depth - 1] if depth else None, keys[depth], above[depth])

    def _join(self, parent: Hashable, key: Any, branch: Hashable, *, itself: bool = False) -> None:
        self._joined += 1
        heapq.heappush(self._heaps[parent], (key, self._joined, branch, itself))


# -- queues and jobs ---------------------------------------------------------------------------------------------------


def queues(cycle: Cycle) -> list[QueueState]:
    """Queues with jobs that have something to be tried."""
    return [queue for queue in cycle.state.queues.values() if queue.active.jobs]


def admit(cycle: Cycle) -> None:
    """A cycle begins: who is new or has changed may be tried, or steps aside. All others were admitted before."""
    for queue in queues(cycle):
        for job in list(queue.active.fresh if queue.present else queue.active):
            if not queue.present:
                refuse(cycle, job, by_queue(queue.missing_text))
            elif job.backoff.until > cycle.now:
                refuse(cycle, job, by_gang(job.backoff.because))
                cycle.state.scheduling_queue.rest(job, QueueEvent.WRITE_REFUSED, Hint(job.backoff.until))
            elif not _known(cycle, job):
                until = job.wait_until if job.wait_until > cycle.now else cycle.now + RETRY
                cycle.state.scheduling_queue.rest(job, QueueEvent.INVALID, Hint(until))
            elif not sharding.leaves(cycle, job) and (wide := sharding.too_wide(cycle, job)):
                refuse(cycle, job, by_gang(wide))
                cycle.state.scheduling_queue.rest(job, QueueEvent.INVALID, Hint(cycle.now + sharding.LOOK_AGAIN))


def refuse(cycle: Cycle, job: Job, reason: Reason | None) -> None:
    """The whole job is not tried, and that is why; where its pods would have gone before is true no longer."""
    job.refusal = reason
    for task in job.pending.values():
        task.trial = None
    attempt = cycle.attempts[job]
    attempt.tried = attempt.blocked = True


def call_up(cycle: Cycle, queue: QueueState) -> None:
    """Activate the jobs of a queue that is first in, first out: an unschedulable one at its head holds up those behind it. A job
    that could not start if there were room does not."""
    for job in queue.waiters:
        if job not in queue.active and job.runnable and not job.stalled and _present(cycle, job):
            cycle.state.scheduling_queue.activate(job)


def in_turn(cycle: Cycle, queue: QueueState) -> list[Job]:
    """Jobs of such a queue that are to be started, whether anything of theirs changed or not."""
    jobs = [job for job in queue.jobs if job.is_pending() and _present(cycle, job)]
    return sorted(jobs, key=lambda job: (cycle.framework.job_order_key(job), job.key))


def hold_up(cycle: Cycle, first: Job, others: Iterable[Job]) -> None:
    """These come after one that cannot go."""
    reason = by_queue(f"{first.name} comes first in queue {first.queue.name}, which is first in, first out")
    for job in list(others):
        if job in job.queue.active:
            refuse(cycle, job, reason)


def _present(cycle: Cycle, job: Job) -> bool:
    """Return whether it is a job that this scheduler may take, now or later."""
    return job not in cycle.state.shards.elsewhere and _known(cycle, job)


def _known(cycle: Cycle, job: Job) -> bool:
    """Return whether its group exists (Volcano pkg/scheduler/cache); that of a bare pod may still be on its way."""
    return job.group is not None or (job.implicit and job.wait_until <= cycle.now)


def candidates(queue: QueueState) -> list[Job]:
    """Jobs of a queue that may be tried."""
    return list(queue.active) if queue.present else []


def newcomers(queue: QueueState) -> list[Job]:
    """Those of them that have no place in its line yet."""
    return list(queue.active.fresh) if queue.present else []


def tasks_to_try(cycle: Cycle, job: Job) -> list[Task]:
    """Its pods that may be tried, in order. Nobody has to go for one whose devices are still searched for: they may be free."""
    late = cycle.placer.evaluation.claims.late
    waiting = (task for task in job.pending.values() if not task.gated and task.backoff.until <= cycle.now)
    tasks = [task for task in waiting if task.cls not in late]
    return sorted(tasks, key=cycle.framework.task_order_key)
