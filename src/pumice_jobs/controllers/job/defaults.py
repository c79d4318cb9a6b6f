"""Defaults of a Job: the same whether an admission webhook ran or not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

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


# -- A task's pod template as Kubernetes reads it --------------------------------------------------------------------

# What is null is not there. The definition of Jobs leaves templates as they come.

Json = dict[str, Any]


def template(task: Task) -> Json:
    """A fresh copy; empty where it is none. Raises DecodeError."""
    return read(bytes(task.template))


def read(written: bytes) -> Json:
    return mapping(msgspec.json.decode(_plain(written))) if written else {}


@lru_cache(256)
def _plain(written: bytes) -> bytes:
    """Thousands of Jobs are of one template."""
    return msgspec.json.encode(_without_nulls(msgspec.json.decode(written)))


def mapping(value: Any) -> Json:
    """A member that should be one; empty where it is something else."""
    return value if isinstance(value, dict) else {}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value
