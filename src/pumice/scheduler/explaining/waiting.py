"""Everybody who waits, and why, in the order in which the scheduler looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.tasks import Cause
from pumice.scheduler.state.waiting import Waiting


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Pods of one job that wait for one reason. ``since`` is when the first of them was created, in Unix seconds."""

    queue: str
    job: str
    pods: tuple[str, ...]
    priority: int
    since: float
    cause: Cause
    why: str


def waiting_pods(engine: Engine, now: float) -> list[WaitingPods]:
    """Return what a cycle says of all that wait. The engine should not be used further."""
    engine.cycle(now)
    return list(as_they_wait(engine))


def as_they_wait(engine: Engine) -> Iterator[WaitingPods]:
    """All that wait after the last cycle: queue by queue and job by job as they are tried."""
    framework = engine.framework
    for queue in sorted(engine.state.queues.values(), key=lambda queue: (framework.queue_order_key(queue), queue.name)):
        for job in sorted(queue.waiters, key=lambda job: (framework.job_order_key(job), job.key)):
            yield from _of(job, queue.name)


def _of(job: Job, queue: str) -> Iterator[WaitingPods]:
    reasons, found = Waiting(job), dict[tuple[Cause, str], list[str]]()
    since = min((task.created for task in job.pending.values()), default=0.0)
    for task in job.pending.values():
        reason = reasons.of(task)
        found.setdefault((reason.cause, reason.text.replace(task.key, "this pod")), []).append(task.name)
    for (cause, why), names in found.items():
        yield WaitingPods(queue, job.key, tuple(sorted(names)), job.priority, since, cause, why)
