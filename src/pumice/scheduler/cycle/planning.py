"""Pods laid out together: those that wait for slices of cards (ADR 79), and gangs of unlike requests.

A device type lays the pods out on the nodes that take them (``Planner``); what comes of it is a wish for each pod, a node and
what to take there, which is tried by the ordinary way on the live ledger before any other choice. So nothing is booked that
the ledger does not bear, and a wish that does not stand costs nothing. Whether a layout is any better is not believed but
played.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pumice.devices.protocol import Planned, Planner
from pumice.devices.settings import FULLEST, NONE
from pumice.scheduler.cycle import over_cycles, trying
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.queueing import cost_of
from pumice.scheduler.cycle.statement import Place, Statement
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.active_jobs import JobHeap
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.tasks import Status

# -- layouts -----------------------------------------------------------------------------------------------------------


MOST = 16
"""Single pods that are laid out together: they are played twice."""
MOST_NODES = 128


class Hint(NamedTuple):
    """A pod's place by the plan: the node, and what its device type is to look for there."""

    node: str
    where: Any


class Got(NamedTuple):
    """The share of a pod: the memory that it asks for, and cores."""

    requested: int
    cores: int


Hints = dict[str, Hint]
"""By the pods' uids."""


def plannable(cycle: Cycle, task: Task) -> bool:
    return _planner(cycle, task) is not None


def _planner(cycle: Cycle, task: Task) -> Planner | None:
    cls = task.cls
    if len(cls.device_requests) != 1 or cls.refusals or cls.request.refused or cycle.state.settings.plan_pending == NONE:
        return None
    planner = cycle.state.ledger.device_tables[cls.device_requests[0].device_type].device_type.planner
    return planner if planner is not None and planner.plannable(cls.device_requests[0]) else None


def hints_for(
    cycle: Cycle, tasks: Sequence[Task], within: Rows | None = None, must: Collection[str] | None = None
) -> Hints:
    """A layout of these pods as the ledger is now. ``must``: uids of those that come before all others; None: all are equal."""
    by_device_type: dict[str, list[Task]] = {}
    for task in tasks:
        by_device_type.setdefault(task.cls.device_requests[0].device_type, []).append(task)
    found: Hints = {}
    for its in by_device_type.values():
        found |= _of_one_device_type(cycle, its, within, must)
    return found


def _of_one_device_type(cycle: Cycle, tasks: Sequence[Task], within: Rows | None, must: Collection[str] | None) -> Hints:
    planner = _planner(cycle, tasks[0])
    if planner is None or len({task.cls for task in tasks}) < 2:
        return {}
    table, device_table = cycle.state.ledger.table, cycle.state.ledger.device_tables[tasks[0].cls.device_requests[0].device_type]
    rows = _rows(cycle, tasks, within)
    numbers = {row: number for number, row in enumerate(sorted(set().union(*rows)))}
    names = [table.name(row) for row in numbers]
    pods = [
        Planned(task.cls.device_requests[0], frozenset(numbers[row] for row in open_to), must is None or task.uid in must)
        for task, open_to in zip(tasks, rows, strict=True)
    ]
    found = planner.lay_out(pods, [device_table.view(name) for name in names])
    return {task.uid: Hint(names[spot[0]], spot[1]) for task, spot in zip(tasks, found, strict=True) if spot is not None}


def _rows(cycle: Cycle, tasks: Sequence[Task], within: Rows | None) -> list[set[int]]:
    """Per pod the nodes on which it is laid out: as many as there are pods do for one that may have more. Those of the pods that
    may have few are looked at first."""
    open_to = [cycle.placer.open_to(task.cls, cycle.among(task, within)) for task in tasks]
    found: dict[bytes, set[int]] = {}
    chosen: set[int] = set()
    for mask in sorted(open_to, key=lambda mask: int(mask.sum())):
        if (key := mask.tobytes()) not in found:
            own = np.flatnonzero(mask).tolist()
            fresh = [row for row in own if row not in chosen][: min(len(tasks), MOST_NODES - len(chosen))]
            found[key] = chosen.intersection(own).union(fresh)
            chosen.update(fresh)
    return [found[mask.tobytes()] for mask in open_to]


# -- single pods of one queue ------------------------------------------------------------------------------------------


def together(cycle: Cycle, queue: QueueState, job: Job, task: Task, line: JobHeap[Job]) -> None:
    """The job is the next of its queue. Where it is one pod of a kind that can be planned, lay it out with those behind it that
    are, too. Who is not in the layout then comes after those who are (``Attempt.behind``), as it was played."""
    if queue.one_by_one or cycle.attempt(job).planned or not _single(cycle, job) or not plannable(cycle, task):
        return
    if not _early(cycle):
        return
    tasks = {job: task}
    for other in line.next(MOST - 1):
        its = next(iter(other.pending.values()), None)
        if its is None or not _single(cycle, other) or not plannable(cycle, its):
            break
        tasks[other] = its
    for other in tasks:
        cycle.attempts[other].planned = True
    if len({task.cls for task in tasks.values()}) < 2 or not _scarce(cycle, list(tasks.values())):
        return
    order = list(tasks.values())
    placed = _play(cycle, order, {})
    if len(placed) == len(order) or not placed or not _early(cycle):
        return
    equal = cycle.state.settings.plan_pending == FULLEST and _stand_equal(cycle, tasks)
    hints = hints_for(cycle, order, must=() if equal else placed)
    in_turn = sorted(order, key=lambda task: task.uid not in hints)
    by_plan = _play(cycle, in_turn, hints) if hints else {}
    if not (_total_request(by_plan) > _total_request(placed) if equal else _only_gains(placed, by_plan)):
        return
    cycle.hints.update(hints)
    last = [job for job, task in tasks.items() if task.uid in hints][-1]
    for other in tasks:
        if tasks[other].uid not in hints:
            cycle.attempts[other].behind = last


def _early(cycle: Cycle) -> bool:
    """Return whether so much of the cycle is left that the pods can be played and still be placed in it."""
    return not cycle.past(cycle.started, 1 / 3)


def _single(cycle: Cycle, job: Job) -> bool:
    """Return whether it is one pod that waits for nothing but its place."""
    if job.min_available > 1 or len(job.pending) != 1 or not job.queue.open or job.backoff.until > cycle.now:
        return False
    task = next(iter(job.pending.values()))
    started = not job.is_pending() or "enqueue" not in cycle.framework.conf.actions
    return started and not (task.gated or task.best_effort or task.nominated) and task.backoff.until <= cycle.now


def _scarce(cycle: Cycle, tasks: Sequence[Task]) -> bool:
    """Return whether there are fewer nodes for some of them than there are pods: else each could have a node to itself."""
    classes = dict.fromkeys(task.cls for task in tasks)
    return any(int(cycle.placer.open_to(cls, None).sum()) < len(tasks) for cls in classes)


def _stand_equal(cycle: Cycle, tasks: dict[Job, Task]) -> bool:
    """But for the order of their names nothing tells who comes first, and they want cards of one kind."""
    jobs, device_types = list(tasks), {task.cls.device_requests[0].device_type for task in tasks.values()}
    return len(device_types) == 1 and len({(cycle.framework.job_order_key(job)[:-1], job.created) for job in jobs}) == 1


def _play(cycle: Cycle, tasks: Sequence[Task], hints: Hints) -> dict[str, Got]:
    """Return the pods that get a place in that order and by these wishes, with their shares. The ledger is then as it was."""
    statement, placer, may = cycle.statement(), cycle.placer, cycle.framework.allocatable
    for task in tasks:
        job = task.job
        assert job is not None
        if not may(job.queue, task.cls.amounts):
            continue
        among, cost = cycle.among(task), cost_of(cycle, task, may)
        accept = None if cost is None else cost.accepted
        hint = hints.get(task.uid)
        choice = None if hint is None else placer.as_wished(task.cls, hint.node, hint.where, accept, among)
        choice = choice or placer.choose(task.cls, accept=accept, among=among)
        if choice is not None:
            statement.place(task, choice)
    placed = {step.task.uid: _got(step.choice) for step in statement.steps if isinstance(step, Place)}
    cycle.take_back(statement, tasks)
    return placed


def _got(choice: Choice) -> Got:
    container_devices = [
        container_device for allocation in choice.allocations for container_device in allocation.container_devices
    ]
    return Got(
        sum(container_device.asked for container_device in container_devices),
        sum(container_device.cores for container_device in container_devices),
    )


def _only_gains(before: Mapping[str, Got], after: Mapping[str, Got]) -> bool:
    """Return whether more have a place, and nobody has less of one: of chips that are cut on demand a pod may get a smaller
    slice."""
    return before.keys() < after.keys() and all(after[uid].cores >= got.cores for uid, got in before.items())


def _total_request(placed: Mapping[str, Got]) -> tuple[int, int]:
    """The memory that they ask for, and how many they are."""
    return sum(got.requested for got in placed.values()), len(placed)


# -- a gang that does not stand in the order of its pods is tried with the larger requests first -----------------------


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
    cycle.take_back(statement, waiting, mark)
    for order in _orders(cycle, job, waiting, within):
        failed = set(roles)
        trying.place(cycle, job, statement, order, failed, beyond=beyond, within=within)
        if cycle.framework.job_ready(job):
            tasks[:] = [task for task in waiting if task.status is Status.PENDING]
            failed_roles.clear()
            failed_roles |= failed
            return False
        cycle.take_back(statement, waiting, mark)
        for task in waiting:
            cycle.hints.pop(task.uid, None)
    tasks[:] = waiting
    # For what it stands on, and why the rest does not.
    trying.place(cycle, job, statement, tasks, roles, beyond=beyond, within=within)
    return False


def _unlike(cycle: Cycle, job: Job, tasks: list[Task]) -> bool:
    """Return whether they are unlike pods of a gang, so that another order may help."""
    if job.min_available < 2 or not 2 <= len(tasks) <= MOST or len({task.cls for task in tasks}) < 2:
        return False
    return _larger_last(cycle, tasks) != tasks or any(plannable(cycle, task) for task in tasks)


def _orders(cycle: Cycle, job: Job, tasks: list[Task], within: Rows | None) -> Iterator[list[Task]]:
    """Orders in which they may stand, the last one first: the larger first; and by a layout of those that cut slices."""
    larger_last = _larger_last(cycle, tasks)
    if larger_last != tasks:
        yield larger_last[:]
    cut = [task for task in reversed(larger_last) if plannable(cycle, task)]
    if cycle.out_of_time():
        return
    hints = hints_for(cycle, cut, within)
    if hints and job.ready_count + len(tasks) - len(cut) + len(hints) >= job.min_available:
        cycle.hints.update(hints)
        yield sorted(larger_last, key=lambda task: task.uid in hints)


def _larger_last(cycle: Cycle, tasks: list[Task]) -> list[Task]:
    """The tasks with the largest ask last, which is taken first."""
    sizes = {cls: _size(cycle, next(task for task in tasks if task.cls is cls)) for cls in {task.cls for task in tasks}}
    return sorted(tasks, key=lambda task: sizes[task.cls])


def _size(cycle: Cycle, task: Task) -> float:
    """Of its cards' memory what it needs at least; whole cards and percentages, of which that cannot be said, before all else."""
    books = cycle.state.ledger.device_tables
    known = [
        books[device_request.device_type].device_type.least_memory(device_request)
        for device_request in task.cls.device_requests
    ]
    return float("inf") if known and not all(known) else float(sum(known))
