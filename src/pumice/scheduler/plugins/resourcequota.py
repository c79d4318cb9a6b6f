"""resourcequota: no job is started whose pods the quotas of its namespace would not all let in (Volcano
pkg/scheduler/plugins/resourcequota)."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.scheduler.plugins.contract import ABSTAIN, PERMIT, REJECT, JobEnqueueable, Session
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.resources import PODS, Vector, add, exceeded, render
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import by_queue
from pumice.wire.scheduler_conf import Arguments
from pumice.wire.volcano import INQUEUE


class ResourceQuotas(JobEnqueueable):
    name = "resourcequota"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._state: State | None = None
        self._inqueue: dict[str, Vector] = {}
        """By namespace, what jobs that were started still want to ask for: their pods are not all made yet."""

    def open(self, session: Session) -> None:
        self._state = session.state
        self._inqueue.clear()

    def job_enqueueable(self, job: Job) -> int:
        assert self._state is not None
        quotas = self._state.quotas.of(job.namespace)
        if not quotas or job.min_resources is None:
            return ABSTAIN
        wanted = _still_to_come(job)
        inqueue = self._of(job.namespace)
        for quota in quotas.values():
            requested = {name: wanted[name] for name in quota.hard if wanted.get(name)}
            total = dict(quota.used)
            add(total, inqueue.items())
            if any(total.get(name, 0) + value > quota.hard[name] for name, value in requested.items()):
                used = {name: total.get(name, 0) for name in quota.hard}
                job.refusal = by_queue(
                    f"resource quota insufficient, requested: {_text(requested)}, used: {_text(used)}, "
                    f"limited: {_text(quota.hard)}"
                )
                return REJECT
        return PERMIT

    def job_enqueued(self, job: Job) -> None:
        if self._state is not None and job.min_resources is not None and self._state.quotas.of(job.namespace):
            add(self._of(job.namespace), _still_to_come(job).items())

    def _of(self, namespace: str) -> Vector:
        assert self._state is not None
        if namespace not in self._inqueue:
            found = self._inqueue[namespace] = {}
            for job in self._state.jobs.values():
                if job.namespace == namespace and job.phase == INQUEUE and job.min_resources is not None:
                    add(found, _still_to_come(job).items())
        return self._inqueue[namespace]


def _still_to_come(job: Job) -> Vector:
    """Return the requests of missing pods of the job's minimum: those that are, a quota counts."""
    there: Vector = {}
    for task in job.tasks.values():
        add(there, task.request.items)
    return exceeded({PODS: job.min_available, **(job.min_resources or {})}, there)


def _text(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in render(amounts).items()) or "nothing"
