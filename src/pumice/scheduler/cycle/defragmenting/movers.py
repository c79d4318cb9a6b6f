"""Pods that may be moved, why the others stay, and what each costs: a restart, and the work since its last checkpoint.

A checkpoint is what the pod's owner claims by an annotation. One in the future, from before the pod's start, or that cannot be
read is not believed: the work since the start counts as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pumice.model.cards import Allocation
from pumice.scheduler.cycle.preemption.victims import stands_without
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import Status
from pumice.wire.names import CHECKPOINTED_AT, MOVE, PREEMPTABLE
from pumice.wire.times import moment

MIN_AGE = 300.0
"""Seconds for which a pod has run at least before it is moved."""


@dataclass(frozen=True, slots=True)
class Mover:
    """A pod that may be moved. ``lost``: the seconds of work that its restart costs; ``since`` says what they are counted from.
    ``doubt``: why its checkpoint is not believed. ``budgets``: the PodDisruptionBudgets that count it."""

    task: Task
    lost: float
    since: str
    doubt: str = ""
    budgets: tuple[str, ...] = ()
    held: tuple[Allocation, ...] = ()


@dataclass(slots=True)
class Movers(Mapping[str, Mover]):
    """Those of all pods that may be moved, by uid, each looked at when it is asked for: few are."""

    state: State
    now: float
    min_age: float
    below: int | None
    _known: dict[str, Mover | str] = field(default_factory=dict)

    def __getitem__(self, uid: str) -> Mover:
        found = self._known.get(uid)
        if found is None:
            task = self.state.tasks.get(uid)
            found = "it is of another scheduler" if task is None else mover(self.state, task, self.now, self.min_age, self.below)
            self._known[uid] = found
        if isinstance(found, str):
            raise KeyError(uid)
        return found

    def __iter__(self) -> Iterator[str]:
        return (uid for uid in self.state.tasks if uid in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def mover(state: State, task: Task, now: float, min_age: float = MIN_AGE, below: int | None = None) -> Mover | str:
    """Return the pod with its cost, or why it stays. ``now`` is the time of day; ``below``: the priority of the pod for which it
    would be moved."""
    if task.status is not Status.RUNNING or task.job is None:
        return f"it is {task.status.label}"
    if not task.moving.allowed:
        return f"its annotation {MOVE} says so"
    if not task.yielding.preemptable:
        return f"its annotation {PREEMPTABLE} says so"
    if task.yielding.system:
        return "it belongs to the system"
    if not task.controlled:
        return "no controller makes it anew"
    if task.spared:
        return "its eviction was refused a moment ago"
    started = task.started or task.created
    if now - started < min_age:
        return f"it has run for less than {min_age:.0f} s"
    if below is not None and max(task.priority, task.job.priority) > below:
        return f"its priority is higher than {below}"
    if not stands_without(task.job, (task,)):
        return f"its gang {task.job.name} would fall under its minimum {task.job.min_available}"
    broken = state.budgets.spared((task,)).get(task.uid)
    if broken is not None:
        return f"PodDisruptionBudget {broken} allows no disruption"
    budgets = tuple(budget.name for budget in state.budgets.guarding(task))
    placement = state.ledger.placements.get(task.uid)
    held = () if placement is None else placement.allocations
    saved, doubt = _checkpoint(task.moving.checkpoint, started, now)
    if saved is None:
        return Mover(task, now - started, "start", doubt, budgets, held)
    return Mover(task, now - saved, "checkpoint", "", budgets, held)


def _checkpoint(text: str, started: float, now: float) -> tuple[float | None, str]:
    """The time of a checkpoint that may be true; else None, and why it is not believed."""
    if not text:
        return None, ""
    found = moment(text)
    if found is None:
        return None, f"{CHECKPOINTED_AT} is no time in RFC 3339"
    if found > now:
        return None, f"{CHECKPOINTED_AT} lies in the future"
    if found < started:
        return None, f"{CHECKPOINTED_AT} lies before the pod's start"
    return found, ""
