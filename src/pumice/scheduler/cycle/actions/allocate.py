"""allocate and backfill: place the pending pods of jobs, queue by queue and job by job; then those that request nothing."""

from __future__ import annotations

import heapq
from functools import partial
from typing import Any

from pumice.scheduler.cycle import domains, over_cycles, planning, trying
from pumice.scheduler.cycle.concluding import commit, conclude, discard
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.domains import reach
from pumice.scheduler.cycle.over_cycles import begun
from pumice.scheduler.cycle.queueing import Turns, call_up, candidates, hold_up, newcomers, queues, refuse
from pumice.scheduler.cycle.trying import refused
from pumice.scheduler.placing.evaluation import Among, Choice
from pumice.scheduler.state.active_jobs import JobHeap
from pumice.scheduler.state.jobs import Job, QueueState, Status, Task
from pumice.scheduler.state.tasks import by_gang, by_queue

# -- lending: what no queue can take within its share ------------------------------------------------------------------


def lend(cycle: Cycle, failed_roles: dict[Job, set[str]]) -> None:
    """Shares are parts of everything, pods and gangs are whole: what no queue can take within its share would lie idle for
    ever. It is lent pod by pod (gang by gang), to the queue that comes least over its share by it first, of equal ones to the
    one that was lent something longest ago, as far as the plugins lend (``Allocatable.may_borrow``). One is served in any case;
    those for whom there is no time are tried again in the next cycle."""
    framework, state = cycle.framework, cycle.state
    waiting: dict[QueueState, list[Job]] = {}
    for job, found in cycle.attempts.items():
        if found.short_of_share and job.pending and not found.pipelined:
            waiting.setdefault(job.queue, []).append(job)
    lines: dict[QueueState, JobHeap[Job]] = {queue: JobHeap() for queue in waiting}
    for queue, jobs in waiting.items():
        for job in jobs:
            lines[queue].line_up(job, framework.job_order_key(job))
    order: list[tuple[Any, QueueState]] = []

    def line_up(queue: QueueState) -> None:
        excess = framework.excess(queue, lines[queue].first.unit())
        heapq.heappush(order, ((-queue.priority, excess, queue.last_borrowed, framework.queue_order_key(queue)), queue))

    for queue in lines:
        line_up(queue)
    served = False
    while order:
        if served and cycle.out_of_time():
            state.scheduling_queue.lend_later(job for line in lines.values() for job in line)
            return
        served = True
        _, queue = heapq.heappop(order)
        job = lines[queue].take()
        if framework.may_borrow(queue, job.unit()) and _lend_to(cycle, job, failed_roles.setdefault(job, set())):
            state.groups.note_borrowed(queue)
            if queue.one_by_one:
                state.scheduling_queue.released()  # for who came after it
            if job.pending:
                lines[queue].line_up(job, framework.job_order_key(job))
        if lines[queue]:
            line_up(queue)


def _lend_to(cycle: Cycle, job: Job, failed_roles: set[str]) -> bool:
    """Place one pod, or the gang. What the job and its pods were refused for before still stands where that fails."""
    refusal, job.refusal = job.refusal, None
    reported = [(task, task.error, task.unexplained) for task in job.pending.values()]
    statement = cycle.statement()
    domains.place(cycle, job, statement, trying.pending(cycle, job, beyond=True), failed_roles, beyond=True)
    if statement.steps and cycle.framework.job_ready(job):
        commit(cycle, job, statement)
        return True
    discard(cycle, job, statement)
    job.refusal = refusal
    for task, error, unexplained in reported:
        if error is not None or unexplained:
            task.error, task.unexplained = error, unexplained
    return False


# -- allocate ----------------------------------------------------------------------------------------------------------


def allocate(cycle: Cycle) -> None:
    """Everybody within its queue's share; then, of what nobody can take so, queues beyond their share (``lend``)."""
    failed_roles: dict[Job, set[str]] = {}
    if _within_shares(cycle, failed_roles):
        lend(cycle, failed_roles)
        cycle.state.scheduling_queue.lend_now()
    else:
        cycle.state.scheduling_queue.lend_later(job for job, found in cycle.attempts.items() if found.short_of_share)


def _within_shares(cycle: Cycle, failed_roles: dict[Job, set[str]]) -> bool:
    """Return whether there was time for everybody."""
    framework = cycle.framework
    lines = {queue: queue.active for queue in queues(cycle) if _line_up(cycle, queue)}
    waiting = dict.fromkeys(lines)
    untried: dict[Job, list[Task]] = {}
    turns = Turns(framework, lines)
    least, began = cycle.at_least, cycle.tick()
    begun = [queue for queue in over_cycles.searching(cycle) if queue in lines]
    late, reserved = cycle.placer.evaluation.claims.late, cycle.state.scheduling_queue.reserved
    while (begun or turns) and (
        least == cycle.at_least or not cycle.out_of_time() or (least > 0 and not cycle.past(began, 0.5))
    ):
        out_of_turn = bool(begun)  # what is held for a gang is held no longer than must be
        queue = begun.pop(0) if begun else turns.take()
        if not out_of_turn:
            del waiting[queue]
        least -= 1
        line = lines[queue]
        if not line.line:
            continue
        if not out_of_turn and framework.overused(queue):
            jobs = [job for job in line.line if job in untried or _takes_part(cycle, job)]
            for number, job in enumerate(jobs):
                _overused(cycle, job, late=number > 0 and cycle.out_of_time())
            continue
        job, goes_on = line.take(), False
        if queue.one_by_one and job.backoff.until > cycle.now:
            hold_up(cycle, job, line.line)
            continue
        tasks = untried.get(job)
        if tasks is None and _takes_part(cycle, job):
            tasks = untried[job] = trying.pending(cycle, job)
            cycle.attempts[job].tried = True
        if tasks and late and not out_of_turn and all(task.cls in late for task in tasks):
            cycle.attempts[job].postponed = True  # their devices are searched for in the next cycle
        elif tasks and over_cycles.elsewhere(cycle, job) and any(task.cls.device_claims for task in tasks):
            pass  # the action that makes room for it goes on, and takes what is idle
        elif tasks:
            planning.together(cycle, queue, job, tasks[0], line.line)
            attempt = cycle.attempts[job]
            before, attempt.behind = attempt.behind, None
            if before is not None and before in line.line:
                line.line.line_up(job, framework.job_order_key(before))
                turns.again(queue)
                waiting[queue] = None
                continue
            statement = cycle.statement()
            if domains.place(cycle, job, statement, tasks, failed_roles.setdefault(job, set())):
                least = min(least, 0)
            else:
                goes_on = conclude(cycle, job, statement)
                attempt.finished = not (goes_on and tasks)  # of a gang that cannot be whole the rest need not be tried
                if not goes_on and job in reserved:
                    least += 1  # it has again what it held: nobody has come further by that
            if goes_on and tasks:
                line.line_up(job, framework.job_order_key)
        if queue.one_by_one and _holds_up(cycle, job, goes_on=goes_on, more=bool(tasks)):
            hold_up(cycle, job, line.line)
            continue
        if line.line and not out_of_turn:
            turns.again(queue)
            waiting[queue] = None
    return not begun and all(job in untried or job in reserved for queue in waiting for job in lines[queue].line)


def _line_up(cycle: Cycle, queue: QueueState) -> bool:
    """Give the jobs of a queue that have pods to be placed their places in its line. False: there are none."""
    active, key = queue.active, partial(_place, cycle)
    if queue.one_by_one and queue.present:
        call_up(cycle, queue)
    active.line_up_again(key)
    for job in newcomers(queue):
        if job.pending:
            active.line_up(job, key)
        else:
            _start(cycle, job)
            cycle.attempts[job].tried = True
    return queue.present and bool(active.line)


def _place(cycle: Cycle, job: Job) -> tuple[Any, ...]:
    """Its place in the line: first of all those for which a search was begun."""
    return () if over_cycles.begun(cycle, job) is not None else cycle.framework.job_order_key(job)


def _holds_up(cycle: Cycle, job: Job, *, goes_on: bool, more: bool) -> bool:
    """Return whether a job could not go, or not with all of its pods (those that ask for nothing are left to backfill)."""
    if cycle.attempt(job).invalid or job.pending_best_effort == len(job.pending) > 0:
        return False
    return cycle.attempt(job).pipelined or (job.runnable > 0 and not (goes_on and more))


def _takes_part(cycle: Cycle, job: Job) -> bool:
    if not _start(cycle, job):
        return False
    job.refusal = None
    if not job.queue.open:
        refuse(cycle, job, by_queue(job.queue.closed_text))
        return False
    invalid = cycle.framework.job_valid(job)
    if invalid is not None:
        refuse(cycle, job, by_gang(invalid.message))
        cycle.attempts[job].invalid = True
        return False
    return True


def _start(cycle: Cycle, job: Job) -> bool:
    """Without the action enqueue a job is started here, pods or not: who makes them may wait for that. True: it is started."""
    if job.is_pending():
        if "enqueue" in cycle.framework.conf.actions:
            return False
        job.reserve_minimum()
        cycle.state.scheduling_queue.write_status(job)
    return True


def _overused(cycle: Cycle, job: Job, *, late: bool) -> None:
    """Its queue has all that it deserves. Only a pod that some node would take waits for its queue: a queue deserves nothing of
    what no node has, so that a pod which fits nowhere would be told of a limit that nobody set. ``late``: there is no time to ask
    the nodes, and the job stays active."""
    overused = by_queue(f"queue {job.queue.name} is overused")
    if late:
        refuse(cycle, job, overused)
        cycle.attempts[job].short_of_share = True
        return
    attempt = cycle.attempts[job]
    attempt.tried = True
    for task in trying.pending(cycle, job):
        among = cycle.among(task)
        if cycle.placer.choose(task.cls, among=among) is None:
            refused(cycle, task, among=among)
        else:
            task.error, task.unexplained = overused, False
            attempt.short_of_share = attempt.blocked = True


# -- backfill: pods that request nothing are placed where any room is --------------------------------------------------


def backfill(cycle: Cycle) -> None:
    framework = cycle.framework
    found: list[tuple[Job, list[Task]]] = []
    for queue in sorted(queues(cycle), key=framework.queue_order_key):
        if not (queue.open and queue.best_effort):
            continue
        jobs = [
            job for job in candidates(queue)
            if job.pending_best_effort and not job.is_pending() and not cycle.attempt(job).pipelined
            and framework.job_valid(job) is None and begun(cycle, job) is None
        ]  # fmt: skip
        for job in sorted(jobs, key=framework.job_order_key):
            tasks = [
                t for t in job.pending.values() if t.best_effort and not t.gated and t.backoff.until <= cycle.now
            ]
            if tasks:
                found.append((job, sorted(tasks, key=framework.task_order_key)))
    for number, (job, tasks) in enumerate(found):
        if number and cycle.out_of_time():
            for late, _ in found[number:]:
                cycle.postpone(late)
            return
        attempt = cycle.attempts[job]
        attempt.tried = True
        statement = cycle.statement()
        for task in tasks:
            task.trial = None
            among = cycle.among(task)
            choice = _choose(cycle, job, task, among)
            if choice is None and task.cls in cycle.placer.evaluation.claims.late:
                attempt.postponed = True
                continue
            if choice is None:
                refused(cycle, task, amid_gang=bool(statement.steps), among=among)
                continue
            statement.place(task, choice)
        if framework.job_ready(job) and job.counts[Status.ALLOCATED]:
            commit(cycle, job, statement)
            if attempt.discarded:  # with these it is whole: the others, which failed as a gang, may come one by one
                attempt.postponed = True
        elif statement.steps:  # else nothing was taken back for which it could wait: it is unschedulable until a node may take it
            discard(cycle, job, statement)


def _choose(cycle: Cycle, job: Job, task: Task, among: Among | None) -> Choice | None:
    """A node for the pod; where its job asks for one switch, behind that."""
    around = reach(cycle, job, task)
    if around is None:
        return cycle.placer.choose(task.cls, among=among)
    choices = (cycle.placer.choose(task.cls, among=cycle.among(task, domain.rows)) for domain in around)
    return next((choice for choice in choices if choice is not None), None)
