"""What is wrong with a Job in itself, in the admission's words (spec volcano-core 20.2).

The controller asks too: where no webhook ran, a Job that cannot be served says so and waits for its change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from pumice.controllers.job.dependencies import has_cycle
from pumice.controllers.job.phases import minimum, replicas
from pumice.wire.batch import Job

LABEL: Final = 63
"""Longest value of a label, and name of a Service."""
NO_CYCLE: Final = " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);"


def problems(job: Job, plugins: Collection[str]) -> str:
    """Why the controller cannot serve the Job, which has its defaults; empty where it can."""
    if not job.spec.tasks:
        return "No task specified in job spec"
    return "".join(_problems(job, plugins)).strip()


def _problems(job: Job, plugins: Collection[str]) -> Iterator[str]:
    name, seen = job.metadata.name, set[str]()
    for task in job.spec.tasks:
        if minimum(task) > task.replicas:
            yield f" 'minAvailable' is greater than 'replicas' in task: {task.name}, job: {name};"
        if task.name in seen:
            yield f" duplicated task name {task.name};"
        seen.add(task.name)
    if job.spec.min_available > replicas(job):
        yield " job 'minAvailable' should not be greater than total replicas in tasks;"
    for plugin in job.spec.plugins:
        if plugin not in plugins:
            yield f" unable to find job plugin: {plugin};"
    paths = set[str]()
    for volume in job.spec.volumes:
        if volume.mount_path in paths:
            yield f" duplicated mountPath: {volume.mount_path};"
        paths.add(volume.mount_path)
        if not volume.volume_claim_name and volume.volume_claim is None:
            yield " either VolumeClaim or VolumeClaimName must be specified;"
    if has_cycle(job.spec.tasks):
        yield NO_CYCLE
    if len(name) > LABEL:
        yield f" create job with name {name} validate failed [must be no more than {LABEL} characters];"
