"""gang: a job runs with its minimum of pods or not at all (Volcano pkg/scheduler/plugins/gang)."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.scheduler.plugins.contract import (
    PERMIT,
    REJECT,
    Invalid,
    JobOrder,
    JobPipelined,
    JobReady,
    JobStarving,
    JobValid,
    Preemptable,
    Reclaimable,
    Session,
    Spared,
)
from pumice.scheduler.state.domains import NOMINATED, VALID, enough_groups
from pumice.scheduler.state.jobs import READY_STATUSES, Job, Status, Task


class Gang(JobOrder, JobValid, JobReady, JobPipelined, JobStarving, Preemptable, Reclaimable):
    name = "gang"

    def job_order_key(self, job: Job) -> int:
        return 1 if job.is_ready() else 0

    def job_valid(self, job: Job) -> Invalid | None:
        if not job.role_valid():
            return Invalid("NotEnoughPodsOfTask", "Not enough valid pods of each task for gang-scheduling")
        if not enough_groups(job, VALID):
            return Invalid("NotEnoughPodsOfTask", "Not enough valid subGroups of each task for gang-scheduling")
        if job.valid_count < job.min_available:
            counts = f"valid: {job.valid_count}, min: {job.min_available}"
            return Invalid("NotEnoughTasks", f"Not enough valid tasks for gang-scheduling, {counts}")
        return None

    def job_ready(self, job: Job) -> bool:
        return job.is_ready() and job.role_ready() and enough_groups(job, READY_STATUSES)

    def job_pipelined(self, job: Job) -> int:
        return PERMIT if job.is_pipelined() and job.role_pipelined() and enough_groups(job, NOMINATED) else REJECT

    def job_starving(self, job: Job) -> bool:
        return job.ready_count + job.counts[Status.PIPELINED] < job.min_available

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """Nobody goes by whom a gang would fall under its minimum."""
        left: dict[Job, int] = {}
        spared = {}
        for task in victims:
            job = task.job
            if job is None:
                continue
            firm = left.get(job, job.firm_count)  # a Binding that is on its way may be refused
            if firm > job.min_available:
                left[job] = firm - 1
            else:
                spared[task.uid] = f"gang {job.name} would fall under its minimum {job.min_available}"
        return spared

    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        return self.not_preemptable(preemptor, victims)

    def close(self, session: Session) -> None:
        """Say on the PodGroup whether its gang stands (Volcano pkg/scheduler/plugins/gang)."""
        for job in session.looked_at():
            if job.group is None or not job.tasks:
                continue
            if self.job_ready(job):
                session.report_ready(job)
            elif not _only_waits_for_terminating(job):
                would = sum(1 for t in job.pending.values() if t.trial is not None and t.trial[0] is Status.ALLOCATED)
                session.report_unready(job, max(0, job.min_available - job.ready_count - would))


def _only_waits_for_terminating(job: Job) -> bool:
    releasing = sum(1 for t in job.tasks.values() if t.status is Status.RELEASING and t.node)
    if not releasing or job.counts[Status.PENDING] or job.counts[Status.PIPELINED]:
        return False
    return job.ready_count + releasing >= job.min_available
