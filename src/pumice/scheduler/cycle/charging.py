"""The cost of a pod for its queue, the room that the queue has for it, and the gate that a queue opens.

A pod that waits for its queue alone is no sign that nodes are missing: without the gate it would say Unschedulable, and a cluster
autoscaler would bring nodes for it. An evicted pod is charged to its queue no more, but its eviction may be refused: nobody is
bound within a share that is free only then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumice.effects.vocabulary import OpenGate
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.statement import Evict, Statement, charge_by_claims
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.resources import Vector, add
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import Gate, Status, by_queue
from pumice.wire.names import ROOT_QUEUE

# -- the gate of a queue: what a pod asks for is kept for it once it is let in, until it has a place -------------------


def open_gates(cycle: Cycle, job: Job, *, beyond: bool = False) -> None:
    """Let in the pods of a job for which its queue has room, in task order; of a gang that is not whole none, where it would not
    be whole by them. ``beyond`` its share where nobody else needs that."""
    waiting = [task for task in job.pending.values() if task.gate is Gate.QUEUE]
    if not waiting:
        return
    may = cycle.framework.lends if beyond else cycle.framework.allocatable
    opened: list[Task] = []
    for task in sorted(waiting, key=cycle.framework.task_order_key):
        amounts = beside_others(task, task.cls.amounts)
        if may(job.queue, amounts):
            job.set_gate(task, Gate.OPENING)
            opened.append(task)
        else:
            task.error = by_queue(no_room(cycle, task, amounts))
    allocated = job.counts[Status.PIPELINED]
    if job.ready_count + allocated + sum(task.let_in or not task.gated for task in job.pending.values()) < job.min_available:
        while opened:
            job.set_gate(opened.pop(), Gate.QUEUE)
    for task in opened:
        task.error = None
        cycle.effects.append(OpenGate(task.uid, task.namespace, task.name))
    if len(opened) < len(waiting):
        attempt = cycle.attempts[job]
        attempt.blocked = attempt.short_of_share = True


def beside_others(task: Task, amounts: Vector) -> Vector:
    """Return what its queue must have room for: what the pod asks for, and as much of the same as is kept for others."""
    assert task.job is not None
    kept = task.job.queue.let_in
    if not any(kept.values()):
        return amounts
    own = task.cls.amounts if task.let_in else {}
    return {name: value and value + kept.get(name, 0) - own.get(name, 0) for name, value in amounts.items()}


def no_room(cycle: Cycle, task: Task, amounts: Vector) -> str:
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
    """``declined``: the amounts that were too much, when some were."""

    cycle: Cycle
    task: Task
    may: May
    declined: Vector | None = None

    def accepted(self, choice: Choice) -> bool:
        assert self.task.job is not None
        amounts = cost_for(self.cycle.state, self.task, self.task.cls, choice)
        if amounts is None:
            return True  # what the class says was looked at before
        if self.may(self.task.job.queue, beside_others(self.task, amounts)):
            return True
        self.declined = amounts
        return False


def cost_of(cycle: Cycle, task: Task, may: May) -> Cost | None:
    """None for a pod whose class says all that it costs."""
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
    may = cycle.framework.lends if beyond else cycle.framework.allocatable

    def pays(queue: QueueState, amounts: Vector) -> bool:
        if not may(queue, amounts):
            return False
        staying = _staying(cycle, queue, statement)
        if staying:
            add(staying, amounts.items())
        return not staying or may(queue, staying)

    return pays


def rests_on_trust(cycle: Cycle, queue: QueueState) -> bool:
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
