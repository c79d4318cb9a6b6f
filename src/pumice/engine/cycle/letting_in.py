"""The gate that a queue opens: it holds a pod until its queue has room for it (docs/reference/queues.md).

Who waits for his queue alone is no sign that nodes are missing: without the gate such a pod would say Unschedulable, and a
cluster autoscaler would bring nodes for it. What a pod asks for is kept for it once it is let in, until it has a place.
"""

from __future__ import annotations

from pumice.effects.vocabulary import OpenGate
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.resources import Vector
from pumice.engine.state.tasks import Status, by_queue


def open_gates(cycle: Cycle, job: Job, *, beyond: bool = False) -> None:
    """Let in the pods of a job for which its queue has room, in task order; of a gang that is not whole none, where it would not
    be whole by them. ``beyond`` its share where nobody else needs that."""
    waiting = [task for task in job.pending.values() if task.awaits_queue and not task.let_in]
    if not waiting:
        return
    may = cycle.framework.lends if beyond else cycle.framework.allocatable
    opened: list[Task] = []
    for task in sorted(waiting, key=cycle.framework.task_key):
        amounts = beside_others(task, task.cls.amounts)
        if may(job.queue, amounts):
            job.let_in(task, yes=True)
            opened.append(task)
        else:
            task.error = by_queue(no_room(cycle, task, amounts))
    held = job.counts[Status.PIPELINED]
    if job.ready_count + held + sum(task.let_in or not task.gated for task in job.pending.values()) < job.min_available:
        while opened:
            job.let_in(opened.pop(), yes=False)
    for task in opened:
        task.error = None
        cycle.effects.append(OpenGate(task.uid, task.namespace, task.name))
    if len(opened) < len(waiting):
        cycle.blocked[job] = None
        cycle.short_of_share[job] = None


def beside_others(task: Task, amounts: Vector) -> Vector:
    """What its queue must have room for: what the pod asks for, and as much of the same as is kept for others."""
    assert task.job is not None
    kept = task.job.queue.let_in
    if not any(kept.values()):
        return amounts
    own = task.cls.amounts if task.let_in else {}
    return {name: value and value + kept.get(name, 0) - own.get(name, 0) for name, value in amounts.items()}


def no_room(cycle: Cycle, task: Task, amounts: Vector) -> str:
    """What is said of a pod for which its queue has no room."""
    assert task.job is not None
    queue = task.job.queue
    short = cycle.framework.short_of(queue, task, amounts)
    if short and amounts is not task.cls.amounts and any(queue.let_in.values()):
        short += ", with what it keeps for pods that it let in"
    return f"queue {queue.name} has no room left for it" + (f" ({short})" if short else "")
