"""drf: the job with the smallest dominant share first; with ``enableHierarchy`` the queue, too (Volcano
pkg/scheduler/plugins/drf)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
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
from pumice.scheduler.plugins.hierarchy import Tree, taken
from pumice.scheduler.state.groups import QueueTree
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.resources import PODS, Vector, add, subtract
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import Arguments

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

    def not_preemptable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        """Nobody goes by whom his job would have a smaller share than the other one with its new pod."""
        assert claimant.job is not None
        with_it = dict(claimant.job.allocated)
        add(with_it, claimant.amounts.items())
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
                    f" {claimant.job.name} with one more pod ({mine:.3g})"
                )
        return stay

    def preemptive(self, queue: QueueState, task: Task) -> bool | None:
        """Where there is a tree of queues, it depends on who would go."""
        return None if self._tree is None else queue.open and queue.present

    def not_reclaimable(self, claimant: Task, victims: Sequence[Task]) -> Spared | None:
        """In a tree of queues nobody goes by whom his queue would come before the other one with its new pod."""
        tree = self._tree
        if tree is None or claimant.job is None:
            return None
        mine = claimant.job.queue
        with_it = dict(taken(mine))
        add(with_it, claimant.amounts.items())
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
