"""defrag: running pods are moved, one at a time, so that one that waits starts. Off unless the configuration names it.

A search is bounded by the time of a cycle and goes on at the next node when it is the job's turn again. Volcano has no such
action (its descheduler is a program of its own).
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.defragmenting.asking import gang_of, refusal_of
from pumice.scheduler.cycle.defragmenting.carrying import begin, go_on
from pumice.scheduler.cycle.defragmenting.movers import Movers
from pumice.scheduler.cycle.defragmenting.search import Search
from pumice.scheduler.cycle.defragmenting.trial import Trial
from pumice.scheduler.state.domains import bound_together, policies_of
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.moves import Terms
from pumice.scheduler.state.tasks import Status

LOOKS: Final = 4000
"""Looks for a place in one search, however much time there is."""
TRIED: Final = 12
"""Plans of one search that are gone through once more."""
GANG: Final = 64
"""Pods that start together at most: for a larger gang nobody is moved."""
COMPARED: Final = 256
"""Jobs of which the most urgent is asked about."""


def defrag(cycle: Cycle) -> None:
    moves = cycle.state.moves
    if moves.terms is None:
        return
    if moves.plan is None and cycle.now >= moves.due:
        _look(cycle, moves.terms)
    if moves.plan is not None:
        go_on(cycle)
    if moves.plan is None and moves.due > cycle.now:
        cycle.state.scheduling_queue.cycle_at(moves.due)


def _look(cycle: Cycle, terms: Terms) -> None:
    """Begin a plan for the most urgent job that has waited for long enough."""
    moves = cycle.state.moves
    moves.tidy()
    jobs, next_at = _waiting(cycle, terms)
    if jobs:
        job = min(jobs, key=lambda job: (cycle.framework.queue_order_key(job.queue), cycle.framework.job_order_key(job)))
        if not _begin(cycle, job, terms) and job not in moves.after:
            moves.rest(job, cycle.now)
        next_at = cycle.now + terms.interval
    moves.due = max(next_at, cycle.now)


def _waiting(cycle: Cycle, terms: Terms) -> tuple[list[Job], float]:
    """Jobs for which others may be moved now, and when the next one has waited for long enough; now, where none waits."""
    found: list[Job] = []
    next_at = cycle.now + (terms.interval if any(queue.waiters for queue in cycle.state.queues.values()) else 0.0)
    for queue in cycle.state.queues.values():
        if not (queue.present and queue.open):
            continue
        for job in queue.waiters:
            if not _may_ask(cycle, job):
                continue
            at = max(_ripe_at(cycle, job, terms), moves.until if (moves := cycle.state.moves.in_vain.get(job)) else 0.0)
            if at <= cycle.now:
                found.append(job)
                if len(found) >= COMPARED:
                    return found, cycle.now
            else:
                next_at = min(next_at, at)
    return found, next_at


def _ripe_at(cycle: Cycle, job: Job, terms: Terms) -> float:
    """Return when its oldest pod has waited for long enough."""
    oldest = min(task.created for task in job.pending.values())
    return cycle.now + oldest + terms.interval - cycle.wall


def _may_ask(cycle: Cycle, job: Job) -> bool:
    """Not for jobs that stand, that are bound to parts of the network, or for which somebody goes already."""
    state = cycle.state
    return not (
        (job.group is None and not job.implicit) or job.is_pending() or job.stalled or job.backoff.until > cycle.now
        or (job.ready_count and job.ready_count >= job.min_available and job.min_available > 1)
        or job.counts[Status.PIPELINED] or job in state.terminating.gang_searches or bound_together(job) or policies_of(job)
        or all(task.error is None or task.status is not Status.PENDING for task in job.pending.values())
    )  # fmt: skip


def _begin(cycle: Cycle, job: Job, terms: Terms) -> bool:
    """Search for a plan and begin the first one that leads there step by step."""
    moves, waiting = cycle.state.moves, gang_of(cycle, job)
    if refusal_of(cycle, job, waiting) or len(waiting) > GANG or any(_rare(task) for task in waiting):
        return False
    begun = cycle.tick()
    below = max(job.priority, *(task.priority for task in waiting))
    trial = Trial(cycle, LOOKS, lambda: cycle.past(begun, 0.5))
    search = Search(trial, Movers(cycle.state, cycle.wall, terms.min_age, below), waiting, after=moves.after.pop(job, ""))
    found = any(begin(cycle, job, plan) for plan in islice(search.plans(terms.most), TRIED) if plan.moves)
    trial.back()
    if not found:
        cycle.placer.reconsider(task.cls for task in waiting)
        if search.cut_short and search.last:
            moves.after[job] = search.last
    return found


def _rare(task: Task) -> bool:
    """A pod with claims of devices or volumes of its own: what is decided of them is not held from cycle to cycle."""
    return bool(task.cls.device_claims or task.cls.constraints.claims)
