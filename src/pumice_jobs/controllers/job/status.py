"""The status of a Job as its pods make it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from pumice.wire.batch import PENDING, Job, JobCondition, JobPod, JobState, JobStatus, TaskState, WrittenJob
from pumice.wire.times import seconds, stamp
from pumice_jobs.controllers.job.requests import task_of

_PHASES, _UNKNOWN = ("Pending", "Running", "Succeeded", "Failed"), "Unknown"


def counted(job: Job, pods: Iterable[JobPod], goes: Callable[[JobPod], bool] = lambda pod: False) -> JobStatus:
    """The status with the pods' counts. ``goes``: whether a pod will be deleted next, and counts as one that is."""
    found, terminating = dict[tuple[str, str], int](), 0
    for pod in pods:
        if pod.terminating or goes(pod):
            terminating += 1
        else:
            place = task_of(pod), pod.status.phase or "Pending"
            found[place] = found.get(place, 0) + 1
    total, by_task = dict.fromkeys((*_PHASES, _UNKNOWN), 0), dict[str, TaskState]()
    for (task, phase), count in sorted(found.items()) if len(found) > 1 else found.items():
        total[phase if phase in _PHASES else _UNKNOWN] += count
        by_task.setdefault(task, TaskState({})).phase[phase] = count
    return replace(
        job.status, pending=total["Pending"], running=total["Running"], succeeded=total["Succeeded"], failed=total["Failed"],
        unknown=total[_UNKNOWN], terminating=terminating, task_status_count=by_task,
    )  # fmt: skip


def is_waiting(status: JobStatus) -> bool:
    """Return whether no pod has come further than to wait."""
    return not status.running + status.succeeded + status.failed + status.terminating + status.unknown


def entered(status: JobStatus, phase: str, now: float, reason: str = "", message: str = "") -> JobStatus:
    """The status in a phase that begins now."""
    at = stamp(now)
    return replace(status, state=JobState(phase, reason, message, at),
                   conditions=[*status.conditions, JobCondition(phase, at)])  # fmt: skip


def begun(job: Job | WrittenJob) -> JobStatus:
    """The status with its beginning: where our definition alone says that a Job waits, it has done so since it is there."""
    status, since = job.status, job.metadata.creation_timestamp
    if status.state.phase != PENDING or status.conditions or not since:
        return status
    return replace(status, state=replace(status.state, last_transition_time=since), conditions=[JobCondition(PENDING, since)])


def duration(job: Job, now: float) -> str:
    """Return the age of the Job, as Go writes a duration."""
    whole = max(0, round(now - seconds(job.metadata.creation_timestamp)))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
