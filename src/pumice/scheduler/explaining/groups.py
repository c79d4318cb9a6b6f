"""Why a gang stands or waits, member by member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pumice.model.errors import BadInput, nearest
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Job, Status
from pumice.scheduler.state.waiting import Waiting


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
    engine.cycle(now)
    return group_view(engine, job, now)


def group_view(engine: Engine, job: Job, now: float) -> GroupView:
    """How it stands after the last cycle."""
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
