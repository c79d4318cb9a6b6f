"""A cycle begins: places that nodes' annotations hold are put in the ledger, and go to whom they are held for, before anybody
else is tried. ``pumice defrag apply`` has them held; the scheduler's own action keeps its own (``carrying``).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import inf
from typing import Final

from pumice.scheduler.cycle.concluding import commit
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.defragmenting.trial import Trial
from pumice.scheduler.cycle.queueing import affordable, with_kept_for_others
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.state.held_places import Hold
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.tasks import Status

AGAIN: Final = 1.0
"""Seconds after which whoever did not get its place is tried again: those that it awaits may be gone."""
AT_ONCE: Final = 8
"""Pods without gangs, and gangs, that one cycle tries to give their places."""
_GOING: Final = (Status.RELEASING, Status.SUCCEEDED, Status.FAILED)
_PLACED_OR_GONE: Final = (Status.BOUND, Status.RUNNING, *_GOING)


def hand_over(cycle: Cycle) -> None:
    """Give each pod the place that is held for it, and each gang its places together."""
    held, queue = cycle.state.held_places, cycle.state.scheduling_queue
    if held.fresh or cycle.wall >= held.first_end:
        held.take_up(cycle.wall)
    by_job: dict[Job, list[tuple[Hold, Task]]] = {}
    taken: set[str] = set()
    anew: dict[str, list[Task]] | None = None
    for hold in list(held):
        if not (hold.asked.pod or hold.asked.controller) or cycle.now < hold.tried + AGAIN:
            continue
        pod = cycle.state.tasks.get(hold.asked.pod)
        if not hold.asked.controller and (pod is None or pod.status in _PLACED_OR_GONE):
            held.end(hold)
            continue
        if hold.asked.controller and anew is None:
            anew = _made_anew(cycle)
        task = _for(cycle, hold, pod, (anew or {}).get(hold.asked.controller, ()), taken)
        if task is not None and task.job is not None:
            by_job.setdefault(task.job, []).append((hold, task))
            taken.add(task.uid)
    for job, wanted in list(by_job.items())[:AT_ONCE]:
        if not _placed(cycle, job, wanted):
            for hold, _ in wanted:
                hold.tried = cycle.now
            queue.cycle_at(cycle.now + AGAIN)
    if held.fresh or len(by_job) > AT_ONCE:
        queue.cycle_at(cycle.now)
    if (end := held.first_end) < inf:
        queue.cycle_at(cycle.now + end - cycle.wall)


def _made_anew(cycle: Cycle) -> dict[str, list[Task]]:
    """Return the pods that wait, by their controllers."""
    found: dict[str, list[Task]] = {}
    for queue in cycle.state.queues.values():
        for job in queue.waiters:
            for task in job.pending.values():
                found.setdefault(task.owner, []).append(task)
    return found


def _for(cycle: Cycle, hold: Hold, pod: Task | None, anew: Sequence[Task], taken: Container[str]) -> Task | None:
    """Return who is to have the place now: the pod itself, or, once that is gone or going, the youngest one of its controller
    that waits. ``taken``: uids of those that have another one."""
    if not hold.asked.controller:
        found: Sequence[Task] = [pod] if pod is not None and pod.status is Status.PENDING else []
    else:
        found = [] if pod is not None and pod.status not in _GOING else anew
    found = [task for task in found if task.uid not in taken and not task.gated and task.backoff.until <= cycle.now
             and task.job is not None and task.job.queue.present and task.job.queue.open]  # fmt: skip
    return max(found, key=lambda task: (task.created, task.uid), default=None)


def _placed(cycle: Cycle, job: Job, wanted: Sequence[tuple[Hold, Task]]) -> bool:
    """Place them all on the cards that are held for them; False, and nothing has changed, where that makes no whole gang."""
    held, statement = cycle.state.held_places, cycle.statement()
    lifted = []
    for hold, _ in wanted:
        lifted += [one for one in held.holds[hold.node] if not set(one.asked.cards).isdisjoint(hold.asked.cards)]
    receipts = [receipt for hold in dict.fromkeys(lifted) if (receipt := cycle.state.ledger.lift(hold.uid)) is not None]
    placed = all(_place(cycle, statement, hold, task) for hold, task in wanted)
    if placed and job.is_pending():
        cycle.framework.job_enqueued(job)
        job.reserve_minimum()
    placed = placed and cycle.framework.job_ready(job)
    if not placed:
        cycle.take_back(statement, [task for _, task in wanted])
    for receipt in reversed(receipts):
        cycle.state.ledger.undo(receipt)
    if placed:
        for hold, _ in wanted:
            held.end(hold)
        commit(cycle, job, statement)
    return placed


def _place(cycle: Cycle, statement: Statement, hold: Hold, task: Task) -> bool:
    assert task.job is not None
    if not affordable(cycle, statement)(task.job.queue, with_kept_for_others(task, task.cls.amounts)):
        return False
    trial = Trial(cycle, 1)
    for device_type, uuids in cycle.state.held_places.others(hold).items():
        trial.close(hold.node, device_type, uuids)
    choice = trial.place_of(task, hold.node)
    trial.back()
    if choice is None:
        return False
    statement.place(task, choice)
    return True
