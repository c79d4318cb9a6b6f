"""allocate: place the pending pods of jobs, queue by queue and job by job (spec volcano-core 10.2)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pumice.engine.cycle.cycle import CHUNK, Cycle, Statement
from pumice.engine.placing.placer import Choice
from pumice.engine.state.jobs import Job, QueueState, Status, Task
from pumice.engine.state.resources import Vector

LEAST_JOBS = 32
"""Jobs tried in every cycle, however long it took to get here: a cycle always gets somewhere."""

Heap = list[tuple[Any, int, Job]]


def allocate(cycle: Cycle) -> None:
    """Everybody within its queue's share; then, of what nobody can take so, queues beyond their share (``lend``)."""
    failed_roles: dict[Job, set[str]] = {}
    _within_shares(cycle, failed_roles)
    state = cycle.state
    if cycle.out_of_time():
        if cycle.short_of_share:
            state.agenda.lend_later()
        return
    state.agenda.lend_now()
    lend(cycle, failed_roles)


def _within_shares(cycle: Cycle, failed_roles: dict[Job, set[str]]) -> None:
    framework = cycle.framework
    waiting: dict[QueueState, Heap] = {}
    untried: dict[Job, list[Task]] = {}
    serial = 0
    for queue in cycle.queues():
        heap: Heap = []
        for job in cycle.candidates(queue):
            if not job.pending:
                _start(cycle, job)
                cycle.tried.setdefault(job, None)
                continue
            serial += 1
            heap.append((framework.job_key(job), serial, job))
        heapq.heapify(heap)
        if heap:
            waiting[queue] = heap
    order = [(framework.queue_key(queue), queue) for queue in waiting]  # a queue's key changes by its own pods alone
    heapq.heapify(order)
    least = LEAST_JOBS
    while order and (least > 0 or not cycle.out_of_time()):
        least -= 1
        _, queue = heapq.heappop(order)
        heap = waiting[queue]
        if framework.overused(queue):
            for _, _, job in heap:
                if job not in untried and _takes_part(cycle, job):
                    _overused(cycle, job)
            continue
        _, _, job = heapq.heappop(heap)
        tasks = untried.get(job)
        if tasks is None and _takes_part(cycle, job):
            tasks = untried[job] = _pending(cycle, job)
            cycle.tried[job] = None
        if tasks:
            statement = Statement(cycle, job)
            _place(cycle, statement, tasks, failed_roles.setdefault(job, set()))
            if _conclude(cycle, statement) and tasks:
                serial += 1
                heapq.heappush(heap, (framework.job_key(job), serial, job))
        if heap:
            heapq.heappush(order, (framework.queue_key(queue), queue))


def _conclude(cycle: Cycle, statement: Statement) -> bool:
    """Commit what stands, keep what will stand, take back the rest. True: it is committed."""
    if not statement.steps:
        return False
    if cycle.framework.job_ready(statement.job):
        statement.commit()
        return True
    if cycle.framework.job_pipelined(statement.job):
        statement.stand()
    else:
        statement.discard()
    return False


def lend(cycle: Cycle, failed_roles: dict[Job, set[str]]) -> None:
    """Shares are parts of everything, pods and gangs are whole: what no queue can take within its share would lie idle for
    ever. It is lent pod by pod (gang by gang), to the queue that comes least over its share by it first, of equal ones to the
    one that was lent something longest ago, as far as the plugins lend (``Plugin.lends``)."""
    framework, state = cycle.framework, cycle.state
    waiting: dict[QueueState, Heap] = {}
    standing = {statement.job for statement in cycle.standing}
    for serial, job in enumerate(cycle.short_of_share):
        if job.pending and job not in standing:
            waiting.setdefault(job.queue, []).append((framework.job_key(job), serial, job))
    order: list[tuple[Any, QueueState]] = []

    def line_up(queue: QueueState) -> None:
        excess = framework.excess(queue, waiting[queue][0][-1].unit())
        heapq.heappush(order, ((-queue.priority, excess, queue.lent, framework.queue_key(queue)), queue))

    for queue, heap in waiting.items():
        heapq.heapify(heap)
        line_up(queue)
    while order:
        if cycle.out_of_time():
            state.agenda.lend_later()
            return
        _, queue = heapq.heappop(order)
        entry = heapq.heappop(waiting[queue])
        job = entry[-1]
        if framework.lends(queue, job.unit()):
            refusal, job.refusal = job.refusal, ""
            statement = Statement(cycle, job)
            _place(cycle, statement, _pending(cycle, job), failed_roles.setdefault(job, set()), beyond=True)
            if statement.steps and framework.job_ready(job):
                statement.commit()
                state.groups.lent(queue)
                if job.pending:
                    heapq.heappush(waiting[queue], (framework.job_key(job), *entry[1:]))
            else:
                statement.discard()
                job.refusal = refusal
        if waiting[queue]:
            line_up(queue)


def _takes_part(cycle: Cycle, job: Job) -> bool:
    if not _start(cycle, job):
        return False
    job.refusal = ""
    if not job.queue.open:
        _refuse(cycle, job, job.queue.closed_text)
        return False
    invalid = cycle.framework.job_valid(job)
    if invalid is not None:
        job.refusal = invalid.message
        cycle.tried[job] = cycle.invalid[job] = None
        return False
    return True


def _start(cycle: Cycle, job: Job) -> bool:
    """Without the action enqueue a job is started here, pods or not: who makes them may wait for that. True: it is started."""
    if job.is_pending():
        if "enqueue" in cycle.framework.conf.actions:
            return False
        job.promise()
        cycle.state.agenda.look_at(job)
    return True


def _pending(cycle: Cycle, job: Job) -> list[Task]:
    """Tasks to try, in task order, last one first (they are popped from the end). Those that request nothing are left to
    backfill, unless the others need them to be a gang: then they come after them."""
    tasks = [t for t in job.pending.values() if not t.gated and t.retry_at <= cycle.now]
    if job.pending_best_effort:
        asking = [t for t in tasks if not t.best_effort]
        if len(asking) < len(tasks) and (not asking or cycle.framework.job_ready(job)):
            tasks = asking
    for task in tasks:
        task.trial = None
    if len(tasks) > 1:
        tasks.sort(key=lambda task: (task.best_effort, cycle.framework.task_key(task)), reverse=True)
    return tasks


def _refuse(cycle: Cycle, job: Job, text: str) -> None:
    job.refusal = text
    cycle.tried[job] = None
    cycle.blocked[job] = text


def _overused(cycle: Cycle, job: Job) -> None:
    """Its queue has all that it deserves. A pod that fits nowhere is told that: a queue deserves nothing of what no node has."""
    _refuse(cycle, job, f"queue {job.queue.name} is overused")
    if cycle.out_of_time():
        cycle.short_of_share[job] = None
        return
    for task in _pending(cycle, job):
        if cycle.placer.choose(task.cls) is None:
            cycle.refused(task)
        else:
            task.error, task.puzzling = "", False
            cycle.short_of_share[job] = None


def _place(
    cycle: Cycle, statement: Statement, tasks: list[Task], failed_roles: set[str], *, beyond: bool = False
) -> None:
    """Place tasks until the job is ready (then a chunk more); what could not be placed has its reason recorded, and other pods
    of its role are not tried in this cycle. ``beyond`` its queue's share no more is placed than the job needs to go on."""
    framework, placer, job = cycle.framework, cycle.placer, statement.job
    may = framework.lends if beyond else framework.allocatable
    was_ready = framework.job_ready(job)
    extra = 0
    while tasks:
        task = tasks.pop()
        if task.best_effort and framework.job_ready(job):
            continue
        if not may(job.queue, task.cls.amounts):
            # A pod that fits nowhere is told so; the queue is named only where it alone is in the way.
            if cycle.placer.choose(task.cls) is None:
                cycle.refused(task, amid_gang=bool(statement.steps))
            else:
                _too_dear(cycle, task, task.cls.amounts)
            continue
        if task.role and task.role in failed_roles:
            task.puzzling = False
            task.error = f"Task {task.name} with role spec {task.role} has already predicated failed, skip"
            continue
        price = _Price(cycle, task, may) if task.cls.quota_known_late else None
        accept = None if price is None else price.accepted
        choice = placer.choose(task.cls, task.nominated, accept) if task.nominated else None
        choice = choice or placer.choose(task.cls, accept=accept)
        # Nothing is free: where somebody made room for it, it may still be on its way.
        future = placer.choose_future(task.cls, task.nominated) if choice is None and task.nominated else None
        if choice is None and future is None and price is not None and price.declined is not None:
            _too_dear(cycle, task, price.declined)
            continue
        if choice is not None:
            statement.allocate(task, choice)
        elif (future := future or placer.choose_future(task.cls)) is not None:
            statement.pipeline(task, future)
        else:
            cycle.refused(task, amid_gang=bool(statement.steps))
            failed_roles.add(task.role)
            if not _go_on(job, failed_roles, tasks):
                return
            continue
        if framework.job_ready(job):
            extra += 1
            if not was_ready or beyond or extra >= CHUNK:
                return


@dataclass(slots=True)
class _Price:
    """What cards come to for a queue that pays by memory: known only once they are chosen (``PodClass.quota_known_late``)."""

    cycle: Cycle
    task: Task
    may: Callable[[QueueState, Vector], bool]
    declined: Vector | None = None

    def accepted(self, choice: Choice) -> bool:
        assert self.task.job is not None
        amounts = self.cycle.state.charges.of(self.task.cls, choice.grants)
        if amounts is None:
            return True  # what the class says was looked at before
        if self.may(self.task.job.queue, amounts):
            return True
        self.declined = amounts
        return False


def _too_dear(cycle: Cycle, task: Task, amounts: Vector) -> None:
    job = task.job
    assert job is not None
    short = cycle.framework.short_of(job.queue, task, amounts)
    text = f"queue {job.queue.name} has no room left for it" + (f" ({short})" if short else "")
    task.error, task.puzzling = text, False
    cycle.blocked[job] = f"queue {job.queue.name} has no room left"
    cycle.short_of_share[job] = None


def _go_on(job: Job, failed: set[str], rest: list[Task]) -> bool:
    """After a failure: can the job still become ready with the tasks that are left? (spec 10.2)"""
    total, least = len(job.tasks), job.min_available
    if least == total:
        return False
    if least < sum(job.role_minimum.values()):
        untried = sum(1 for task in rest if task.role not in failed or not task.role)
        return job.ready_count + untried >= least
    if any(role in job.role_minimum for role in failed):
        have = job.role_counts((Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING))
        return all(have.get(role, 0) >= job.role_minimum.get(role, 0) for role in failed)
    return True
