"""One scheduling cycle: open, the configured actions, close.

A cycle works on the live state: every tentative step is part of a statement and can be taken back. It makes no call and reads no
clock; what the world shall do comes out as effects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter

from pumice.effects.vocabulary import Event
from pumice.scheduler.cycle import reserving, sharding, status
from pumice.scheduler.cycle.cycle import RETRY, Cycle, Plan
from pumice.scheduler.cycle.defragmenting import held
from pumice.scheduler.cycle.defragmenting.carrying import hand_over
from pumice.scheduler.cycle.over_cycles import ACTION as ALLOCATE
from pumice.scheduler.cycle.preemption.nominating import redeem, withdraw_idle
from pumice.scheduler.cycle.queueing import admit, queues
from pumice.scheduler.cycle.statement import Nomination, Place, Step
from pumice.scheduler.cycle.trying import deallocate_of_gang, explain
from pumice.scheduler.state.domains import bound_together
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.scheduling_queue import NO_HINT, Attempt, Hint, QueueEvent
from pumice.scheduler.state.tasks import Gate, Status
from pumice.scheduler.state.waiting import never

# -- open: which jobs take part again, and which wait for a place in vain ----------------------------------------------


def activate(cycle: Cycle) -> None:
    """Activate all jobs that have a reason to be tried."""
    state = cycle.state
    _give_up(cycle)
    reserving.give_back(cycle)
    redeem(cycle)
    state.terminating.ask_again(cycle.now)
    state.scheduling_queue.open(cycle.now)
    if state.groups.repoliced:
        state.pods.sort_by_policies()
    if state.classes.workloads.stale:
        state.pods.sort_by_workloads()
    if state.classes.images.fresh:
        state.pods.sort_by_images()
    state.scheduling_queue.take_reserved()
    _offer_gains(cycle)
    _look_at_nodes_again(cycle)
    sharding.look_again(cycle)
    admit(cycle)
    hand_over(cycle)
    if state.held_places:
        held.hand_over(cycle)
    state.scheduling_queue.renew(state.ledger.table.version, cycle.now)


def _give_up(cycle: Cycle) -> None:
    """Gangs stand on what is being released. A pod that does not go would starve all behind them: after a while its place
    is given to nobody until it is gone, which it and who stood on it are told."""
    state = cycle.state
    for uid in state.ledger.take_overdue(cycle.now):
        if not state.ledger.give_up(uid):
            continue
        namespace, _, name = state.pods.name_of(uid).partition("/")
        node = state.ledger.placements[uid].node
        text = f"pod {namespace}/{name} on {node} is Terminating for too long; nobody waits for its place any more"
        cycle.effects.append(Event("Pod", "v1", namespace, name, uid, "Warning", "StuckTerminating", text))
        state.nominations.stays(uid)
        for job in state.scheduling_queue.reserved:
            if any(task.trial == (Status.PIPELINED, node) for task in job.pending.values()):
                cycle.effects.append(job.event("Warning", "StuckTerminating", text))


def _offer_gains(cycle: Cycle) -> None:
    """Offer what was released to the unschedulable classes, as far as the time allows; the others come next cycle."""
    scheduling_queue, placer, begin = cycle.state.scheduling_queue, cycle.placer, cycle.tick()
    scheduling_queue.offer_elsewhere(placer.lasting)
    scheduling_queue.offer(placer.news, placer.is_unschedulable, lambda: cycle.past(begin, 0.25))


def _look_at_nodes_again(cycle: Cycle) -> None:
    """Count the pods again as asking for a share that nodes, which changed, may hold after all."""
    changed = cycle.state.scheduling_queue.nodes_changed(cycle.state.ledger.table.version)
    for queue in queues(cycle):
        for job in queue.active if changed else queue.active.fresh:
            if job.runnable < len(job.pending):
                for task in job.pending.values():
                    if task.unresolvable and not cycle.placer.unresolvable(task.cls):
                        job.set_unresolvable(task, False)


# -- close: what was held on trial is let go, and each tried job goes to its state in the scheduling queue -------------


PREEMPTION_RETRY = 5.0
"""Seconds after which a job is tried again for which no room could be made."""


def rest(cycle: Cycle) -> None:
    """Take back what did not reach the world, and move each tried job to where its verdict leads."""
    for job in {step.task.job: None for step in _let_go(cycle) if step.task is not None}:
        if job is not None and job.known:
            job.recount()  # when it was counted last, those places counted as taken
    tried = {job: found for job, found in cycle.attempts.items() if found.tried}
    for job, found in tried.items():
        if job.known:
            deallocate_of_gang(cycle, job)
        verdict = _verdict(cycle, job, found) if job.known else None
        if verdict is not None:  # else the cycle is not finished with it: it stays active
            cycle.state.scheduling_queue.rest(job, *verdict)
    for search in cycle.state.terminating.gang_searches.values():
        if search.action == ALLOCATE:
            search.meanwhile.update(dict.fromkeys(tried))
    if any(found.pipelined for found in cycle.attempts.values()):
        # Others saw the held room as taken; who comes anew, and is more important, may have it.
        cycle.placer.reconsider(cycle.state.scheduling_queue.unschedulable_now)
    if not cycle.out_of_time():
        for queue in queues(cycle):
            for job in [job for job in queue.active if job not in tried and not cycle.attempt(job).postponed]:
                # No action of this configuration looks at it.
                cycle.state.scheduling_queue.rest(job, QueueEvent.UNPLACED, Hint(cycle.now + RETRY, released=True))


def _let_go(cycle: Cycle) -> list[Step]:
    """Take back what pipelined gangs hold and what was nominated for the cycle alone, and return it. Nothing of it reached the
    world, and no Binding may rest on it. Rows that a gang has left are offered to unschedulable jobs."""
    table, before = cycle.state.ledger.table, cycle.state.scheduling_queue.reserved
    back = [step for statement in reversed(cycle.uncommitted) for step in statement.rollback()]
    now = {job: frozenset[int]() for job, found in cycle.attempts.items() if found.pipelined}
    stands: defaultdict[Job, set[int]] = defaultdict(set)
    for step in back:
        if isinstance(step, Place | Nomination) and step.task.job is not None:
            stands[step.task.job].add(step.choice.row)
        if isinstance(step, Place) and step.task.job is not None:
            now[step.task.job] |= {step.choice.row}
    for job, rows in before.items():
        if job not in now and job.known and not cycle.attempt(job).tried and cycle.out_of_time():
            now[job] = rows
            continue
        for row in rows - stands[job]:
            table.touch(row, gain=True)
    cycle.state.scheduling_queue.reserve(now)
    return back


def _verdict(cycle: Cycle, job: Job, found: Attempt) -> tuple[QueueEvent, Hint] | None:
    """Return what follows for a job that was tried, and what may help it; None where the cycle is not finished with it."""
    if job.backoff.until > cycle.now:
        return QueueEvent.WRITE_REFUSED, Hint(job.backoff.until)
    pending = [t for t in job.pending.values() if not t.gated or t.gate is Gate.QUEUE]
    if found.invalid:
        return QueueEvent.INVALID, NO_HINT
    if not pending and not job.is_pending():
        return _nothing_to_try(job), NO_HINT
    cycle.state.scheduling_queue.bound_inqueue(job, cycle.now)
    possible = [t for t in pending if not never(t)]
    if pending and not possible:
        return QueueEvent.INVALID, NO_HINT
    classes = tuple(cls for cls in dict.fromkeys(t.cls for t in possible) if cycle.placer.is_unschedulable(cls))
    nowhere = all(t.cls in classes and not t.awaits_queue for t in possible)
    if found.postponed:
        return None
    reserved = job in cycle.state.scheduling_queue.reserved
    blocked = found.blocked and (job.is_pending() or not nowhere)  # where no node takes it, its queue is no matter yet
    if blocked or reserved or found.discarded:
        return QueueEvent.PART_PLACED if reserved else QueueEvent.UNPLACED, Hint(_again(cycle, job), released=True)
    if any(t.backoff.until > cycle.now for t in pending):
        return QueueEvent.WRITE_REFUSED, Hint(min(t.backoff.until for t in pending if t.backoff.until > cycle.now))
    if not possible:
        return _nothing_to_try(job), NO_HINT
    if nowhere:
        if cycle.preempts and not all(t.unresolvable for t in possible):  # who may go changes without anything being released
            return QueueEvent.UNPLACED, Hint(cycle.now + PREEMPTION_RETRY, released=True, classes=classes)
        return QueueEvent.UNPLACED, Hint(classes=classes)
    if cycle.out_of_time() and not found.finished:
        return None
    return QueueEvent.UNPLACED, Hint(_again(cycle, job), released=True)


def _nothing_to_try(job: Job) -> QueueEvent:
    """Return what follows for a job all of whose pods are gated, nominated or placed."""
    if job.pending:
        return QueueEvent.INVALID
    return QueueEvent.NOMINATED if job.counts[Status.PIPELINED] else QueueEvent.NOTHING_LEFT


def _again(cycle: Cycle, job: Job) -> float:
    """Return when to try a job again although nothing was released."""
    may_preempt = cycle.preempts and (not cycle.attempt(job).blocked or bound_together(job))
    return min(cycle.now + (PREEMPTION_RETRY if may_preempt else RETRY), cycle.framework.job_due(job, cycle.now))


# -- the cycle ---------------------------------------------------------------------------------------------------------


def run(cycle: Cycle, actions: list[tuple[str, Callable[[Cycle], None]]]) -> Plan:
    cycle.actions = frozenset(name for name, _ in actions)
    cycle.started = begin = cycle.tick()
    cycle.placer.evaluation.claims.begin(cycle.tick, cycle.heard)
    cycle.placer.evaluation.tick, cycle.placer.evaluation.stages = cycle.tick, cycle.measures.stages
    _open(cycle)
    cycle.measures.open = cycle.tick() - begin
    for name, action in actions:
        before = cycle.tick()
        action(cycle)
        cycle.measures.actions[name] = cycle.measures.actions.get(name, 0.0) + cycle.tick() - before
    _close(cycle)
    cycle.measures.total = cycle.tick() - begin
    return Plan(cycle.effects, cycle.measures, cycle.out_of_time())


def _open(cycle: Cycle) -> None:
    activate(cycle)
    for job in cycle.state.scheduling_queue.dirty:
        job.recount()
    cycle.measures.plugins = cycle.framework.idle_times.copy()
    for plugin in cycle.framework.opening:
        before = cycle.tick()
        plugin.open(cycle)
        cycle.measures.plugins[plugin.name, "OnSessionOpen"] = cycle.tick() - before


def _close(cycle: Cycle) -> None:
    withdraw_idle(cycle)
    reserving.reserve(cycle)
    explain(cycle)
    for plugin in cycle.framework.closing:
        before = cycle.tick()
        plugin.close(cycle)
        cycle.measures.plugins[plugin.name, "OnSessionClose"] = cycle.tick() - before
    cycle.effects.extend(status.close(cycle))
    rest(cycle)
    cycle.state.scheduling_queue.close()
    cycle.placer.evaluation.claims.end()
    cycle.placer.evaluation.tick = perf_counter  # the cycle's own clock goes with it, and into no snapshot
