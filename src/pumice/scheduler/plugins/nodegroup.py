"""nodegroup: queues are bound to groups of nodes, or lean to them (docs/reference/topology.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import AllocationHandler, Session, TaskNodeOrder, TaskPredicate, Verdict
from pumice.scheduler.state.jobs import ALLOCATED_STATUSES, QueueState, Task
from pumice.scheduler.state.resources import Vector, add, vector
from pumice.scheduler.state.state import State
from pumice.wire.objects import Requirement
from pumice.wire.scheduler_conf import Arguments
from pumice.wire.volcano import NODE_GROUP, NodeGroups

SCORE = 100.0


class NodeGroup(TaskPredicate, TaskNodeOrder, AllocationHandler):
    name = "nodegroup"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.strict = arguments.boolean("strict", True)
        self.ordered = arguments.boolean("enablePreferredOrder", False)
        self._usage: dict[QueueState, dict[str, Vector]] = {}
        """The amounts that queues with limits hold in each group."""
        self._state: State | None = None

    def open(self, session: Session) -> None:
        self._state = session.state
        self._usage.clear()
        problems = {name: text for name, queue in session.state.queues.items() if (text := queue.node_groups.problem)}
        session.state.groups.remark(self.name, problems)

    def rules(self, state: State, queue: QueueState) -> NodeGroups:
        """Of the queue itself; where it has none and they are inherited, of the nearest queue above it that has some."""
        mine = queue.node_groups
        if mine.chosen or not self.hierarchical:
            return mine
        above = next((parent.node_groups for parent in state.groups.tree.above(queue) if parent.node_groups.chosen), mine)
        return replace(above, limits=mine.limits, problem=mine.problem)

    # -- where it may not go --------------------------------------------------------------------------------------

    def bounds(self, state: State, task: Task) -> Iterator[Verdict]:
        if task.job is None:
            return
        queue, grouped = task.job.queue, self._in(state, "Exists")
        rules = self.rules(state, queue)
        if rules.problem:
            yield Verdict(np.ones(len(grouped), bool), f"node group resource limit annotation invalid: {rules.problem}")
            return
        if self.strict or rules.chosen:
            yield Verdict(~grouped, "node group label not found")
        if not rules.chosen:
            yield Verdict(grouped, "node group affinity not specified")
            return
        may = self._in(state, "In", *rules.required, *rules.preferred) if rules.required or rules.preferred else grouped
        may = (may & ~self._in(state, "In", *rules.anti_required)) | self._in(state, "In", *rules.anti_preferred)
        yield Verdict(grouped & ~may, "node does not satisfy the node group affinity")
        full = [group for group, limit in rules.limits.items() if self._beyond(queue, group, vector(limit), task)]
        if full:
            yield Verdict(self._in(state, "In", *full), "node group resource limit exceeded")

    @staticmethod
    def _in(state: State, operator: str, *groups: str) -> NDArray[np.bool_]:
        return state.ledger.terms.labels.matches(Requirement(NODE_GROUP, operator, groups))[: state.ledger.table.capacity]

    # -- where it would rather go ---------------------------------------------------------------------------------

    def task_scores(self, state: State, task: Task) -> NDArray[np.float64] | None:
        rules = self.rules(state, task.job.queue) if task.job is not None else None
        if rules is None or not (rules.required or rules.preferred or rules.anti_preferred):
            return None
        score = SCORE * self._in(state, "In", *rules.required)
        for place, group in enumerate(rules.preferred):
            part = 1 - place / len(rules.preferred) if self.ordered else 1.0
            score += SCORE / 2 * part * self._in(state, "In", group)
        return np.where(self._in(state, "In", *rules.anti_preferred), -1.0, score)

    # -- what a queue holds in each group, where it is limited ------------------------------------------------------

    def _beyond(self, queue: QueueState, group: str, limit: Vector, task: Task) -> bool:
        allocated = self._holds(queue).get(group, {})
        return any(allocated.get(name, 0) + task.amounts.get(name, 0) > most for name, most in limit.items())

    def _holds(self, queue: QueueState) -> dict[str, Vector]:
        found = self._usage.get(queue)
        if found is None:
            found = self._usage[queue] = {}
            for job in queue.jobs:
                for task in job.tasks.values():
                    if task.status in ALLOCATED_STATUSES:
                        add(found.setdefault(self._group(task.node), {}), task.amounts.items())
        return found

    def _group(self, node: str) -> str:
        table = self._state.ledger.table if self._state is not None else None
        facts = table.facts[table.row_of[node]] if table is not None and node in table.row_of else None
        return facts.labels.get(NODE_GROUP, "") if facts is not None else ""

    def placed(self, task: Task) -> None:
        allocated = self._usage.get(task.job.queue) if task.job is not None else None
        if allocated is not None and task.status in ALLOCATED_STATUSES:
            add(allocated.setdefault(self._group(task.node), {}), task.amounts.items())

    def removed(self, task: Task) -> None:
        """It has left its node already: what its queue holds is summed anew when somebody asks."""
        if task.job is not None:
            self._usage.pop(task.job.queue, None)
