"""priority: the more important job and pod first; room is made by less important ones only (Volcano
pkg/scheduler/plugins/priority)."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.scheduler.plugins.contract import JobOrder, JobStarving, Preemptable, Spared, TaskOrder
from pumice.scheduler.state.jobs import Job, Status, Task


class Priority(JobOrder, TaskOrder, JobStarving, Preemptable):
    name = "priority"

    def job_order_key(self, job: Job) -> int:
        return -job.priority

    def task_order_key(self, task: Task) -> int:
        return -task.priority

    def job_starving(self, job: Job) -> bool:
        return job.ready_count + job.counts[Status.PIPELINED] < len(job.tasks)

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """Between jobs their priorities count, inside a job those of its pods."""
        job = preemptor.job
        assert job is not None
        spared = {}
        for task in victims:
            mine, its = (preemptor.priority, task.priority) if task.job is job else (job.priority, task.rank)
            if its >= mine:
                spared[task.uid] = f"its priority {its} is not lower than {mine}"
        return spared
