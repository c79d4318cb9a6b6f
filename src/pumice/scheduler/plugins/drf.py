"""drf: the job with the smallest dominant share first; with ``enableHierarchy`` the queue, too (Volcano
pkg/scheduler/plugins/drf).

The tree of hierarchical drf: queues by the path that their annotations give, and the share of each branch (Volcano
pkg/scheduler/plugins/drf).

The queues are its leaves. A branch holds what its children hold, each scaled down to the smallest share among those that want
more, so that a child which cannot use its part does not make its siblings look rich. Branches that can use
nothing more come last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pumice.scheduler.plugins.contract import (
    AllocationHandler,
    HierarchicalQueueOrder,
    JobOrder,
    Preemptable,
    Preemptive,
    Reclaimable,
    Session,
    Spared,
)
from pumice.scheduler.state.groups import QueueTree, together
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.resources import PODS, Vector, add, subtract
from pumice.scheduler.state.state import State
from pumice.wire.names import ROOT_QUEUE
from pumice.wire.scheduler_conf import Arguments
from pumice.wire.volcano import Hierarchy

MANY = 32
"""Of so many changed leaves each is not followed up to the root by itself."""
Key = tuple[tuple[bool, float], ...]


@dataclass(slots=True, eq=False)
class Branch:
    """One name of a path, or one queue at its end."""

    weight: float = 1.0
    parent: Branch | None = None
    children: list[Branch] = field(default_factory=list)
    usage: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.0
    sated: bool = False
    """It can use nothing more of what is left."""

    def path(self) -> list[Branch]:
        """From the root down to it."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


@dataclass(slots=True)
class Tree:
    """Of a cluster that has so much in total."""

    total: Vector
    short: frozenset[str] = frozenset()
    """Resources of which nothing is left."""
    leaves: dict[QueueState, Branch] = field(default_factory=dict)
    root: Branch = field(default_factory=Branch)
    _seen: dict[QueueState, int] = field(default_factory=dict)

    def grow(self, queues: Iterable[QueueState]) -> None:
        """Anew from the paths. The weight of a name is what the first queue says that passes by it."""
        branches: dict[tuple[str, ...], Branch] = {(ROOT_QUEUE,): self.root}
        for queue in queues:
            place = queue.hierarchy or Hierarchy((ROOT_QUEUE, queue.name), (1.0, 1.0))
            at = self.root
            for depth, weight in enumerate(place.weights[1:], start=2):
                name = place.path[:depth]
                if name not in branches:
                    branches[name] = Branch(weight, at)
                    at.children.append(branches[name])
                at = branches[name]
            self.leaves[queue] = Branch(1.0, at)
            at.children.append(self.leaves[queue])

    def look_at(self, short: frozenset[str]) -> None:
        """Weigh what has changed since it was weighed last; everything, where other resources are all in use now."""
        changed = [queue for queue in self.leaves if short != self.short or self._seen.get(queue) != queue.version]
        self.short = short
        for queue in changed:
            self._seen[queue] = queue.version
            self._weigh_leaf(self.leaves[queue], taken(queue), _wanted(queue))
        if len(changed) > MANY:
            self._weigh_below(self.root)
            return
        for queue in changed:
            self._weigh_above(self.leaves[queue])

    def reweigh(self, queue: QueueState) -> None:
        """Note that the amount of this queue has changed."""
        if (leaf := self.leaves.get(queue)) is not None:
            self._weigh_leaf(leaf, taken(queue), _wanted(queue))
            self._weigh_above(leaf)

    def key(self, queue: QueueState) -> Key:
        """Its place among the queues, from the root down."""
        return tuple([(each.sated, each.share / each.weight) for each in self.branches(queue)])

    def branches(self, queue: QueueState) -> list[Branch]:
        """From below the root down to it."""
        leaf = self.leaves.get(queue)
        return leaf.path()[1:] if leaf is not None else []

    @contextmanager
    def supposing(self, queue: QueueState, has: Vector) -> Iterator[None]:
        """Inside, the queue has so much."""
        leaf = self.leaves.get(queue)
        if leaf is None:
            yield
            return
        self._weigh_leaf(leaf, has, _wanted(queue))
        self._weigh_above(leaf)
        try:
            yield
        finally:
            self.reweigh(queue)

    def _weigh_leaf(self, leaf: Branch, has: Vector, wanted: Vector) -> None:
        leaf.usage, leaf.share = has, self._share(has)
        more = [name for name, value in wanted.items() if name != PODS and value > has.get(name, 0)]
        leaf.sated = not more or not self.short.isdisjoint(more)

    def _weigh_above(self, branch: Branch) -> None:
        at = branch.parent
        while at is not None:
            self._weigh(at)
            at = at.parent

    def _weigh_below(self, branch: Branch) -> None:
        for child in branch.children:
            if child.children:
                self._weigh_below(child)
        self._weigh(branch)

    def _weigh(self, branch: Branch) -> None:
        least = min((child.share for child in branch.children if child.share and not child.sated), default=1.0)
        usage: dict[str, float] = {}
        for child in branch.children:
            if child.share:
                scale = 1.0 if child.sated else least / child.share
                for name, value in child.usage.items():
                    usage[name] = usage.get(name, 0.0) + value * scale
        branch.usage, branch.share = usage, self._share(usage)
        branch.sated = bool(branch.children) and all(child.sated for child in branch.children)

    def _share(self, usage: Mapping[str, float]) -> float:
        return max((usage.get(name, 0) / all_ for name, all_ in self.total.items() if all_ > 0 and name != PODS), default=0.0)


def taken(queue: QueueState) -> Vector:
    """Return the amount that counts as a queue's."""
    return together(queue.allocated, queue.awaited)


def _wanted(queue: QueueState) -> Vector:
    """Return the queue's amount with all pending pods that could start."""
    wanted = dict(taken(queue))
    if queue.open:
        add(wanted, queue.pending.items())
        subtract(wanted, queue.aside.items())
    return wanted


EQUAL = 1e-6
"""Shares that differ by less are equal (Volcano pkg/scheduler/plugins/drf)."""


class Drf(JobOrder, HierarchicalQueueOrder, AllocationHandler, Preemptive, Preemptable, Reclaimable):
    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._total: Vector = {}
        self._tree: Tree | None = None
        self._basis: tuple[QueueTree, int, Vector] | None = None

    def open(self, session: Session) -> None:
        self._total = session.state.ledger.table.total
        if self.hierarchical:
            self._look_at_queues(session.state)

    def _look_at_queues(self, state: State) -> None:
        groups, total = state.groups, {name: value for name, value in self._total.items() if name != PODS}
        basis = (groups.tree, groups.tree.version, total)
        if self._tree is None or basis != self._basis:
            present = [queue for queue in state.queues.values() if queue.present]
            groups.remark("drf", {queue.name: queue.misplaced for queue in present if queue.misplaced})
            self._tree, self._basis = Tree(total), basis
            self._tree.grow(present)
        usage = groups.tree.all_taken()
        self._tree.look_at(frozenset(name for name, value in total.items() if usage.get(name, 0) >= value > 0))

    def job_order_key(self, job: Job) -> float:
        return self.share(job)

    def share(self, job: Job) -> float:
        """Largest part of any resource of the cluster that the job holds."""
        job.share = self._share(job.allocated)
        return job.share

    def _share(self, usage: Vector) -> float:
        total = self._total
        return max((amount / total[name] for name, amount in usage.items() if total.get(name, 0) > 0), default=0.0)

    # -- queues, where they are a tree ----------------------------------------------------------------------------

    def queue_order_key(self, queue: QueueState) -> Any:
        return () if self._tree is None else self._tree.key(queue)

    def branches(self, queue: QueueState) -> Sequence[Hashable]:
        return () if self._tree is None else self._tree.branches(queue)

    def placed(self, task: Task) -> None:
        if self._tree is not None and task.job is not None:
            self._tree.reweigh(task.job.queue)

    def removed(self, task: Task) -> None:
        self.placed(task)

    # -- making room ----------------------------------------------------------------------------------------------

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """Nobody goes by whom his job would have a smaller share than the other one with its new pod."""
        assert preemptor.job is not None
        with_it = dict(preemptor.job.allocated)
        add(with_it, preemptor.amounts.items())
        mine = self._share(with_it)
        left: dict[Job, Vector] = {}
        stay = {}
        for task in victims:
            if task.job is None:
                continue
            rest = left.setdefault(task.job, dict(task.job.allocated))
            subtract(rest, task.amounts.items())
            theirs = self._share(rest)
            if mine > theirs + EQUAL:
                add(rest, task.amounts.items())
                stay[task.uid] = (
                    f"job {task.job.name} would have a smaller share of the cluster ({theirs:.3g}) than job"
                    f" {preemptor.job.name} with one more pod ({mine:.3g})"
                )
        return stay

    def preemptive(self, queue: QueueState, task: Task) -> bool | None:
        """Return whether the queue may reclaim in a tree of queues, by who would go; None where there is no tree."""
        return None if self._tree is None else queue.open and queue.present

    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared | None:
        """In a tree of queues nobody goes by whom his queue would come before the other one with its new pod."""
        tree = self._tree
        if tree is None or preemptor.job is None:
            return None
        mine = preemptor.job.queue
        with_it = dict(taken(mine))
        add(with_it, preemptor.amounts.items())
        gone: dict[QueueState, Vector] = {}
        stay = {}
        with tree.supposing(mine, with_it):
            for task in victims:
                if task.job is None:
                    continue
                theirs = task.job.queue
                rest = dict(taken(theirs))
                subtract(rest, gone.get(theirs, {}).items())
                subtract(rest, task.amounts.items())
                with tree.supposing(theirs, rest):
                    goes = tree.key(mine) < tree.key(theirs)
                if goes:
                    add(gone.setdefault(theirs, {}), task.amounts.items())
                else:
                    stay[task.uid] = f"queue {theirs.name} would come before queue {mine.name} in the tree of queues"
        return stay
