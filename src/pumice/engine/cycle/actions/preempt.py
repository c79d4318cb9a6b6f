"""preempt: room for more important pods is made within their queue (spec volcano-core 10.4)."""

from __future__ import annotations

from pumice.engine.cycle.actions.starving import claimants, settle, starving
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.room.making import Making, Trial
from pumice.engine.cycle.room.scope import between_jobs, inside_a_job
from pumice.engine.state.domains import bound_together


def preempt(cycle: Cycle) -> None:
    """By pods of other jobs; of a job that starves still, by its own."""
    among, inside = Making(cycle, between_jobs(cycle.framework)), Making(cycle, inside_a_job(cycle.framework))
    for job in starving(cycle, "preempt"):
        settle(cycle, among, job, among.for_job(job, claimants(cycle, job)))
        if job in cycle.postponed or job.ready_count == 0 or bound_together(job) or not cycle.framework.job_starving(job):
            continue
        for task in claimants(cycle, job):
            trial = Trial(cycle.statement(), attempts=1)
            inside.for_pod(task, trial)
            if not settle(cycle, inside, job, trial):
                break
