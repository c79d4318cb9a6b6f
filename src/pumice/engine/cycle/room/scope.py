"""For whose sake who may be asked to go: between jobs of a queue, inside a job, between queues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pumice.engine.framework import Framework
from pumice.engine.plugins.contract import Spared
from pumice.engine.state.domains import enough_groups
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.tasks import READY_STATUSES, Status

HELD = (Status.BOUND, Status.RUNNING)


@dataclass(frozen=True, slots=True)
class Scope:
    """``action`` is also the reason that the victims are told."""

    action: str
    candidate: Callable[[Task, Task], bool]
    """(claimant, pod): whether the pod is asked at all."""
    spared: Callable[[Task, Sequence[Task]], Spared]
    """The vote on pods that would go together."""
    admits: Callable[[Task], bool] = lambda task: True
    """Whether anybody may be asked for this claimant's sake."""
    others: bool = False
    """They are of other queues; else of the claimant's."""
    inside: bool = False
    """Room is made by pods of the claimant's own job."""


def between_jobs(framework: Framework, action: str = "preempt", *, gangs: bool = False) -> Scope:
    """``gangs``: whole gangs may go, whatever plugin gang says (spec 10.7)."""

    def candidate(claimant: Task, pod: Task) -> bool:
        return (
            pod.status in HELD and pod.job is not None and claimant.job is not None
            and pod.job.queue is claimant.job.queue and pod.job is not claimant.job
            and pod.yielding.preemptable and (pod.best_effort or not claimant.best_effort)
        )  # fmt: skip

    return Scope(action, candidate, framework.evictable_by_preempt if gangs else framework.spared_from_preempt)


def inside_a_job(framework: Framework) -> Scope:
    def candidate(claimant: Task, pod: Task) -> bool:
        return (
            pod.status in HELD and pod.job is not None and pod.job is claimant.job
            and pod.yielding.preemptable and (pod.best_effort or not claimant.best_effort)
        )  # fmt: skip

    return Scope("preempt", candidate, framework.spared_from_preempt, inside=True)


def between_queues(framework: Framework, action: str = "reclaim", *, gangs: bool = False) -> Scope:
    def candidate(claimant: Task, pod: Task) -> bool:
        return (
            pod.status is Status.RUNNING and pod.job is not None and claimant.job is not None
            and pod.job.queue is not claimant.job.queue and pod.job.queue.reclaimable and pod.yielding.preemptable
        )  # fmt: skip

    def admits(claimant: Task) -> bool:
        return claimant.job is not None and framework.may_reclaim(claimant.job.queue, claimant)

    spared = framework.evictable_by_reclaim if gangs else framework.spared_from_reclaim
    return Scope(action, candidate, spared, admits, others=True)


def importance(pod: Task) -> tuple[int, int, float, str]:
    """The less important first: in this order pods go, and are asked about; of equal ones, the youngest."""
    job = pod.job
    return (pod.priority if job is None else job.priority, pod.priority, -pod.created, pod.uid)


def stands_without(job: Job, pods: Collection[Task]) -> bool:
    """Whether its gang is whole without them: its number, its roles and its sub-groups."""
    if job.min_available > 1 and job.firm_count - len(pods) < job.min_available:
        return False
    return job.role_ready(without=pods) and enough_groups(job, READY_STATUSES, without=pods)
