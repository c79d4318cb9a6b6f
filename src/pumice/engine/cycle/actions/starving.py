"""Jobs that may have room made for them, and what becomes of the trial (part of preempt and reclaim)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.queueing import queues
from pumice.engine.cycle.room.committing import carry_out, hold
from pumice.engine.cycle.room.making import Making, Trial
from pumice.engine.cycle.statement import Evict, Place
from pumice.engine.state.domains import policies_of
from pumice.engine.state.jobs import Job, QueueState, Task


def starving(cycle: Cycle, action: str, admitted: Callable[[QueueState], bool] = lambda queue: True) -> Iterator[Job]:
    """Queue by queue, the most urgent first, the jobs that were tried in this cycle and lack pods. Those for whom there was no
    time stay active; one has its turn in every cycle. A search that was begun is gone on with by its action alone."""
    framework, first = cycle.framework, True
    for queue in sorted((queue for queue in queues(cycle) if queue.present and queue.open), key=framework.queue_key):
        jobs = [job for job in queue.active if job in cycle.tried and _may_ask(cycle, job, action)]
        if not jobs or not admitted(queue):
            continue
        for job in sorted(jobs, key=framework.job_key):
            if not first and cycle.out_of_time():
                cycle.postponed[job] = None
                continue
            if framework.job_starving(job):
                first = False
                yield job


def claimants(cycle: Cycle, job: Job) -> list[Task]:
    """Its pods that may be tried, in order."""
    tasks = [task for task in job.pending.values() if not task.gated and task.backoff.until <= cycle.now]
    return sorted(tasks, key=cycle.framework.task_key)


def settle(cycle: Cycle, making: Making, job: Job, trial: Trial) -> bool:
    """Carry the trial out where the job can go on by it, or hold it for the next cycle where it is not finished; else take it
    back. True: somebody goes."""
    statement, untold = trial.statement, cycle.state.departures.untold
    cycle.measures.room_tried += trial.attempts
    if trial.unfinished:
        found = hold(cycle, job, trial)
        found.action, found.known = making.scope.action, making.orders
        cycle.postponed[job] = None
        return False
    somebody = job in untold or any(isinstance(step, Evict) for step in statement.steps)
    if somebody and cycle.framework.job_pipelined(job):
        carry_out(cycle, job, trial, making.scope.action)
        return True
    if job in untold:
        cycle.state.departures.withdraw(job)
    if any(isinstance(step, Place) for step in statement.rollback()):
        cycle.placer.reconsider(task.cls for task in job.pending.values())  # one of its pods held another's room
    return False


def _may_ask(cycle: Cycle, job: Job, action: str) -> bool:
    """Not for jobs of which sub-groups are bound to parts of the network."""
    begun = cycle.state.departures.untold.get(job)
    return (begun is None or begun.action == action) and bool(
        job.pending and not job.is_pending() and job not in cycle.standing and job not in cycle.invalid
        and job.backoff.until <= cycle.now and not policies_of(job)
    )  # fmt: skip
