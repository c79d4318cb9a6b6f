"""task-topology: roles of a job that talk much come onto one node, roles that disturb each other do not.

The pods of a job are dealt into buckets, each of which would best be on one node; a bucket's pods are placed one after the other,
on the node that takes most of them (docs/reference/topology.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import AllocationHandler, Session, TaskNodeOrder, TaskOrder
from pumice.scheduler.state.jobs import ALLOCATED_STATUSES, Job, Status, Task
from pumice.scheduler.state.resources import MEMORY, PODS
from pumice.scheduler.state.state import State
from pumice.wire.names import TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY, TASK_TOPOLOGY_ORDER
from pumice.wire.scheduler_conf import Arguments

OWN_ANTI, OTHERS, OWN, OTHERS_ANTI = 4, 3, 2, 1
"""Order in which roles are dealt out, by what is said of them: those that spread most come first."""
Pair = tuple[str, str]


@dataclass(slots=True, eq=False)
class Bucket:
    """A bucket of pods that want to be together. ``waiting`` have no node yet. ``weight`` is what they request, with a MiB as
    much as a thousandth of a cpu."""

    number: int
    waiting: dict[str, Task] = field(default_factory=dict)
    roles: Counter[str] = field(default_factory=Counter)
    placed: Counter[str] = field(default_factory=Counter)
    """Its pods per node."""
    weight: int = 0

    @property
    def size(self) -> int:
        return len(self.waiting) + self.placed.total()


@dataclass(slots=True)
class Hints:
    """Affinities between pairs of roles in a PodGroup's annotations (a role with itself among them)."""

    near: frozenset[Pair]
    apart: frozenset[Pair]
    order: tuple[str, ...]
    urgency: dict[str, int]

    def between(self, role: str, others: Counter[str], *, apart_only: bool = False) -> int:
        """Pods of the others that it should be near, less those that it should not."""
        found = 0
        for other, count in others.items():
            pair = _pair(role, other)
            found += count * ((not apart_only and pair in self.near) - (pair in self.apart))
        return found

    def rank(self, role: str) -> tuple[int, int]:
        """The lower, the earlier."""
        place = self.order.index(role) if role in self.order else len(self.order)
        return place, -self.urgency.get(role, 0)


@dataclass(slots=True)
class Deal:
    """The buckets of one job."""

    hints: Hints
    buckets: list[Bucket] = field(default_factory=list)
    bucket_of: dict[str, Bucket] = field(default_factory=dict)
    on_node: dict[str, Counter[str]] = field(default_factory=dict)
    """Roles of the job's pods per node."""

    @property
    def largest(self) -> int:
        return max((bucket.size for bucket in self.buckets), default=0)

    def put(self, task: Task, bucket: Bucket) -> None:
        self.bucket_of[task.uid] = bucket
        bucket.roles[task.role] += 1
        bucket.waiting[task.uid] = task
        bucket.weight += _weight(task)

    def place(self, task: Task) -> None:
        self.on_node.setdefault(task.node, Counter())[task.role] += 1
        bucket = self.bucket_of.get(task.uid)
        if bucket is not None and bucket.waiting.pop(task.uid, None) is not None:
            bucket.placed[task.node] += 1
            bucket.weight -= _weight(task)


class TaskTopology(TaskOrder, TaskNodeOrder, AllocationHandler):
    name = "task-topology"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.weight = arguments.integer("task-topology.weight", 1)
        self._deals: dict[Job, Deal | None] = {}

    def open(self, session: Session) -> None:
        self._deals.clear()

    def _deal(self, job: Job | None) -> Deal | None:
        if job is None:
            return None
        if job not in self._deals:
            hints = hints_of(job)
            self._deals[job] = deal(job, hints) if hints is not None else None
        return self._deals[job]

    def task_order_key(self, task: Task) -> tuple[Any, ...]:
        """Largest buckets first; pods of none last."""
        found = self._deal(task.job)
        bucket = found.bucket_of.get(task.uid) if found is not None else None
        if found is None or bucket is None:
            return (1,)
        return 0, -len(bucket.waiting), bucket.number, found.hints.rank(task.role)

    def placed(self, task: Task) -> None:
        found = self._deals.get(task.job) if task.job is not None else None
        if found is not None:
            found.place(task)

    def removed(self, task: Task) -> None:
        """It has left its node already: the job is dealt out anew when somebody asks."""
        if task.job is not None:
            self._deals.pop(task.job, None)

    def task_scores(self, state: State, task: Task) -> NDArray[np.float64] | None:
        found = self._deal(task.job)
        bucket = found.bucket_of.get(task.uid) if found is not None else None
        if found is None or bucket is None or not self.weight:
            return None
        row_of = state.ledger.table.row_of
        score = _together(state, task, bucket).astype(np.float64)
        for node, count in bucket.placed.items():
            if node in row_of:
                score[row_of[node]] += count
        for node, roles in found.on_node.items():
            if node in row_of:
                score[row_of[node]] += min(0, found.hints.between(task.role, roles, apart_only=True))
        return score * (100 * self.weight / max(1, found.largest))


def _together(state: State, task: Task, bucket: Bucket) -> NDArray[np.int64]:
    """Per node how many of the bucket's waiting pods, this one first and then the smallest, there will be room for."""
    table = state.ledger.table
    free = table.alloc - table.used + table.releasing
    count = np.zeros(len(free), np.int64)
    wanted = np.zeros(free.shape[1], np.int64)
    fits = np.ones(len(free), bool)
    others = sorted((other for other in bucket.waiting.values() if other is not task), key=_weight)
    for one in (task, *others):
        for column, amount in state.ledger.columns(one.request):
            wanted[column] += amount
        requested = np.flatnonzero(wanted)
        fits &= (free[:, requested] >= wanted[requested]).all(axis=1)
        if not fits.any():
            break
        count += fits
    return count


def hints_of(job: Job) -> Hints | None:
    """By its PodGroup's annotations: sets of roles, comma between roles, semicolon between sets. None where it has none."""
    annotations = job.group.metadata.annotations if job.group is not None else {}
    near, apart = _sets(annotations.get(TASK_TOPOLOGY_AFFINITY, "")), _sets(annotations.get(TASK_TOPOLOGY_ANTI_AFFINITY, ""))
    order = next(iter(_sets(annotations.get(TASK_TOPOLOGY_ORDER, ""))), ())
    if not (near or apart or order):
        return None
    urgency: dict[str, int] = {}
    for sets, alone, with_others in ((near, OWN, OTHERS), (apart, OWN_ANTI, OTHERS_ANTI)):
        for roles in sets:
            for role in roles:
                urgency[role] = max(urgency.get(role, 0), alone if len(roles) == 1 else with_others)
    return Hints(_pairs(near), _pairs(apart), order, urgency)


def deal(job: Job, hints: Hints) -> Deal:
    """Pods that have a node are a bucket by node; each other one goes where most is that it should be near, among equal buckets
    to the lightest, or into a new one where all have what it should be away from."""
    found = Deal(hints)
    by_node: dict[str, Bucket] = {}
    allocated = [task for task in job.tasks.values() if task.status in ALLOCATED_STATUSES and task.node]
    for task in sorted(allocated, key=lambda task: task.node):
        if task.role in hints.urgency:
            if task.node not in by_node:
                by_node[task.node] = _new(found)
            found.put(task, by_node[task.node])
        found.place(task)
    waiting = [task for task in job.tasks.values() if task.status is Status.PENDING and task.role in hints.urgency]
    for task in sorted(waiting, key=lambda task: (hints.rank(task.role), task.order(), task.name)):
        worth = [(-hints.between(task.role, bucket.roles), bucket.weight, bucket.number) for bucket in found.buckets]
        best = min(worth, default=(1, 0, 0))
        found.put(task, _new(found) if best[0] > 0 else found.buckets[best[2]])
    return found


def _new(found: Deal) -> Bucket:
    bucket = Bucket(len(found.buckets))
    found.buckets.append(bucket)
    return bucket


def _weight(task: Task) -> int:
    return sum(amount // 2**20 if name == MEMORY else amount for name, amount in task.request.items if name != PODS)


def _sets(text: str) -> list[tuple[str, ...]]:
    """Each role once, and no empty names: what is left of an annotation that is no more than punctuation is nothing."""
    sets = [tuple(dict.fromkeys(filter(None, (role.strip() for role in part.split(","))))) for part in text.split(";")]
    return [roles for roles in sets if roles]


def _pairs(sets: Iterable[tuple[str, ...]]) -> frozenset[Pair]:
    return frozenset(
        _pair(left, right) for roles in sets for left in roles for right in roles if left != right or len(roles) == 1
    )


def _pair(left: str, right: str) -> Pair:
    return (left, right) if left <= right else (right, left)
