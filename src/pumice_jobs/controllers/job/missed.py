"""Events of a Job while no controller looked, and since when, as far as the cluster tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from pumice.wire import names
from pumice.wire.batch import RESTARTING, Container, Job, JobPod, Task
from pumice.wire.volcano import PodGroup, seconds
from pumice_jobs.controllers.job.phases import LIVING
from pumice_jobs.controllers.job.plugins.contract import pod_name
from pumice_jobs.controllers.job.requests import (
    NEVER_FAILS,
    POD_EVICTED,
    TASK_FAILED,
    UNKNOWN_GROUP,
    Request,
    about,
    by_our_hand,
    events,
    restarts,
    task_of,
)

_LIVE: Final = ("Pending", "Running")


def missed(job: Job, pods: Mapping[str, JobPod], group: PodGroup | None) -> list[Request]:
    """Pods that ended, that are gone, or whose containers restarted too often, and a group that was lost."""
    if job.phase not in (*LIVING, RESTARTING):
        return []
    found = list[Request]()
    if group is not None and group.status.phase == UNKNOWN_GROUP:
        found.append(Request(UNKNOWN_GROUP, version=job.status.version, since=_lost_since(group)))
    for pod in pods.values():
        found += events(job, None, pod, pods.values())
    for task in job.spec.tasks:
        mine = [pod for pod in pods.values() if task_of(pod) == task.name]
        found += _failed(task, mine)
        if job.phase != RESTARTING:
            found += _evicted(job, task, mine)
    return found


def _evicted(job: Job, task: Task, pods: list[JobPod]) -> Iterator[Request]:
    """Those whose successors do not run yet and tell of them; and one where fewer are there than were counted."""
    for pod in pods:
        if pod.status.phase == "Pending" and (gone := seconds(pod.metadata.annotations.get(names.PREDECESSOR_GONE, ""))):
            yield replace(about(pod, POD_EVICTED), since=gone)
    counted = job.status.task_status_count.get(task.name)
    if counted is not None and len(pods) < min(sum(counted.phase.values()), task.replicas):
        there = {pod.metadata.name for pod in pods}
        called = (pod_name(job, task, index) for index in range(task.replicas))
        lost = next((name for name in called if name not in there), "")
        yield Request(POD_EVICTED, task=task.name, pod=lost, version=job.status.version)


def _failed(task: Task, pods: Iterable[JobPod]) -> Iterator[Request]:
    """That a task's containers have restarted too often, told of the pod that did so last."""
    last: list[tuple[float, int, JobPod]] = []
    for pod in pods:
        if pod.status.phase in _LIVE and restarts(pod) and not pod.terminating and not by_our_hand(pod):
            containers = (*pod.status.container_statuses, *pod.status.init_container_statuses)
            last += ((_restarted(each), each.restart_count, pod) for each in containers if each.restart_count)
    last.sort(key=lambda each: each[0])
    left = task.max_retry
    for when, count, _ in last if left != NEVER_FAILS else ():
        left -= count
        if left <= 0:  # of a container only its last restart is known: it was so at that time at the latest
            yield about(last[-1][2], TASK_FAILED, when)
            return


def _restarted(container: Container) -> float:
    """When a container was started last, by its kubelet's clock; 0 where nothing tells."""
    now, before = container.state, container.last_state
    for run in (now.running, now.terminated, before.terminated):
        if run is not None:
            return seconds(run.started_at)
    return 0.0


def _lost_since(group: PodGroup) -> float:
    """Since when a group is Unknown, at the latest: its scheduler then says what it lacks. 0 where it last said otherwise."""
    said = [each for each in group.status.conditions if each.status == "True"]
    newest = max(said, key=lambda each: seconds(each.last_transition_time), default=None)
    return seconds(newest.last_transition_time) if newest is not None and newest.type != "Scheduled" else 0.0
