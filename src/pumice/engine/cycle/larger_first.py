"""A gang of unlike asks of cards, planned as a whole: where it does not stand in the order of its pods, the larger asks go first.

A small pod that comes first may take the place of a larger one: on a card in MIG mode it opens a layout in which the larger has
no slice, on shared cards it begins one that the larger needs whole. Only a gang that would not stand is tried again, so nothing
is placed worse than pod by pod, and where no order helps everything is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from pumice.engine.cycle import over_cycles, planning, trying
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.statement import Mark, Statement
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.nodes import Rows
from pumice.engine.state.tasks import Status

MOST = 64
"""Pods of a gang that is tried in two orders; a larger one would take a whole cycle."""


def place(
    cycle: Cycle, job: Job, statement: Statement, tasks: list[Task], failed_roles: set[str], *, beyond: bool = False,
    within: Rows | None = None, may_stop: bool = False,
) -> bool:  # fmt: skip
    """Place as ``trying.place``. What is searched for over several cycles is tried in one order."""
    waiting, roles, mark = list(tasks), set(failed_roles), statement.mark()
    begun = over_cycles.begun(cycle, job) is not None
    if trying.place(cycle, job, statement, tasks, failed_roles, beyond=beyond, within=within, may_stop=may_stop):
        return True
    if begun or cycle.framework.job_ready(job) or not _unlike(cycle, job, waiting) or cycle.out_of_time():
        return False
    _take_back(cycle, statement, mark, waiting)
    for order in _orders(cycle, job, waiting, within):
        failed = set(roles)
        trying.place(cycle, job, statement, order, failed, beyond=beyond, within=within)
        if cycle.framework.job_ready(job):
            tasks[:] = [task for task in waiting if task.status is Status.PENDING]
            failed_roles.clear()
            failed_roles |= failed
            return False
        _take_back(cycle, statement, mark, waiting)
        for task in waiting:
            cycle.wishes.pop(task.uid, None)
    tasks[:] = waiting
    # For what it stands on, and why the rest does not.
    trying.place(cycle, job, statement, tasks, roles, beyond=beyond, within=within)
    return False


def _unlike(cycle: Cycle, job: Job, tasks: list[Task]) -> bool:
    """Whether they are unlike pods of a gang, so that another order may help."""
    if job.min_available < 2 or not 2 <= len(tasks) <= MOST or len({task.cls for task in tasks}) < 2:
        return False
    return _larger_last(cycle, tasks) != tasks or any(planning.plannable(cycle, task) for task in tasks)


def _orders(cycle: Cycle, job: Job, tasks: list[Task], within: Rows | None) -> Iterator[list[Task]]:
    """Orders in which they may stand, the last one first: the larger first; and by a layout of those that cut slices."""
    larger_last = _larger_last(cycle, tasks)
    if larger_last != tasks:
        yield larger_last[:]
    cut = [task for task in reversed(larger_last) if planning.plannable(cycle, task)]
    if cycle.out_of_time():
        return
    wishes = planning.wishes_for(cycle, cut, within)
    if wishes and job.ready_count + len(tasks) - len(cut) + len(wishes) >= job.min_available:
        cycle.wishes.update(wishes)
        yield sorted(larger_last, key=lambda task: task.uid in wishes)


def _larger_last(cycle: Cycle, tasks: list[Task]) -> list[Task]:
    """The tasks with the largest ask last, which is taken first."""
    sizes = {cls: _size(cycle, next(task for task in tasks if task.cls is cls)) for cls in {task.cls for task in tasks}}
    return sorted(tasks, key=lambda task: sizes[task.cls])


def _size(cycle: Cycle, task: Task) -> float:
    """Of its cards' memory what it needs at least; whole cards and percentages, of which that cannot be said, before all else."""
    books = cycle.state.ledger.books
    known = [books[ask.family].family.least_memory(ask) for ask in task.cls.asks]
    return float("inf") if known and not all(known) else float(sum(known))


def _take_back(cycle: Cycle, statement: Statement, mark: Mark, tasks: list[Task]) -> None:
    statement.rollback(mark)
    cycle.placer.reconsider(task.cls for task in tasks)
