"""Which queues and jobs may be tried now."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.engine.cycle.cycle import RETRY, Cycle
from pumice.engine.state.jobs import Job, QueueState
from pumice.engine.state.scheduling_queue import Event, Hint
from pumice.engine.state.tasks import Reason, by_gang, by_queue


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
                cycle.state.scheduling_queue.rest(job, Event.WRITE_REFUSED, Hint(job.backoff.until))
            elif not _present(cycle, job):
                until = job.wait_until if job.wait_until > cycle.now else cycle.now + RETRY
                cycle.state.scheduling_queue.rest(job, Event.INVALID, Hint(until))


def refuse(cycle: Cycle, job: Job, reason: Reason | None) -> None:
    """The whole job is not tried, and that is why; where its pods would have gone before is true no longer."""
    job.refusal = reason
    for task in job.pending.values():
        task.trial = None
    cycle.tried[job] = cycle.blocked[job] = None


def call_up(cycle: Cycle, queue: QueueState) -> None:
    """A queue that is first in, first out: who waits asleep at its head holds up those of whom something changed, too. Who could
    not start if there were room does not."""
    for job in queue.waiters:
        if job not in queue.active and job.runnable and not job.stalled and _present(cycle, job):
            cycle.state.scheduling_queue.activate(job)


def in_turn(cycle: Cycle, queue: QueueState) -> list[Job]:
    """Jobs of such a queue that are to be started, whether anything of theirs changed or not."""
    jobs = [job for job in queue.jobs if job.is_pending() and _present(cycle, job)]
    return sorted(jobs, key=lambda job: (cycle.framework.job_key(job), job.key))


def hold_up(cycle: Cycle, first: Job, others: Iterable[Job]) -> None:
    """These come after one that cannot go."""
    reason = by_queue(f"{first.name} comes first in queue {first.queue.name}, which is first in, first out")
    for job in list(others):
        if job in job.queue.active:
            refuse(cycle, job, reason)


def _present(cycle: Cycle, job: Job) -> bool:
    """Whether its group exists (spec 5); that of a bare pod may still be on its way."""
    return job.group is not None or (job.implicit and job.wait_until <= cycle.now)


def candidates(queue: QueueState) -> list[Job]:
    """Jobs of a queue that may be tried."""
    return list(queue.active) if queue.present else []


def newcomers(queue: QueueState) -> list[Job]:
    """Those of them that have no place in its line yet."""
    return list(queue.active.fresh) if queue.present else []
