"""The end of a cycle for those that were tried: what stands is let go, and each job rests until what it waits for happens."""

from __future__ import annotations

from pumice.engine.cycle.cycle import RETRY, Cycle
from pumice.engine.cycle.queueing import queues
from pumice.engine.cycle.statement import Place, Step
from pumice.engine.state.domains import bound_together
from pumice.engine.state.jobs import Job
from pumice.engine.state.waiting import never
from pumice.wire.volcano import INQUEUE

ROOM_RETRY = 5.0
"""Seconds after which a job is looked at again for whom no room could be made."""


def rest(cycle: Cycle) -> None:
    """Take back what did not reach the world, and let everybody wait for what they lack."""
    taken_back = [step for statement in reversed(cycle.promises) for step in statement.rollback()]
    taken_back += _let_go(cycle)
    for job in {step.task.job: None for step in taken_back if step.task is not None}:
        if job is not None and job.known:
            job.settle()  # when it was settled last, those places counted as taken
    for job in cycle.tried:
        _put_to_rest(cycle, job)
    if cycle.standing:  # others saw the held room as taken; who comes anew, and is more important, may have it
        cycle.placer.reconsider(cycle.placer.fallen)
    if not cycle.out_of_time():
        for queue in queues(cycle):
            for job in [job for job in queue.active if job not in cycle.tried]:
                cycle.state.agenda.wait(job, cycle.now + RETRY)  # no action of this configuration looks at it


def _let_go(cycle: Cycle) -> list[Step]:
    """Take back what standing gangs hold, and return it. Nothing of it reached the world, and no Binding may rest on it. Rows of
    gangs that stand no longer are offered to whoever sleeps."""
    table, before = cycle.state.ledger.table, cycle.placer.standing
    back = {job: statement.rollback() for job, statement in reversed(cycle.standing.items())}
    now = {job: frozenset(step.choice.row for step in steps if isinstance(step, Place)) for job, steps in back.items()}
    for job, rows in before.items():
        if job in now:
            continue
        if job.known and job not in cycle.tried and cycle.out_of_time():
            now[job] = rows
            continue
        for row in rows:
            table.touch(row, gain=True)
    cycle.placer.standing = now
    return [step for steps in back.values() for step in steps]


def _put_to_rest(cycle: Cycle, job: Job) -> None:
    """A job that was tried leaves the active set until something that it waits for happens."""
    agenda = cycle.state.agenda
    if not job.known:
        return
    pending = [t for t in job.pending.values() if not t.gated or (t.awaits_queue and not t.let_in)]
    if job.held_until > cycle.now:
        job.retry_at = job.held_until
        agenda.wait(job, job.held_until)
        return
    if job in cycle.invalid or (not pending and not job.is_pending()):
        agenda.dismiss(job)
        return
    if job.phase == INQUEUE and job.inqueue:
        agenda.bound_promise(job, cycle.now)
    hoping = [t for t in pending if not never(t)]
    asleep = {t.cls for t in hoping if cycle.placer.is_asleep(t.cls)}
    nowhere = all(t.cls in asleep and not t.awaits_queue for t in hoping)
    blocked = job in cycle.blocked and (job.is_pending() or not nowhere)  # where no node takes it, its queue is no matter yet
    if pending and not hoping:
        agenda.sleep(job, ())
    elif job in cycle.postponed:
        return
    elif blocked or job in cycle.discarded or job in cycle.placer.standing:
        agenda.wait(job, _again(cycle, job))
    elif any(t.retry_at > cycle.now for t in pending):
        job.retry_at = min(t.retry_at for t in pending if t.retry_at > cycle.now)
        agenda.wait(job, job.retry_at)
    elif nowhere:
        agenda.sleep(job, asleep)
        if cycle.makes_room and not all(t.hopeless for t in hoping):
            agenda.wait(job, cycle.now + ROOM_RETRY)  # who may go changes without anything being released
    elif not cycle.out_of_time():  # else it is not finished with, and stays active
        agenda.wait(job, _again(cycle, job))


def _again(cycle: Cycle, job: Job) -> float:
    """When to look at a job that waits for room although nothing was released."""
    asks = cycle.makes_room and (job not in cycle.blocked or bound_together(job))
    return min(cycle.now + (ROOM_RETRY if asks else RETRY), cycle.framework.job_due(job, cycle.now))
