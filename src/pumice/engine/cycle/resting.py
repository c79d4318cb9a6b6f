"""The end of a cycle for those that were tried: what stands is let go, and each job rests until what it waits for happens."""

from __future__ import annotations

from pumice.engine.cycle.cycle import RETRY, Cycle
from pumice.engine.cycle.over_cycles import ACTION as ALLOCATE
from pumice.engine.cycle.queueing import queues
from pumice.engine.cycle.statement import Place, Step
from pumice.engine.state.domains import bound_together
from pumice.engine.state.jobs import Job
from pumice.engine.state.scheduling_queue import NO_HINT, Event, Hint
from pumice.engine.state.tasks import Status
from pumice.engine.state.waiting import never

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
    for found in cycle.state.departures.untold.values():
        if found.action == ALLOCATE:
            found.meanwhile.update(cycle.tried)
    if cycle.standing:  # others saw the held room as taken; who comes anew, and is more important, may have it
        cycle.placer.reconsider(cycle.placer.fallen)
    if not cycle.out_of_time():
        for queue in queues(cycle):
            for job in [job for job in queue.active if job not in cycle.tried and job not in cycle.postponed]:
                # No action of this configuration looks at it.
                cycle.state.scheduling_queue.rest(job, Event.UNPLACED, Hint(cycle.now + RETRY, released=True))


def _let_go(cycle: Cycle) -> list[Step]:
    """Take back what standing gangs hold, and return it. Nothing of it reached the world, and no Binding may rest on it. Rows of
    gangs that stand no longer are offered to whoever sleeps."""
    table, before = cycle.state.ledger.table, cycle.state.scheduling_queue.reserved
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
    cycle.state.scheduling_queue.reserve(now)
    return [step for steps in back.values() for step in steps]


def _put_to_rest(cycle: Cycle, job: Job) -> None:
    """Say what the cycle found of a job that was tried, and what may help it; one that it is not finished with stays active."""
    found = _verdict(cycle, job) if job.known else None
    if found is not None:
        cycle.state.scheduling_queue.rest(job, *found)


def _verdict(cycle: Cycle, job: Job) -> tuple[Event, Hint] | None:
    if job.backoff.until > cycle.now:
        return Event.WRITE_REFUSED, Hint(job.backoff.until)
    pending = [t for t in job.pending.values() if not t.gated or (t.awaits_queue and not t.let_in)]
    if job in cycle.invalid:
        return Event.INVALID, NO_HINT
    if not pending and not job.is_pending():
        return _nothing_to_try(job), NO_HINT
    cycle.state.scheduling_queue.bound_inqueue(job, cycle.now)
    hoping = [t for t in pending if not never(t)]
    if pending and not hoping:
        return Event.INVALID, NO_HINT
    classes = tuple(cls for cls in dict.fromkeys(t.cls for t in hoping) if cycle.placer.is_asleep(cls))
    nowhere = all(t.cls in classes and not t.awaits_queue for t in hoping)
    if job in cycle.postponed:
        return None
    reserved = job in cycle.state.scheduling_queue.reserved
    blocked = job in cycle.blocked and (job.is_pending() or not nowhere)  # where no node takes it, its queue is no matter yet
    if blocked or reserved or job in cycle.discarded:
        return Event.PART_PLACED if reserved else Event.UNPLACED, Hint(_again(cycle, job), released=True)
    if any(t.backoff.until > cycle.now for t in pending):
        return Event.WRITE_REFUSED, Hint(min(t.backoff.until for t in pending if t.backoff.until > cycle.now))
    if not hoping:
        return _nothing_to_try(job), NO_HINT
    if nowhere:
        if cycle.makes_room and not all(t.hopeless for t in hoping):  # who may go changes without anything being released
            return Event.UNPLACED, Hint(cycle.now + ROOM_RETRY, released=True, classes=classes)
        return Event.UNPLACED, Hint(classes=classes)
    if cycle.out_of_time():
        return None
    return Event.UNPLACED, Hint(_again(cycle, job), released=True)


def _nothing_to_try(job: Job) -> Event:
    """Return what follows for a job all of whose pods are gated, nominated or placed."""
    if job.pending:
        return Event.INVALID
    return Event.NOMINATION if job.counts[Status.PIPELINED] else Event.NOTHING_LEFT


def _again(cycle: Cycle, job: Job) -> float:
    """When to look at a job that waits for room although nothing was released."""
    asks = cycle.makes_room and (job not in cycle.blocked or bound_together(job))
    return min(cycle.now + (ROOM_RETRY if asks else RETRY), cycle.framework.job_due(job, cycle.now))
