"""Shares of queues that are free only if evictions are carried out: until the API server says so, nobody is bound within them.

A pod that was told to go is charged to its queue no more, so that others can be promised what it held. Its eviction may be
refused.
"""

from __future__ import annotations

from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.price import May
from pumice.engine.cycle.statement import Evict, Statement
from pumice.engine.state.jobs import QueueState
from pumice.engine.state.resources import Vector, add
from pumice.wire.names import ROOT_QUEUE


def affordable(cycle: Cycle, statement: Statement, *, beyond: bool = False) -> May:
    """Whether a queue may be charged for a pod that is bound at once; ``beyond`` its share where nobody else needs that."""
    may = cycle.framework.lends if beyond else cycle.framework.allocatable

    def pays(queue: QueueState, amounts: Vector) -> bool:
        if not may(queue, amounts):
            return False
        staying = _staying(cycle, queue, statement)
        if staying:
            add(staying, amounts.items())
        return not staying or may(queue, staying)

    return pays


def rests_on_trust(cycle: Cycle, queue: QueueState) -> bool:
    """Whether what its pods were promised, which it is charged already, is beyond its share should an eviction be refused."""
    staying = _staying(cycle, queue)
    return bool(staying) and not cycle.framework.allocatable(queue, staying)


def _staying(cycle: Cycle, queue: QueueState, statement: Statement | None = None) -> Vector:
    """What pods of the queue, and of those that share a parent with it, hold in the eyes of the API server."""
    told = [(each.queue, each.amounts) for each in cycle.state.departures.unanswered]
    if statement is not None and statement.evicts:
        going = (step.task for step in statement.steps if isinstance(step, Evict))
        told += [(task.job.queue, task.amounts) for task in going if task.job is not None]
    found: Vector = {}
    if told:
        tree = cycle.state.groups.tree
        above = {each for each in tree.above(queue) if each.name != ROOT_QUEUE}
        for paid_by, amounts in told:
            if paid_by is queue or not above.isdisjoint((paid_by, *tree.above(paid_by))):
                add(found, amounts.items())
    return found
