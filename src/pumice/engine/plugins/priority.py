"""priority: the more important job and pod first (spec volcano-core 11.1)."""

from __future__ import annotations

from pumice.engine.plugins.contract import OrdersJobs, OrdersTasks
from pumice.engine.state.jobs import Job, Task


class Priority(OrdersJobs, OrdersTasks):
    name = "priority"

    def job_key(self, job: Job) -> int:
        return -job.priority

    def task_key(self, task: Task) -> int:
        return -task.priority
