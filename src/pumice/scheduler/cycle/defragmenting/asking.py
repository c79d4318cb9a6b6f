"""Questions before a plan is searched for: who shall start together, why moves may not help, and who may be moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.defragmenting.movers import MIN_AGE, Mover, mover
from pumice.scheduler.cycle.queueing import tasks_to_try
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.tasks import DONE_STATUSES, Cause

LOOKS = 40_000
"""Looks for a place in one search: some seconds."""
MOST = 4
"""Pods that are moved at most."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search for moves. ``moves``: pods that are moved at most; ``min_age``: seconds for which each has run at
    least."""

    moves: int = MOST
    min_age: float = MIN_AGE
    looks: int = LOOKS


@dataclass(frozen=True, slots=True)
class Stays:
    """So many pods that are not moved for one reason. ``pod`` is one of them."""

    number: int
    pod: str
    reason: str


def gang_of(cycle: Cycle, job: Job, named: Task | None = None) -> list[Task]:
    """The pods that have to start together, with the one that is named."""
    tasks = tasks_to_try(cycle, job)
    if named is not None and named in tasks:
        tasks.remove(named)
        tasks.insert(0, named)
    return tasks[: max(1, job.min_available - job.ready_count)]


def refusal_of(cycle: Cycle, job: Job, waiting: Sequence[Task]) -> str:
    """Return why moving pods cannot let it start; empty where it may."""
    if not waiting:
        return "none of its pods may be tried now: scheduling gates hold them, or the API server refused them a moment ago"
    if job.refusal is not None:
        return f"moving pods does not help: {job.refusal.text}"
    if job.ready_count + len(waiting) < job.min_available:
        return f"moving pods does not help: its gang of {job.min_available} lacks pods"
    for task in waiting:
        if task.error is not None and task.error.cause in (Cause.QUEUE, Cause.GATED):
            return f"moving pods does not help: {task.error.text}"
        if cycle.placer.unresolvable(task.cls):
            return f"moving pods does not help: no node can hold pod {task.key}, whoever leaves"
    return ""


def movers_of(
    cycle: Cycle, now: float, limits: Limits, below: int | None = None
) -> tuple[Mapping[str, Mover], tuple[Stays, ...]]:
    """Those that may be moved, and why the others stay."""
    movers: dict[str, Mover] = {}
    why: Counter[str] = Counter()
    example: dict[str, str] = {}
    for task in cycle.state.tasks.values():
        if not task.node or task.status in DONE_STATUSES:
            continue
        found = mover(cycle.state, task, now, limits.min_age, below)
        if isinstance(found, Mover):
            movers[task.uid] = found
        else:
            why[found] += 1
            example.setdefault(found, task.key)
    return movers, tuple(Stays(number, example[reason], reason) for reason, number in why.most_common())
