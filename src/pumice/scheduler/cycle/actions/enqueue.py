"""enqueue: pending jobs for which there is room become Inqueue (Volcano pkg/scheduler/actions/enqueue)."""

from __future__ import annotations

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.queueing import hold_up, in_turn, newcomers, queues, refuse
from pumice.scheduler.state.jobs import Job, QueueState
from pumice.scheduler.state.tasks import by_queue


def enqueue(cycle: Cycle) -> None:
    framework = cycle.framework
    for queue in sorted(queues(cycle), key=framework.queue_order_key):  # what is promised changes no queue's place
        jobs = [job for job in newcomers(queue) if job.is_pending()]
        if queue.one_by_one and jobs:
            _one_by_one(cycle, queue)
            continue
        for job in sorted(jobs, key=lambda job: (framework.job_order_key(job), job.key)):
            _try(cycle, job)


def _one_by_one(cycle: Cycle, queue: QueueState) -> None:
    """Start jobs in their order, until one cannot be started."""
    jobs = in_turn(cycle, queue)
    for number, job in enumerate(jobs):
        if job.backoff.until > cycle.now or not _try(cycle, job):
            hold_up(cycle, job, jobs[number + 1 :])
            return


def _try(cycle: Cycle, job: Job) -> bool:
    before, job.refusal = job.refusal, None
    if _may_start(cycle, job):
        cycle.framework.job_enqueued(job)
        job.reserve_minimum()
        cycle.state.scheduling_queue.write_status(job)
        return True
    refuse(cycle, job, job.refusal)
    if job.group is not None and job.refusal is not None and job.refusal != before:
        # Volcano pkg/scheduler/plugins/proportion, Volcano pkg/scheduler/plugins/overcommit
        cycle.effects.append(job.event("Normal", "Unschedulable", job.refusal.text))
    return False


def _may_start(cycle: Cycle, job: Job) -> bool:
    """Return whether there is room for the minimum that it names; a job that names none may always start (Volcano
    pkg/scheduler/actions/enqueue)."""
    if not job.queue.open:
        job.refusal = by_queue(job.queue.closed_text)
        return False
    return job.min_resources is None or cycle.framework.job_enqueueable(job)
