"""Reasons for which the pods of a job wait, and in whose words its PodGroup says so: the one place where it is decided which
reason counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.tasks import Cause, Gate, Reason, Status, by_gang

UNTRIED = Reason(Cause.NEW, "not tried yet")
HELD = Reason(Cause.GATED, "held by its scheduling gates")


def never(task: Task) -> bool:
    """Return whether the pod can never be placed as it is written."""
    return bool(task.cls.refusals or task.request.refused)


class Waiting:
    """The reasons of one job as it stands now; made afresh by whoever renders them."""

    __slots__ = ("_origin", "_text", "_whole", "job", "refusal")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.refusal = job.refusal
        if job.group is None and not job.implicit:
            self.refusal = by_gang(f"PodGroup {job.key} does not exist")
        self._origin: tuple[str, Reason] | None = None
        self._whole: Reason | None = None
        self._text = ""

    def of(self, task: Task) -> Reason:
        """Return why one of its pods waits. What is wrong with the pod itself comes first, then what keeps the whole job from
        being tried, then what its own try came to, and last that its gang does not stand."""
        if task.gate is Gate.HELD:
            return HELD
        if task.trial is not None:
            return _nearly(task)
        if task.error is not None and (self.refusal is None or never(task)):
            return task.error
        if self.refusal is not None:
            return self.refusal
        return UNTRIED if self.whole is UNTRIED else Reason(Cause.GANG, self.text)

    @property
    def whole(self) -> Reason:
        """The one reason that stands for the job: that of ``origin``, else that of a pod which would have a place, or is held."""
        if self._whole is None:
            self._whole = self.origin[1] if self.origin[1] is not UNTRIED else self._of_the_others()
        return self._whole

    def _of_the_others(self) -> Reason:
        pending = self.job.pending.values()
        other = _first(task for task in pending if task.trial is not None) or _first(pending)
        held = other is not None and (other.trial is not None or (other.gate is Gate.HELD))
        return self.of(other) if held and other is not None else UNTRIED

    @property
    def origin(self) -> tuple[str, Reason]:
        """Return what went wrong, and the pod whose own reason it is (empty: it is the whole job's)."""
        if self._origin is None:
            self._origin = self._find()
        return self._origin

    def _find(self) -> tuple[str, Reason]:
        task = _first(task for task in self.job.pending.values() if self._is_refused(task))
        if task is not None and task.error is not None:
            return task.name, task.error
        return "", self.refusal or UNTRIED

    def _is_refused(self, task: Task) -> bool:
        """Return whether its own try failed, and nothing that keeps the whole job back counts more."""
        if task.error is None or task.trial is not None or (task.gate is Gate.HELD):
            return False
        return self.refusal is None or never(task)

    @property
    def text(self) -> str:
        """Return why the gang stands where it stands, as its PodGroup says it (Volcano pkg/scheduler/api/job_info.go)."""
        if not self._text:
            self._text = self._report()
        return self._text

    def _report(self) -> str:
        job = self.job
        ready = job.is_ready() and job.role_ready()
        parts = sorted(f"{count} {Status(s).label}" for s, count in enumerate(job.counts) if count)
        text = f"pod group is {'ready' if ready else 'not ready'}, {', '.join([*parts, f'{job.min_available} minAvailable'])}"
        if job.pending:
            words = Counter(map(pod_word, job.pending.values()))
            text += f"; Pending: {', '.join(sorted(f'{count} {word}' for word, count in words.items()))}"
        name, reason = self.origin
        if reason is not UNTRIED:
            text += f". Origin reason is{f' {name}' if name else ''}: {reason.text}"
        return text


def _first(tasks: Iterable[Task]) -> Task | None:
    """Return the one of the lowest number in its name: the order of a job's pods is another after each list."""
    return min(tasks, key=lambda task: (len(task.name), task.name), default=None)


def pod_word(task: Task) -> str:
    """Return ``reason`` of a pod's condition (Volcano pkg/scheduler/api/job_info.go)."""
    return "Schedulable" if task.trial is not None and task.trial[0] is Status.ALLOCATED else "Unschedulable"


def _nearly(task: Task) -> Reason:
    assert task.trial is not None
    status, node = task.trial
    cause, wait = (Cause.GANG, "") if status is Status.ALLOCATED else (Cause.RELEASING, "resource is released and ")
    return Reason(cause, f"Pod {task.key} can possibly be assigned to {node}, once {wait}minAvailable is satisfied")
