"""Trying the pods of one job: place what may be placed, and find why the rest may not."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto

from pumice.effects import vocabulary as effects
from pumice.scheduler.cycle import over_cycles
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.queueing import May, affordable, cost_of, open_gates, queue_shortage, with_kept_for_others
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.placing.evaluation import Among
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import Vector
from pumice.scheduler.state.tasks import Status, by_nodes, by_queue

# -- pods that no node took: their reasons, worked out beside the placing ----------------------------------------------


def refused(cycle: Cycle, task: Task, *, amid_gang: bool = False, among: Among | None = None) -> None:
    """No node took the pod; why is worked out later, once per class (``explain``), or at once while the rest of its
    gang holds the room that it lacks, and where its queue or its job have a say in where it may go."""
    if amid_gang or among is not None:
        task.unexplained, task.error = False, by_nodes(cycle.placer.why(task.cls, among=among).text)
        _note_unresolvable(cycle, task, cycle.placer.unresolvable(task.cls))
        if task.cls in cycle.placer.evaluation.claims.late and task.job is not None:
            cycle.attempts[task.job].postponed = True  # the reason is not known before its devices were searched for
        if not amid_gang:
            deallocate(cycle, task)
        return
    cycle.state.scheduling_queue.ask_why(task)


def explain(cycle: Cycle) -> None:
    """Work out reasons while there is time; at least one class per cycle. The rest waits for the next cycle."""
    if cycle.out_of_time():
        _ask_for_untried(cycle)
    state, begin = cycle.state, cycle.tick()
    for cls in list(state.scheduling_queue.unexplained):
        tasks = state.scheduling_queue.take_unexplained(cls)
        pending = [t for t in tasks if t.unexplained and t.status is Status.PENDING and t.job is not None]
        if not pending:
            continue
        why = by_nodes(cycle.placer.why(cls).text)
        if cls in cycle.placer.evaluation.claims.late:  # the search for its devices goes on in the next cycle, and so does this
            for task in pending:
                cycle.state.scheduling_queue.ask_why(task)
            continue
        unresolvable = cycle.placer.unresolvable(cls)
        for task in pending:
            task.unexplained, task.error = False, why
            assert task.job is not None
            cycle.attempts[task.job].explained = True
            deallocate(cycle, task)
            _note_unresolvable(cycle, task, unresolvable)
        if cycle.past(begin, 1 / 3):
            return


def deallocate(cycle: Cycle, task: Task) -> None:
    """Give back devices that claims of the pod have and that only pods without a place use: where they are no node takes it
    (kube-scheduler's PostFilter), or its gang does not start. It is tried again when the API server shows that."""
    claims, tasks = cycle.state.device_claims, cycle.state.tasks
    for one in task.cls.device_claims:
        claim = claims.claims.get(one.key)
        if claim is None or claim.results is None or claim.uid in cycle.given_back or claims.placed_with(claim.uid):
            continue
        if all(uid in tasks and tasks[uid].status is Status.PENDING for uid in claim.consumers):
            cycle.given_back.add(claim.uid)
            for uid in sorted(claim.consumers) or [task.uid]:
                cycle.effects.append(effects.Deallocate(claim.namespace, claim.name, claim.uid, uid))


def deallocate_of_gang(cycle: Cycle, job: Job) -> None:
    """Give back the devices of a gang that does not start: a scheduler that was killed amid its writes has left them to some of
    it, and the others may have no room where these are."""
    found = cycle.attempt(job)
    if job.min_available > 1 and not (found.postponed or found.pipelined or cycle.framework.job_ready(job)):
        for task in job.pending.values():
            if task.cls.device_claims:
                deallocate(cycle, task)


def _ask_for_untried(cycle: Cycle) -> None:
    """Ask why for the pods that a cycle did not come to after others of their class: no node takes them, and nobody tries them
    again before something changes."""
    for job, found in cycle.attempts.items():
        if found.tried and not found.blocked and job.known:
            for task in job.pending.values():
                untried = task.error is None and task.trial is None and not (task.gated or task.unexplained)
                if untried and cycle.placer.is_unschedulable(task.cls):
                    cycle.state.scheduling_queue.ask_why(task)


def _note_unresolvable(cycle: Cycle, task: Task, unresolvable: bool) -> None:
    """Let a pod that no node can ever hold keep nothing from others: neither a share of its queue nor its job's reservation."""
    job = task.job
    if job is None or task.unresolvable is unresolvable:
        return
    job.set_unresolvable(task, unresolvable)
    if unresolvable:
        cycle.state.scheduling_queue.released()
        if job.stalled:
            cycle.state.scheduling_queue.end_inqueue(job)


# -- placing -----------------------------------------------------------------------------------------------------------


CHUNK = 64
"""Pods of one ready job that are placed before the orders are looked at again (Volcano pkg/scheduler/actions/allocate allows
several per pass)."""


def pending(cycle: Cycle, job: Job, *, beyond: bool = False) -> list[Task]:
    """Tasks to try, in task order, last one first (they are popped from the end). Those that request nothing are left to
    backfill, unless the others need them to be a gang: then they come after them."""
    open_gates(cycle, job, beyond=beyond)
    tasks = [t for t in job.pending.values() if not t.gated and t.backoff.until <= cycle.now]
    if job.pending_best_effort:
        asking = [t for t in tasks if not t.asks_nothing]
        if len(asking) < len(tasks) and (not asking or cycle.framework.job_ready(job)):
            tasks = asking
    stood = job in cycle.state.scheduling_queue.reserved
    for task in tasks:
        if stood and task.trial is not None and task.trial[0] is Status.ALLOCATED:
            cycle.before[task.uid] = task.trial[1]
        task.trial = None
    if len(tasks) > 1:
        tasks.sort(key=lambda task: (task.asks_nothing, cycle.framework.task_order_key(task)), reverse=True)
    return tasks


def place(
    cycle: Cycle, job: Job, statement: Statement, tasks: list[Task], failed_roles: set[str], *, beyond: bool = False,
    within: Rows | None = None, may_stop: bool = False,
) -> bool:  # fmt: skip
    """Place tasks until the job is ready (then a chunk more); what could not be placed has its reason recorded, and other pods
    of its role are not tried in this cycle. ``beyond`` its queue's share no more is placed than the job needs to go on.
    ``within``: only on these nodes. ``may_stop``: where the time is over, what was found is held for the next cycle, and the
    answer is True; else what earlier cycles held is part of the statement in the end."""
    framework = cycle.framework
    may = affordable(cycle, statement, beyond=beyond)
    was_ready = framework.job_ready(job)
    search = over_cycles.Held(cycle, job, statement, tasks, failed_roles)
    extra = 0
    while tasks or search.begun:
        if search.begun and (search.enough() or not tasks):
            search.take_again()
            if framework.job_ready(job):
                return False
            continue
        task = tasks.pop()
        if task.asks_nothing and framework.job_ready(job):
            continue
        match attempt(cycle, statement, task, may, failed_roles, within):
            case Outcome.LEFT if may_stop and task.cls in cycle.placer.evaluation.claims.late and not search.taken:
                tasks.append(task)  # its devices are searched for in the next cycle, beside those that are found
                search.hold()
                return True
            case Outcome.LEFT:
                search.passed_over.append(task)
                continue
            case Outcome.REFUSED:
                search.passed_over.append(task)
                failed_roles.add(task.role)
                if not _go_on(job, failed_roles, tasks, search.places):
                    search.take_again()
                    for untried in tasks:
                        untried.error = None  # it was of an earlier try: other nodes, and others' places
                    return False
                continue
        if framework.job_ready(job):
            extra += 1
            if not was_ready or beyond or extra >= CHUNK or (was_ready and cycle.out_of_time()):
                return False
        elif may_stop and tasks and search.is_late():
            search.hold()
            return True
    return False


class Outcome(Enum):
    """The outcome of one pod's try."""

    PLACED = auto()
    """It has a place, or is nominated for one."""
    REFUSED = auto()
    LEFT = auto()
    """Its queue cannot take it, or another pod of its role was refused."""


def attempt(
    cycle: Cycle, statement: Statement, task: Task, may: May, failed_roles: Collection[str] = (), within: Rows | None = None
) -> Outcome:
    """Place one pod, or nominate it for a place; else its reason is recorded."""
    placer, job = cycle.placer, task.job
    assert job is not None
    among = cycle.among(task, within)
    amid_gang = bool(statement.steps) or over_cycles.begun(cycle, job) is not None
    amounts = with_kept_for_others(task, task.cls.amounts)
    if not may(job.queue, amounts):
        # A pod that fits nowhere is told so; the queue is named only where it alone is in the way.
        if placer.choose(task.cls, among=among) is None:
            refused(cycle, task, amid_gang=amid_gang, among=among)
        else:
            _too_dear(cycle, task, amounts)
        return Outcome.LEFT
    if task.role and task.role in failed_roles:
        task.unexplained = False
        task.error = by_nodes(f"Task {task.name} with role spec {task.role} has already predicated failed, skip")
        return Outcome.LEFT
    cost = cost_of(cycle, task, may)
    accept = None if cost is None else cost.accepted
    known = task.nominated or cycle.before.get(task.uid, "")
    choice = placer.choose(task.cls, known, accept, among) if known else None
    if choice is None and (hint := cycle.hints.get(task.uid)) is not None:
        choice = placer.as_wished(task.cls, *hint, accept, among)
    choice = choice or placer.choose(task.cls, accept=accept, among=among)
    # Nothing is free: where somebody made room for it, it may still be on its way.
    future = placer.choose_future(task.cls, task.nominated, among, accept) if choice is None and task.nominated else None
    if choice is None and future is None and cost is not None and cost.declined is not None:
        _too_dear(cycle, task, cost.declined)
        return Outcome.LEFT
    if choice is None and future is None and task.cls in placer.evaluation.claims.late:
        cycle.attempts[job].postponed = True
        return Outcome.LEFT
    if choice is not None:
        statement.place(task, choice)
    elif (future := future or placer.choose_future(task.cls, among=among, accept=accept)) is not None:
        statement.nominate(task, future)
    else:
        refused(cycle, task, amid_gang=amid_gang, among=among)
        return Outcome.REFUSED
    return Outcome.PLACED


def _too_dear(cycle: Cycle, task: Task, amounts: Vector) -> None:
    job = task.job
    assert job is not None
    task.error, task.unexplained = by_queue(queue_shortage(cycle, task, amounts)), False
    attempt = cycle.attempts[job]
    attempt.blocked = attempt.short_of_share = True


def _go_on(job: Job, failed: set[str], rest: list[Task], held: int) -> bool:
    """After a failure: can the job still become ready with the tasks that are left, and with the places that are ``held`` from
    cycles before? (Volcano pkg/scheduler/actions/allocate)"""
    total, least = len(job.tasks), job.min_available
    if least == total:
        return False
    if least < sum(job.role_minimum.values()):
        untried = sum(1 for task in rest if task.role not in failed or not task.role)
        return job.ready_count + held + untried >= least
    if any(role in job.role_minimum for role in failed):
        having = (Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING, *((Status.PIPELINED,) if held else ()))
        have = job.role_counts(having)
        return all(have.get(role, 0) >= job.role_minimum.get(role, 0) for role in failed)
    return True
