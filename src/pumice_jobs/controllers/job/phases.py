"""The life of a Job as a table.

A kill has two halves. The action writes the new phase first, with the action as its reason, and the pods go afterwards, as the
phase demands: so a controller that dies between the two goes on where it was, and a retry is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pumice.wire.batch import (
    ABORTED,
    ABORTING,
    COMPLETED,
    COMPLETING,
    FAILED,
    PENDING,
    RESTARTING,
    RUNNING,
    TERMINATED,
    TERMINATING,
    Job,
    JobStatus,
    Task,
)

RESTART_JOB, RESTART_TASK, RESTART_POD = "RestartJob", "RestartTask", "RestartPod"
RESTART_PARTITION = "RestartPartition"
ABORT, TERMINATE, COMPLETE, RESUME, SYNC = "AbortJob", "TerminateJob", "CompleteJob", "ResumeJob", "SyncJob"
TARGETED: Final = (RESTART_TASK, RESTART_POD, RESTART_PARTITION)
ACTIONS: Final = (ABORT, RESTART_JOB, *TARGETED, TERMINATE, COMPLETE, RESUME)


class Kill(Enum):
    """The pods that go."""

    ALL = "all"
    SOFT = "those that still live"
    TARGET = "a task, a pod or a partition"


@dataclass(frozen=True, slots=True)
class Move:
    """The result of an action in a phase."""

    kill: Kill
    to: str
    retried: bool = False


_FROM_LIFE: Final = {
    RESTART_JOB: Move(Kill.ALL, RESTARTING, retried=True),
    **dict.fromkeys(TARGETED, Move(Kill.TARGET, RESTARTING, retried=True)),
    ABORT: Move(Kill.SOFT, ABORTING),
    TERMINATE: Move(Kill.SOFT, TERMINATING),
    COMPLETE: Move(Kill.SOFT, COMPLETING),
}
_AGAIN: Final = Move(Kill.ALL, RESTARTING)
_RESUMED: Final = {RESUME: Move(Kill.SOFT, RESTARTING, retried=True)}

MOVES: Final[Mapping[str, Mapping[str, Move]]] = {
    PENDING: _FROM_LIFE,
    RUNNING: _FROM_LIFE,
    RESTARTING: {**dict.fromkeys((RESTART_JOB, ABORT, TERMINATE, COMPLETE, RESUME), _AGAIN),
                 **dict.fromkeys(TARGETED, Move(Kill.TARGET, RESTARTING))},
    ABORTING: _RESUMED,
    ABORTED: _RESUMED,
}  # fmt: skip
"""Phase to action to move; an action that is not named leaves the Job in its phase."""

ENDS: Final = {ABORTING: ABORTED, COMPLETING: COMPLETED, TERMINATING: TERMINATED}
"""The next phase when nothing of the Job lives any more."""
FINISHED: Final = (COMPLETED, FAILED, TERMINATED)
LIVING: Final = ("", PENDING, RUNNING)
"""Phases in which pods are made."""
PHASES: Final = (PENDING, RUNNING, RESTARTING, ABORTING, ABORTED, COMPLETING, COMPLETED, TERMINATING, TERMINATED, FAILED)

STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (PENDING,),
    PENDING: (RUNNING,),
    RUNNING: (COMPLETED, FAILED, PENDING),
    RESTARTING: (FAILED, PENDING),
    **{phase: (end,) for phase, end in ENDS.items()},
}
"""Where a phase may lead without an action."""


def next_phase(job: Job, status: JobStatus) -> str:
    """Return the phase that follows from the counts alone, which are those of ``status``; the Job has its defaults."""
    phase = status.state.phase
    if phase == PENDING:
        started = status.running + status.succeeded + status.failed
        return RUNNING if started >= job.spec.min_available else PENDING
    if phase == RUNNING:
        return _of_running(job, status)
    if phase == RESTARTING:
        return _of_restarting(job, status)
    if phase in ENDS and not status.pending + status.running + status.terminating + status.unknown:
        return ENDS[phase]
    return phase or PENDING


def _of_running(job: Job, status: JobStatus) -> str:
    spec, total = job.spec, replicas(job)
    if not total:
        return RUNNING
    if spec.min_success is not None and status.succeeded >= spec.min_success:
        return COMPLETED
    if status.succeeded + status.failed >= total:
        return _ended(job, status)
    return PENDING if status.pending > total - spec.min_available else RUNNING


def _ended(job: Job, status: JobStatus) -> str:
    spec = job.spec
    if spec.min_available >= sum(minimum(task) for task in spec.tasks):
        for task in spec.tasks:
            found = status.task_status_count.get(task.name)
            if task.min_available is not None and (found.phase.get("Succeeded", 0) if found else 0) < task.min_available:
                return FAILED
    if spec.min_success is not None:
        return FAILED
    return COMPLETED if status.succeeded >= spec.min_available else FAILED


def _of_restarting(job: Job, status: JobStatus) -> str:
    if status.retry_count >= job.spec.max_retry:
        return FAILED
    return PENDING if replicas(job) - status.terminating >= status.min_available else RESTARTING


def replicas(job: Job) -> int:
    return sum(task.replicas for task in job.spec.tasks)


def minimum(task: Task) -> int:
    """Return the minimum of a task's pods: as it says, else whole partitions, else all."""
    if task.min_available is not None:
        return task.min_available
    parts = task.partition_policy
    if parts is not None and parts.min_partitions > 0:
        return parts.min_partitions * parts.partition_size
    return task.replicas
