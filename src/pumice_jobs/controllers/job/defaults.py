"""Defaults of a Job: the same whether an admission webhook ran or not."""

from __future__ import annotations

from typing import Final

import msgspec

from pumice.wire.batch import Job, Task
from pumice.wire.names import DEFAULT_QUEUE, SCHEDULER_NAME
from pumice_jobs.controllers.job.phases import minimum

MAX_RETRY: Final = 3
NEEDS: Final = {"tensorflow": ("svc",), "pytorch": ("svc",), "ray": ("svc",), "mpi": ("svc", "ssh")}
"""Plugins that bring others along."""


def completed(job: Job) -> Job:
    """The Job with every default. A task's minAvailable that was not said stays unsaid: the rules ask which one was."""
    spec = job.spec
    tasks = [_task(task, index) for index, task in enumerate(spec.tasks)]
    plugins = dict(spec.plugins)
    for plugin in spec.plugins:
        for needed in NEEDS.get(plugin, ()):
            plugins.setdefault(needed, [])
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(
        spec, tasks=tasks, plugins=plugins, queue=spec.queue or DEFAULT_QUEUE, max_retry=spec.max_retry or MAX_RETRY,
        scheduler_name=spec.scheduler_name or SCHEDULER_NAME,
        min_available=spec.min_available or sum(minimum(task) for task in tasks)))  # fmt: skip


def _task(task: Task, index: int) -> Task:
    return msgspec.structs.replace(task, name=task.name or f"default{index}", max_retry=task.max_retry or MAX_RETRY)
