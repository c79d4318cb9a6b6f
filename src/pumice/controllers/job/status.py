"""The status of a Job as its pods make it (spec volcano-core 16.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from pumice.controllers.job.requests import task_of
from pumice.wire.batch import Job, JobCondition, JobPod, JobState, JobStatus, TaskState
from pumice.wire.volcano import seconds, stamp

_PHASES = ("Pending", "Running", "Succeeded", "Failed")


def counted(job: Job, pods: Iterable[JobPod]) -> JobStatus:
    """The status with the pods' counts."""
    total, terminating, by_task = Counter[str](), 0, dict[str, Counter[str]]()
    for pod in pods:
        if pod.terminating:
            terminating += 1
            continue
        phase = pod.status.phase or "Pending"
        total[phase if phase in _PHASES else "Unknown"] += 1
        by_task.setdefault(task_of(pod), Counter())[phase] += 1
    return replace(
        job.status, pending=total["Pending"], running=total["Running"], succeeded=total["Succeeded"], failed=total["Failed"],
        unknown=total["Unknown"], terminating=terminating,
        task_status_count={task: TaskState(dict(sorted(found.items()))) for task, found in sorted(by_task.items())},
    )  # fmt: skip


def entered(status: JobStatus, phase: str, now: float, reason: str = "", message: str = "") -> JobStatus:
    """The status in a phase that begins now."""
    at = stamp(now)
    return replace(status, state=JobState(phase, reason, message, at),
                   conditions=[*status.conditions, JobCondition(phase, at)])  # fmt: skip


def duration(job: Job, now: float) -> str:
    """How long the Job has been there, as Go writes it."""
    whole = max(0, round(now - seconds(job.metadata.creation_timestamp)))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
