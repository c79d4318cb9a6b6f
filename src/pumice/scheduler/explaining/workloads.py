"""Reasons for which pods run or wait: gang by gang, workload by workload, and all that wait in the order in which they are
tried."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pumice.model.errors import BadInput, nearest
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import own_gates
from pumice.scheduler.state.jobs import Job, Status
from pumice.scheduler.state.tasks import Cause
from pumice.scheduler.state.waiting import Waiting
from pumice.wire.names import KUBE_SCHEDULER
from pumice.wire.objects import Pod

# -- gangs, member by member -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupView:
    """One PodGroup. ``waiting`` is why its pods wait, to their names; ``queue_words`` why its queue keeps it back."""

    name: str
    queue: str
    phase: str
    minimum: int
    ready: int
    pods: int
    summary: str
    queue_words: str
    nodes: Mapping[str, int]
    """Members by node."""
    waiting: Mapping[str, tuple[str, ...]]
    held: tuple[str, ...] = ()
    """Nodes that are held for it (``pumice.gangReservation``)."""
    held_for: float = 0.0
    """For so many seconds still, at most."""


def explain_group(engine: Engine, namespace: str, name: str, now: float) -> GroupView:
    """Return the cycle's result for the PodGroup. The engine should not be used further. Raises BadInput when there is no such
    PodGroup."""
    job = engine.state.jobs.get(f"{namespace}/{name}")
    if job is None:
        beside = [known for space, _, known in (key.partition("/") for key in engine.state.jobs) if space == namespace]
        raise BadInput(f"no PodGroup {namespace}/{name}{nearest(name, beside)}")
    engine.cycle_for_answers(now)
    return group_view(engine, job, now)


def group_view(engine: Engine, job: Job, now: float) -> GroupView:
    """Return the PodGroup's state after the last cycle."""
    waiting: dict[str, list[str]] = {}
    nodes: dict[str, int] = {}
    reasons = Waiting(job)
    for task in job.tasks.values():
        if task.status is Status.PENDING:
            waiting.setdefault(reasons.of(task).text, []).append(task.name)
        elif task.node:
            nodes[task.node] = nodes.get(task.node, 0) + 1
    reserved = engine.state.reservations.held.get(job)
    return GroupView(
        job.key, job.queue.name, job.phase or "Pending", job.min_available, job.ready_count, len(job.tasks),
        _summary(job, reasons.text), job.refusal.text if job.refusal is not None else "", dict(sorted(nodes.items())),
        {why: tuple(sorted(names)) for why, names in waiting.items()},
        () if reserved is None else tuple(sorted(reserved.nodes)), 0.0 if reserved is None else reserved.until - now,
    )  # fmt: skip


def _summary(job: Job, text: str) -> str:
    lacking = job.min_available - job.ready_count
    if lacking <= 0:
        return f"stands: {job.ready_count} of {len(job.tasks)} pods have a place, {job.min_available} are needed"
    if job.valid_count < job.min_available:
        return f"waits for {job.min_available - job.valid_count} more pods to be created: {text}"
    return f"waits, {lacking} of {job.min_available} members lack a place: {text}"


# -- the pods of a Job, a Deployment or whatever else makes pods -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """The pods that one object has made. ``waiting``: reasons, to the names of the pods that wait for them."""

    kind: str
    name: str
    pods: int
    ended: int
    nodes: Mapping[str, int]
    """Pods by node."""
    waiting: Mapping[str, tuple[str, ...]]
    groups: tuple[GroupView, ...]
    """Its PodGroups, also those that have no pods yet."""

    @property
    def summary(self) -> str:
        """Return how many of its pods have a place."""
        placed, ended = sum(self.nodes.values()), f", {self.ended} have ended" if self.ended else ""
        return f"{placed} of {self.pods - self.ended} pods have a place{ended}" if self.pods else "it has no pods"


def explain_workload(
    engine: Engine, kind: str, name: str, pods: Sequence[Pod], groups: Sequence[str], now: float
) -> WorkloadView:
    """Return the view of these pods and PodGroups (by key) after a cycle. The engine should not be used further."""
    engine.cycle_for_answers(now)
    return workload_view(engine, kind, name, pods, groups, now)


def workload_view(engine: Engine, kind: str, name: str, pods: Sequence[Pod], groups: Sequence[str], now: float) -> WorkloadView:
    """The same after the last cycle."""
    nodes, waiting, ended = dict[str, int](), dict[str, list[str]](), 0
    for pod in sorted(pods, key=lambda pod: pod.key):
        task = engine.state.tasks.get(pod.metadata.uid)
        node = task.node if task is not None else pod.spec.node_name
        if pod.status.phase in ("Succeeded", "Failed"):
            ended += 1
        elif node:
            nodes[node] = nodes.get(node, 0) + 1
        elif task is not None and task.job is not None:
            waiting.setdefault(Waiting(task.job).of(task).text, []).append(pod.metadata.name)
        else:
            why = "; ".join(own_gates(engine, pod)) or f"its schedulerName is {pod.spec.scheduler_name or KUBE_SCHEDULER!r}"
            waiting.setdefault(why, []).append(pod.metadata.name)
    known = {task.job.key for pod in pods if (task := engine.state.tasks.get(pod.metadata.uid)) is not None and task.job}
    jobs = [engine.state.jobs[key] for key in dict.fromkeys((*groups, *sorted(known))) if key in engine.state.jobs]
    return WorkloadView(
        kind, name, len(pods), ended, dict(sorted(nodes.items())), {why: tuple(names) for why, names in waiting.items()},
        tuple(group_view(engine, job, now) for job in jobs if job.group is not None),
    )  # fmt: skip


# -- all that wait -----------------------------------------------------------------------------------------------------


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
    engine.cycle_for_answers(now)
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
        found.setdefault((reason.cause, _of_this_pod(reason.text, task.key)), []).append(task.name)
    for (cause, why), names in found.items():
        yield WaitingPods(queue, job.key, tuple(sorted(names)), job.priority, since, cause, why)


def _of_this_pod(text: str, key: str) -> str:
    """Name the pod so that texts of several are one; objects whose names begin with the pod's keep theirs."""
    return re.sub(rf"(?<![\w/.-]){re.escape(key)}(?!-|\.?\w)", "this pod", text) if key in text else text
