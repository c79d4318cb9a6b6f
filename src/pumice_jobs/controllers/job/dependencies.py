"""Tasks that wait for others (dependsOn)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from pumice.wire.batch import Job, JobPod, Task
from pumice_jobs.controllers.job.phases import minimum
from pumice_jobs.controllers.job.requests import task_of

ANY = "any"


def startable(job: Job, pods: Iterable[JobPod]) -> list[Task]:
    """The tasks whose pods may be made now."""
    if not any(task.depends_on for task in job.spec.tasks):
        return job.spec.tasks
    ready = Counter(task_of(pod) for pod in pods if not pod.terminating and is_up(pod))
    met = {task.name: ready[task.name] >= minimum(task) for task in job.spec.tasks}
    return [task for task in job.spec.tasks if _may_start(task, met)]


def is_up(pod: JobPod) -> bool:
    """Succeeded, or running with all containers ready."""
    status = pod.status
    return status.phase == "Succeeded" or (
        status.phase == "Running" and bool(status.container_statuses) and all(each.ready for each in status.container_statuses)
    )


def _may_start(task: Task, met: Mapping[str, bool]) -> bool:
    needs = task.depends_on
    if needs is None or not needs.name:
        return True
    each = [met.get(name, False) for name in needs.name]
    return any(each) if needs.iteration == ANY else all(each)


def has_cycle(tasks: Iterable[Task]) -> bool:
    """Return whether the dependencies form no directed acyclic graph; one on a task that is not there counts as such."""
    needs = {task.name: task.depends_on.name if task.depends_on else () for task in tasks}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError:
        return True
    return any(name not in needs for names in needs.values() for name in names)
