"""Pods that may be evicted for a preemptor, which of them go together, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.occupants import freed
from pumice.scheduler.plugins.contract import Spared
from pumice.scheduler.state.domains import enough_groups
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import ALLOCATED_STATUSES, READY_STATUSES, Status

# -- the scope of an action: between jobs of a queue, inside a job, between queues -------------------------------------


HELD = (Status.BOUND, Status.RUNNING)


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of an eviction. ``action`` is also the reason that the victims are told."""

    action: str
    candidate: Callable[[Task, Task], bool]
    """(preemptor, pod): whether the pod is asked at all."""
    spared: Callable[[Task, Sequence[Task]], Spared]
    """The vote on pods that would go together."""
    admits: Callable[[Task], bool] = lambda task: True
    """Says whether any pod may be evicted for this preemptor."""
    others: bool = False
    """They are of other queues; else of the preemptor's."""
    inside: bool = False
    """Room is made by pods of the preemptor's own job."""


def between_jobs(framework: Framework, action: str = "preempt", *, gangs: bool = False) -> Scope:
    """``gangs``: whole gangs may go, whatever plugin gang says (Volcano pkg/scheduler/actions/gangpreempt)."""

    def candidate(preemptor: Task, pod: Task) -> bool:
        return (
            pod.status in HELD and pod.job is not None and preemptor.job is not None
            and pod.job.queue is preemptor.job.queue and pod.job is not preemptor.job
            and pod.yielding.preemptable and (pod.best_effort or not preemptor.asks_nothing)
        )  # fmt: skip

    return Scope(action, candidate, framework.evictable_by_preempt if gangs else framework.not_preemptable)


def inside_a_job(framework: Framework) -> Scope:
    def candidate(preemptor: Task, pod: Task) -> bool:
        return (
            pod.status in HELD and pod.job is not None and pod.job is preemptor.job
            and pod.yielding.preemptable and (pod.best_effort or not preemptor.asks_nothing)
        )  # fmt: skip

    return Scope("preempt", candidate, framework.not_preemptable, inside=True)


def between_queues(framework: Framework, action: str = "reclaim", *, gangs: bool = False) -> Scope:
    def candidate(preemptor: Task, pod: Task) -> bool:
        return (
            pod.status is Status.RUNNING and pod.job is not None and preemptor.job is not None
            and pod.job.queue is not preemptor.job.queue and pod.job.queue.reclaimable and pod.yielding.preemptable
        )  # fmt: skip

    def admits(preemptor: Task) -> bool:
        return preemptor.job is not None and framework.preemptive(preemptor.job.queue, preemptor)

    spared = framework.evictable_by_reclaim if gangs else framework.not_reclaimable
    return Scope(action, candidate, spared, admits, others=True)


def importance(pod: Task) -> tuple[int, int, float, str]:
    """The less important first: in this order pods go, and are asked about; of equal ones, the youngest."""
    job = pod.job
    return (pod.priority if job is None else job.priority, pod.priority, -pod.created, pod.uid)


def stands_without(job: Job, pods: Collection[Task]) -> bool:
    """Return whether its gang is whole without them: its number, its roles and its sub-groups."""
    if job.min_available > 1 and job.firm_count - len(pods) < job.min_available:
        return False
    return job.role_ready(without=pods) and enough_groups(job, READY_STATUSES, without=pods)


# -- units of eviction and their cost ----------------------------------------------------------------------------------


BASE = 2**31
"""Added to each priority of a sum, so that more pods never cost less (as upstream and kube-scheduler sum them)."""


class Cost(NamedTuple):
    """Smaller is better, field by field."""

    violations: int
    highest: int
    fallen: int
    """Pods of gangs that fall: who can be spared goes before them."""
    total: int
    emptied: int
    """Jobs of several pods that keep none, though no gang falls by it."""
    freed: int


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One pod, or all pods of a gang that would fall: they go together or not at all. ``here``: those on the node in question."""

    job: Job | None
    pods: tuple[Task, ...]
    here: tuple[Task, ...]
    whole: bool
    highest: int
    total: int
    freed: int


@dataclass(frozen=True, slots=True)
class Prices:
    """The cost of pods. ``broken``: the uids of those who go beyond what PodDisruptionBudgets allow, where that is a cost."""

    state: State
    broken: Callable[[Sequence[Task]], Collection[str]]

    def unit(self, pods: Sequence[Task], here: Sequence[Task], *, whole: bool) -> Unit:
        pods = sorted(pods, key=importance)
        return Unit(
            pods[0].job, tuple(pods), tuple(here), whole, max(pod.rank for pod in pods), sum(pod.rank + BASE for pod in pods),
            sum(freed(self.state, pod) for pod in pods),
        )  # fmt: skip

    def cost(self, units: Iterable[Unit]) -> Cost:
        units = tuple(units)
        return Cost(
            len(self.broken([pod for unit in units for pod in unit.pods])), max(unit.highest for unit in units),
            sum(len(unit.pods) for unit in units if unit.whole), sum(unit.total for unit in units), emptied(units),
            sum(unit.freed for unit in units),
        )  # fmt: skip


def emptied(units: Iterable[Unit]) -> int:
    """A gang that falls costs all of its pods; what has no minimum to fall under shall keep its last pod where it is as cheap."""
    taken: dict[Job, int] = {}
    for unit in units:
        if unit.job is not None and unit.job.min_available <= 1 < len(unit.job.tasks):
            taken[unit.job] = taken.get(unit.job, 0) + sum(pod.status in HELD for pod in unit.pods)
    return sum(job.firm_count <= number for job, number in taken.items())


def stays(scope: Scope, preemptor: Task, pod: Task) -> str:
    """Return why the pod does not go, whoever else goes; empty when it may."""
    if not scope.candidate(preemptor, pod):
        return "it is not asked"
    if pod.spared:
        return "its eviction was refused a moment ago"
    return scope.spared(preemptor, (pod,)).get(pod.uid, "")


def units_of(scope: Scope, preemptor: Task, pods: Iterable[Task], prices: Prices) -> list[Unit]:
    """Return what may go of a node's pods. Of a gang single pods go while it is whole without them, beyond that all of it."""
    by_job: dict[Job | None, list[Task]] = {}
    for pod in pods:
        if not stays(scope, preemptor, pod):
            by_job.setdefault(pod.job, []).append(pod)
    units = []
    for job, here in by_job.items():
        free = job is None or scope.inside  # inside a job one takes the other's place
        lone = [pod for pod in here if free or (job is not None and stands_without(job, (pod,)))]
        units += [prices.unit((pod,), (pod,), whole=False) for pod in lone]
        if job is not None and not free and not stands_without(job, here):
            gang = [pod for pod in job.tasks.values() if pod.status in ALLOCATED_STATUSES]
            if all(not stays(scope, preemptor, pod) for pod in gang):
                units.append(prices.unit(gang, here, whole=True))
    return sorted(units, key=lambda unit: (unit.highest, unit.whole, unit.total, unit.freed, unit.pods[0].uid))


def coherent(units: Sequence[Unit]) -> bool:
    """Return whether no gang is both taken whole and pod by pod, and none falls by what is taken pod by pod."""
    taken: dict[Job, list[Task]] = {}
    whole = {unit.job for unit in units if unit.whole}
    for unit in units:
        if unit.whole or unit.job is None:
            continue
        if unit.job in whole:
            return False
        taken.setdefault(unit.job, []).extend(unit.pods)
    return all(stands_without(job, pods) for job, pods in taken.items())
