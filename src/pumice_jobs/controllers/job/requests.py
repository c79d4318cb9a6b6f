"""Events of a Job, and the action with which its policies answer one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pumice.wire import names
from pumice.wire.batch import RESTARTING, Container, Job, JobPod, Policy, Task
from pumice.wire.quantity import parse_duration
from pumice.wire.times import seconds
from pumice.wire.volcano import PodGroup
from pumice_jobs.controllers.job.phases import (
    LIVING,
    RESTART_JOB,
    RESTART_PARTITION,
    RESTART_POD,
    RESTART_TASK,
    SYNC,
    TARGETED,
)
from pumice_jobs.controllers.job.plugins.contract import pod_name

ANY = "*"
POD_FAILED, POD_EVICTED, POD_PENDING, POD_RUNNING = "PodFailed", "PodEvicted", "PodPending", "PodRunning"
TASK_COMPLETED, TASK_FAILED, UNKNOWN_GROUP = "TaskCompleted", "TaskFailed", "Unknown"
OUT_OF_SYNC, COMMAND = "OutOfSync", "CommandIssued"
INTERNAL: Final = (OUT_OF_SYNC, COMMAND, POD_RUNNING)
NEVER_FAILS: Final = -1


@dataclass(frozen=True, slots=True)
class Request:
    """One event, with the pod that it is about where there is one. ``action`` is said by a Command."""

    event: str
    action: str = ""
    task: str = ""
    pod: str = ""
    uid: str = ""
    partition: str = ""
    exit_code: int = 0
    version: int | None = None
    since: float = 0.0
    """When it began, where that is known; 0 means now."""
    command: str = ""
    """Uid of the Command that says the action."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An action, at once or after a while."""

    action: str
    after: float | None = None


def answer(job: Job, request: Request) -> Answer:
    """The action for a request; SyncJob where no policy speaks of it."""
    if request.action:
        return Answer(request.action)
    if request.event in INTERNAL or (request.version is not None and request.version < job.status.version):
        return Answer(SYNC)
    task = next((task for task in job.spec.tasks if task.name == request.task), None)
    for policy in (*(task.policies if task else ()), *job.spec.policies):
        after = _timeout(policy)
        if _speaks_of(policy, request, after):
            return Answer(_possible(policy.action, request), after)
    return Answer(SYNC)


def _speaks_of(policy: Policy, request: Request, after: float | None) -> bool:
    named = {policy.event, *policy.events}
    if request.event in named or ANY in named:
        return request.event != POD_PENDING or after is not None
    return request.event == POD_FAILED and bool(request.exit_code) and policy.exit_code == request.exit_code


def _timeout(policy: Policy) -> float | None:
    try:
        return parse_duration(policy.timeout) if policy.timeout else None
    except ValueError:
        return None


def _possible(action: str, request: Request) -> str:
    """A restart of a pod's task needs a pod: what befell the whole Job restarts all of it."""
    if action == RESTART_TASK and not request.task:
        return RESTART_JOB
    if action in (RESTART_POD, RESTART_PARTITION) and not request.pod:
        return RESTART_TASK if request.task else RESTART_JOB
    if action == RESTART_PARTITION and not request.partition:
        return RESTART_TASK
    return action or SYNC


def target_of(action: str, request: Request) -> str:
    """Return the target of an action, as the Job's state names it."""
    if action == RESTART_POD:
        return f"pod {request.pod}"
    if action == RESTART_PARTITION:
        return f"partition {request.task}/{request.partition}"
    return f"task {request.task}" if action in TARGETED else ""


def is_target(pod: JobPod, target: str) -> bool:
    """Return whether a pod belongs to a target that ``target_of`` named."""
    kind, _, name = target.partition(" ")
    if kind == "pod":
        return pod.metadata.name == name
    task, labels = task_of(pod), pod.metadata.labels
    return name == (f"{task}/{labels.get(names.PARTITION, '')}" if kind == "partition" else task)


# -- events of pods ---------------------------------------------------------------------------------------------------


def events(job: Job, before: JobPod | None, now: JobPod | None, siblings: Iterable[JobPod]) -> list[Request]:
    """Return the events that a change of a pod is. ``now`` is None when it is gone; ``siblings`` are the pods of its Job."""
    pod = now or before
    assert pod is not None
    if now is None:
        return [about(pod, OUT_OF_SYNC if by_our_hand(pod) else POD_EVICTED)]
    if by_our_hand(pod):
        return [about(pod, OUT_OF_SYNC)]
    phase, was = pod.status.phase, before.status.phase if before else ""
    if phase == "Failed" and was != phase:
        return [about(pod, POD_FAILED, _ended(before, pod))]
    if phase == "Succeeded" and was != phase:
        if not (speaks_of(job, TASK_COMPLETED) and _all_succeeded(job, pod, siblings)):
            return [about(pod, OUT_OF_SYNC)]
        if before is not None:
            return [about(pod, TASK_COMPLETED)]
        return [about(pod, TASK_COMPLETED, max(_ended(None, each) for each in siblings if task_of(each) == task_of(pod)))]
    if phase in ("Pending", "Running") and before is not None and _failed_too_often(job, pod, siblings):
        return [about(pod, TASK_FAILED)]
    if phase == "Running" and was != phase:
        return [about(pod, POD_RUNNING)]
    if before is None and phase in ("Pending", ""):
        return [about(pod, POD_PENDING, seconds(pod.metadata.creation_timestamp))]
    return []


def _ended(before: JobPod | None, pod: JobPod) -> float:
    """Return when a pod ended that nobody saw end, by its kubelet's clock; 0 for one that ended just now."""
    if before is not None:
        return 0.0
    ends = (each.state.terminated for each in pod.status.container_statuses)
    return max((seconds(end.finished_at or "") for end in ends if end is not None), default=0.0)


def about(pod: JobPod, event: str, since: float = 0.0) -> Request:
    meta = pod.metadata
    version = meta.annotations.get(names.JOB_VERSION, "")
    first = pod.status.container_statuses[0].state.terminated if pod.status.container_statuses else None
    return Request(
        event, task=task_of(pod), pod=meta.name, uid=meta.uid, partition=meta.labels.get(names.PARTITION, ""),
        exit_code=first.exit_code if first is not None and event == POD_FAILED else 0,
        version=int(version) if version.isdecimal() else None,
        since=since,
    )  # fmt: skip


def task_of(pod: JobPod) -> str:
    return pod.metadata.annotations.get(names.TASK_SPEC, "")


def by_our_hand(pod: JobPod) -> bool:
    return names.OUT_OF_SYNC in pod.metadata.annotations


def speaks_of(job: Job, event: str) -> bool:
    """Return whether some policy of the Job, or of a task, names the event: who asks all pods of a task for each of them asks a
    thousand a thousand times."""
    policies = (*job.spec.policies, *(policy for task in job.spec.tasks for policy in task.policies))
    return any(each in (event, ANY) for policy in policies for each in (policy.event, *policy.events))


def _all_succeeded(job: Job, pod: JobPod, siblings: Iterable[JobPod]) -> bool:
    task = next((task for task in job.spec.tasks if task.name == task_of(pod)), None)
    if task is None:
        return False
    done = {each.metadata.uid for each in siblings if task_of(each) == task.name and each.status.phase == "Succeeded"}
    return len(done | {pod.metadata.uid}) >= task.replicas


def _failed_too_often(job: Job, pod: JobPod, siblings: Iterable[JobPod]) -> bool:
    task = next((task for task in job.spec.tasks if task.name == task_of(pod)), None)
    if task is None or task.max_retry == NEVER_FAILS or not restarts(pod):
        return False
    others = sum(restarts(each) for each in siblings if task_of(each) == task.name
                 and each.status.phase in ("Pending", "Running") and each.metadata.uid != pod.metadata.uid)  # fmt: skip
    return restarts(pod) + others >= task.max_retry


def restarts(pod: JobPod) -> int:
    return sum(each.restart_count for each in (*pod.status.container_statuses, *pod.status.init_container_statuses))


# -- delayed actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delayed:
    """An action that waits for its time, unless what it answers passes."""

    due: float
    action: str
    request: Request


def cancels(request: Request, delayed: Delayed) -> bool:
    """Return whether an event takes the reason away from a delayed action."""
    about = delayed.request
    if about.event == POD_PENDING:
        return request.uid == about.uid and request.event != POD_PENDING
    if about.event in (POD_FAILED, POD_EVICTED):
        return request.event == POD_RUNNING and request.pod == about.pod
    return False


# -- Events of a Job while no controller looked, and since when, as far as the cluster tells -------------------------

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
    """Return when a container was started last, by its kubelet's clock; 0 where nothing tells."""
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
