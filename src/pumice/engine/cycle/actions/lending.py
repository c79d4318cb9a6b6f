"""What no queue can take within its share is lent (part of allocate)."""

from __future__ import annotations

import heapq
from typing import Any

from pumice.engine.cycle import domains, trying
from pumice.engine.cycle.concluding import commit, discard
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.state.jobs import Job, QueueState
from pumice.engine.state.line import Line


def lend(cycle: Cycle, failed_roles: dict[Job, set[str]]) -> None:
    """Shares are parts of everything, pods and gangs are whole: what no queue can take within its share would lie idle for
    ever. It is lent pod by pod (gang by gang), to the queue that comes least over its share by it first, of equal ones to the
    one that was lent something longest ago, as far as the plugins lend (``LimitsQueues.lends``)."""
    framework, state = cycle.framework, cycle.state
    waiting: dict[QueueState, list[Job]] = {}
    for job in cycle.short_of_share:
        if job.pending and job not in cycle.standing:
            waiting.setdefault(job.queue, []).append(job)
    lines: dict[QueueState, Line[Job]] = {queue: Line() for queue in waiting}
    for queue, jobs in waiting.items():
        for job in jobs:
            lines[queue].line_up(job, framework.job_key(job))
    order: list[tuple[Any, QueueState]] = []

    def line_up(queue: QueueState) -> None:
        excess = framework.excess(queue, lines[queue].first.unit())
        heapq.heappush(order, ((-queue.priority, excess, queue.lent, framework.queue_key(queue)), queue))

    for queue in lines:
        line_up(queue)
    while order:
        if cycle.out_of_time():
            state.scheduling_queue.lend_later()
            return
        _, queue = heapq.heappop(order)
        job = lines[queue].take()
        if framework.lends(queue, job.unit()) and _lend_to(cycle, job, failed_roles.setdefault(job, set())):
            state.groups.lent(queue)
            if queue.one_by_one:
                state.scheduling_queue.released()  # for who came after it
            if job.pending:
                lines[queue].line_up(job, framework.job_key(job))
        if lines[queue]:
            line_up(queue)


def _lend_to(cycle: Cycle, job: Job, failed_roles: set[str]) -> bool:
    """Place one pod, or the gang. What the job and its pods were refused for before still stands where that fails."""
    refusal, job.refusal = job.refusal, None
    told = [(task, task.error, task.puzzling) for task in job.pending.values()]
    statement = cycle.statement()
    domains.place(cycle, job, statement, trying.pending(cycle, job, beyond=True), failed_roles, beyond=True)
    if statement.steps and cycle.framework.job_ready(job):
        commit(cycle, job, statement)
        return True
    discard(cycle, job, statement)
    job.refusal = refusal
    for task, error, puzzling in told:
        if error is not None or puzzling:
            task.error, task.puzzling = error, puzzling
    return False
