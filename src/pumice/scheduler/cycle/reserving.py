"""Nodes are held for the first gang of a queue that finds no room, for a while (``pumice.gangReservation``).

Which nodes: those on which the gang would stand if the pods there had left, as few of them as a search in powers of two finds,
the emptiest first. Nobody is sent away; who leaves is not followed by anybody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.cycle.cycle import RETRY, Cycle
from pumice.scheduler.cycle.domains import allowed
from pumice.scheduler.cycle.preemption.search import large_enough
from pumice.scheduler.cycle.queueing import with_kept_for_others
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.plugins.gang_reservation import GangReservation
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.domains import policies_of
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.nominations import Reservation
from pumice.scheduler.state.tasks import Status
from pumice.wire import volcano as words
from pumice.wire.volcano import PodGroupCondition

MOST: Final = 256
"""Nodes that are emptied on trial; a gang that needs more is held none."""
PAUSE: Final = 5.0
"""Seconds after a trial in vain until nodes are looked for again, for whomever: it may take longer than all else in a cycle."""
STAYING: Final = (Status.BINDING, Status.BOUND, Status.RUNNING, Status.RELEASING)


def give_back(cycle: Cycle) -> None:
    """End what is over. A scheduler that has just started goes on with what the one before it held."""
    reservations = cycle.state.reservations
    if not reservations.read:
        reservations.read = True
        for job in [job for job in cycle.state.jobs.values() if words.RESERVED in job.conditions]:
            _read(cycle, job, job.conditions[words.RESERVED])
    for found in list(reservations.held.values()):
        over = _over(cycle, found)
        if over is not None:
            _end(cycle, found.job, *over)
        elif not words.held(found.nodes, 0.0).same(found.job.conditions.get(words.RESERVED, PodGroupCondition())):
            _say(cycle, found.job, words.held(found.nodes, cycle.wall - (cycle.now - found.since)))
    reservations.tidy(cycle.now)


def reserve(cycle: Cycle) -> None:
    """The actions have run: hold nodes for the first gang of each queue that found no room, one gang of a queue at a time."""
    give_back(cycle)
    limit, reservations = _limit(cycle), cycle.state.reservations
    if not limit or cycle.now < reservations.again:
        return
    served = {found.job.queue for found in reservations.held.values()}
    for queue in [queue for queue in cycle.state.queues.values() if queue not in served]:
        job = _first(cycle, queue)
        if job is None or (job in queue.active and not cycle.attempt(job).tried):
            continue  # it is still to be tried
        nodes = _nodes_for(cycle, job)
        if not nodes:
            reservations.paused[job], reservations.again = cycle.now + RETRY, cycle.now + PAUSE
            return
        reservations.hold(Reservation(job, nodes, cycle.now, cycle.now + limit))
        cycle.state.scheduling_queue.cycle_at(cycle.now + limit)
        _say(cycle, job, words.held(nodes, cycle.wall))
        some = f"{len(nodes)} node" + ("s" if len(nodes) > 1 else "")
        text = f"for at most {limit:g} s nothing of lower rank is placed on {some}: {_few(nodes)}"
        cycle.effects.append(job.event("Normal", words.HELD, text))


def _limit(cycle: Cycle) -> float:
    return next((plugin.limit for plugin in cycle.framework.plugins if isinstance(plugin, GangReservation)), 0.0)


# -- when it ends ---------------------------------------------------------------------------------------------------------


def _read(cycle: Cycle, job: Job, condition: PodGroupCondition) -> None:
    """Take over what an earlier scheduler wrote. Its time goes on."""
    limit, reservations = _limit(cycle), cycle.state.reservations
    began = cycle.now - max(0.0, cycle.wall - words.since(condition))
    if condition.status == "True":
        reservations.hold(Reservation(job, words.nodes_of(condition), began, began + limit))
    elif condition.reason == words.OVER:
        reservations.paused[job] = began + limit


def _over(cycle: Cycle, found: Reservation) -> tuple[str, str] | None:
    """Return why nothing is held for it any more."""
    job, rows = found.job, cycle.state.ledger.table.row_of
    if not job.known or job.group is None:
        return "Withdrawn", "it is gone"
    attempt = cycle.attempt(job)
    on_trial = attempt.pipelined or attempt.postponed  # that ends with the cycle, or goes on in the next one
    if cycle.framework.job_ready(job) or (job.is_pipelined() and not on_trial):
        return "Placed", "its pods have places"
    if not _limit(cycle):
        return "Withdrawn", "the configuration holds no nodes"
    if cycle.now >= found.until:
        return words.OVER, f"in {cycle.now - found.since:.0f} s not all of its nodes became free"
    if job.stalled or not (job.queue.present and job.queue.open):
        return "Withdrawn", "it cannot start"
    return None if found.nodes <= rows.keys() and found.nodes else ("Withdrawn", "a node of it is gone")


def _end(cycle: Cycle, job: Job, reason: str, text: str) -> None:
    cycle.state.reservations.end(job, cycle.now)
    if reason == words.OVER:
        cycle.state.reservations.paused[job] = cycle.now + _limit(cycle)
    if job.known and job.group is not None:
        _say(cycle, job, words.given_back(reason, text, cycle.wall))
        cycle.effects.append(job.event("Normal", "NodesGivenBack", f"its nodes are held no longer: {text}"))


def _say(cycle: Cycle, job: Job, condition: PodGroupCondition) -> None:
    job.conditions = {**job.conditions, words.RESERVED: condition}
    cycle.state.scheduling_queue.write_status(job)


def _few(nodes: Iterable[str]) -> str:
    names = sorted(nodes)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# -- for whom, and which --------------------------------------------------------------------------------------------------


def _first(cycle: Cycle, queue: QueueState) -> Job | None:
    """The gang that comes first of those in the queue that could start if there were room."""
    if not (queue.present and queue.open):
        return None
    paused = cycle.state.reservations.paused
    gangs = [job for job in queue.waiters if job.min_available > 1 and job not in paused and _waits(cycle, job)]
    return min(gangs, key=cycle.framework.job_order_key, default=None)


def _waits(cycle: Cycle, job: Job) -> bool:
    ready = job.is_pipelined() or cycle.framework.job_ready(job)
    if job.group is None or job.stalled or ready or job.backoff.until > cycle.now or cycle.attempt(job).pipelined:
        return False
    return not policies_of(job) and cycle.framework.job_valid(job) is None


def _nodes_for(cycle: Cycle, job: Job) -> frozenset[str]:
    """Nodes on which the gang would stand; none where there are none that may be held."""
    tasks = sorted((task for task in job.pending.values() if not task.aside), key=cycle.framework.task_order_key)
    domains = allowed(cycle, job, tasks)
    free = _free(cycle, job)
    for rows in [free] if domains is None else [np.intersect1d(free, domain.rows) for domain in domains]:
        found = _emptied(cycle, job, tasks, rows)
        if found:
            return found
    return frozenset()


def _free(cycle: Cycle, job: Job) -> Rows:
    """Rows that may be held: not for another gang, nor too soon again, and nobody was nominated there."""
    state = cycle.state
    table, reservations = state.ledger.table, state.reservations
    taken = {*reservations.rest, *state.ledger.nominated, *(node for found in reservations.held.values() for node in found.nodes)}
    taken |= {table.name(row) for other, rows in state.scheduling_queue.reserved.items() if other is not job for row in rows}
    return np.array([row for name, row in table.row_of.items() if name not in taken], np.intp)


def _emptied(cycle: Cycle, job: Job, tasks: list[Task], rows: Rows) -> frozenset[str]:
    """Those of these rows that the gang takes, when as few of them as possible are empty."""
    statement = cycle.statement()
    order, takes = _emptiest_first(cycle, tasks[0], rows)
    alike, lacking = len({task.cls for task in tasks}) == 1, job.min_available - job.ready_count
    if alike and takes.sum() < lacking:
        return frozenset()
    emptied, number = 0, max(1, int((takes.cumsum() < lacking).sum()) // 2) if alike else 1
    try:
        while emptied < len(order):
            for row in order[emptied:number].tolist():
                _empty(cycle, job, statement, row)
            emptied, number = number, 2 * number
            mark = statement.mark()
            found = _places(cycle, job, tasks, statement, rows)
            if found:
                return found
            cycle.take_back(statement, tasks, mark)
        return frozenset()
    finally:
        cycle.take_back(statement, tasks)


def _emptiest_first(cycle: Cycle, task: Task, rows: Rows) -> tuple[Rows, NDArray[np.float64]]:
    """By how many such pods there is room for now, then by how many pods would have to leave; at most ``MOST``. And how many such
    pods each could take at most if it were empty."""
    ledger = cycle.state.ledger
    table = ledger.table
    rows = rows[large_enough(cycle.placer, task.cls, rows)]
    now, empty = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
    for column, amount in ledger.columns(task.request):
        if amount:
            have = table.alloc[rows, column]
            empty, now = np.minimum(empty, have // amount), np.minimum(now, (have - table.used[rows, column]) // amount)
    for device_request in task.cls.device_requests:
        device_table = ledger.device_tables[device_request.device_type]
        if least := device_table.device_type.least_memory(device_request):
            now = np.minimum(now, device_table.free_memory(rows, table.capacity) // least)
    there = np.array([len(ledger.by_node.get(table.name(row), ())) for row in rows.tolist()], np.int64)
    first = np.lexsort((table.rank()[rows], there, -now))[:MOST]
    return rows[first], empty[first]


def _empty(cycle: Cycle, job: Job, statement: Statement, row: int) -> None:
    """Of pods of ours; those of other schedulers are taken to stay."""
    state = cycle.state
    for uid in list(state.ledger.by_node.get(state.ledger.table.name(row), ())):
        task = state.tasks.get(uid)
        if task is not None and task.job is not None and task.job is not job and task.status in STAYING:
            statement.lift(uid)


def _places(cycle: Cycle, job: Job, tasks: list[Task], statement: Statement, rows: Rows) -> frozenset[str]:
    """Return where its pods go, if it stands then."""
    framework, nodes, vain = cycle.framework, set[str](), set[PodClass]()
    for task in tasks:
        if framework.job_ready(job):
            break
        allowed = task.cls not in vain and framework.allocatable(job.queue, with_kept_for_others(task, task.amounts))
        choice = cycle.placer.choose(task.cls, among=cycle.among(task, rows)) if allowed else None
        if choice is None:
            vain.add(task.cls)
        else:
            statement.place(task, choice)
            nodes.add(choice.node)
    return frozenset(nodes) if framework.job_ready(job) else frozenset()
