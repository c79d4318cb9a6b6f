"""A plan of moves, carried out by the scheduler itself: one eviction at a time, dropped where the world is not what it was.

Whoever shall start is nominated for its place, which others cannot take while it waits for those who are moved. The places of
these are held in the ledger (``state.moves``); a pod that is made anew is given the held one before anybody else is placed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pumice.effects import vocabulary as effects
from pumice.scheduler.cycle.concluding import commit, evict
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.defragmenting.movers import Mover, mover
from pumice.scheduler.cycle.defragmenting.search import Plan
from pumice.scheduler.cycle.defragmenting.trial import Trial, cards_in
from pumice.scheduler.cycle.preemption.nominating import record_evictions
from pumice.scheduler.cycle.queueing import affordable, queue_shortage, queues, with_kept_for_others
from pumice.scheduler.cycle.statement import Evict
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.ledger import Placement, closed_to_others
from pumice.scheduler.state.moves import ACTION, Moving, Step
from pumice.scheduler.state.tasks import ALLOCATED_STATUSES, READY_STATUSES, Status

PATIENCE: Final = 300.0
"""Seconds that a pod which was told to go is given until the one that is made anew runs."""
LOOKS: Final = 256
"""Looks for a place while a plan is gone through once more."""

# -- a plan begins -----------------------------------------------------------------------------------------------------


def begin(cycle: Cycle, job: Job, plan: Plan) -> bool:
    """Hold everything that the plan needs, where it leads there step by step with all moved pods placed again. False: it does
    not."""
    steps = tuple(
        Step(
            move.mover.task.uid, move.mover.task.key, move.mover.task.owner, move.node, move.held, move.mover.task.request,
            move.to.node, move.to.allocations,
        )
        for move in plan.moves
    )
    if not all(step.owner for step in steps) or _on_trial(cycle, steps, plan.starts):
        return False
    _nominate(cycle, job, plan.starts, steps)
    cycle.state.moves.begin(Moving(job, {task.uid: choice.node for task, choice in plan.starts}, steps))
    first = plan.starts[0][0]
    ways = ", ".join(f"{step.key} from {step.node} to {step.target}" for step in steps)
    _say(cycle, first, "Normal", "MovesBegun", f"so that it starts on {plan.starts[0][1].node}, moved one by one: {ways}")
    return True


def _on_trial(cycle: Cycle, steps: Sequence[Step], starts: Sequence[tuple[Task, Choice]]) -> str:
    """As ``_rest``, with everything held on trial alone."""
    trial = Trial(cycle, LOOKS)
    reserve = cycle.state.ledger.reserve
    receipts = [reserve(_held(task.uid, task, choice)) for task, choice in starts]
    receipts += [reserve(step.place) for step in steps]
    why = _rest(trial, steps, [(task, choice.node) for task, choice in starts])
    for receipt in reversed(receipts):
        cycle.state.ledger.undo(receipt)
    cycle.placer.reconsider(task.cls for task, _ in starts)
    return why


def _held(uid: str, task: Task, choice: Choice) -> Placement:
    closed = tuple(map(closed_to_others, choice.allocations))
    return Placement(uid, choice.node, task.request, closed, marks=task.marks, features=task.features)


def _rest(trial: Trial, steps: Sequence[Step], starts: Sequence[tuple[Task, str]]) -> str:
    """Go through what is left to be done, in the ledger as it is, with all that is held: each pod that is moved gets its
    place, and then whoever shall start has one. Returns why not."""
    tasks, ledger = trial.cycle.state.tasks, trial.cycle.state.ledger
    lifted = []
    why = ""
    for step in steps:
        trial.lift([tasks[step.uid]])
        lifted.append(ledger.lift(step.hold))
        choice = trial.with_cards(tasks[step.uid], step.target, step.allocations)
        if choice is None:
            why = f"{step.key} would not get its place on {step.target}"
            break
        trial.place(tasks[step.uid], choice)
    for task, node in () if why else starts:
        if ledger.placements[task.uid].node != node:
            continue
        trial.lift([task])
        choice = trial.place_of(task, node)
        if choice is None:
            why = f"{task.key} would not get its place on {node}"
            break
        trial.place(task, choice)
    trial.back()
    for receipt in reversed(lifted):
        if receipt is not None:
            ledger.undo(receipt)
    return why


def _nominate(cycle: Cycle, job: Job, starts: Sequence[tuple[Task, Choice]], steps: Sequence[Step]) -> None:
    """Promise those that shall start their places, for which they await the pods there that are moved."""
    state, statement = cycle.state, cycle.statement()
    for task, choice in starts:
        statement.nominate(task, choice)
        awaits = {step.uid for step in steps if step.node == choice.node} | state.ledger.going(choice.node)
        state.nominations.keep(task, awaits)
        task.trial, task.unexplained = (Status.PIPELINED, choice.node), False
        cycle.effects.append(effects.Nominate(task.uid, task.namespace, task.name, choice.node))
    job.refusal = None
    state.scheduling_queue.write_status(job)


# -- a cycle begins: the place that is held goes to the pod that is made anew ------------------------------------------


def hand_over(cycle: Cycle) -> None:
    """Give the pod that was made anew its place before any other is tried; or drop the plan, where the world has overtaken it."""
    moves = cycle.state.moves
    plan = moves.plan
    if plan is None:
        return
    if why := _overtaken(cycle, plan):
        plan = drop(cycle, why)
    elif why := _no_start(cycle, plan):
        plan = drop(cycle, why, hold_on=True)
    if plan is None:
        return
    step = plan.step
    if step is None or plan.told is None or plan.again:
        return
    task = _made_anew(cycle, step, plan.seen)
    if task is None:
        return
    assert task.job is not None
    statement, amounts = cycle.statement(), with_kept_for_others(task, task.cls.amounts)
    if not cycle.framework.allocatable(task.job.queue, amounts):
        drop(cycle, f"{task.key} does not get its place again: {queue_shortage(cycle, task, amounts)}")
        return
    if not affordable(cycle, statement)(task.job.queue, amounts):
        return  # nobody has said yet that the one before is really going
    cycle.state.ledger.release(step.hold)
    choice = Trial(cycle, LOOKS).with_cards(task, step.target, step.allocations)
    if choice is None:
        drop(cycle, f"{task.key} would not get the place on {step.target} that was held for it")
        return
    if task.job.is_pending():
        cycle.framework.job_enqueued(task.job)
        task.job.reserve_minimum()
    statement.place(task, choice)
    if not cycle.framework.job_ready(task.job):
        statement.rollback()
        drop(cycle, f"the gang of {task.key} is not whole any more")
        return
    commit(cycle, task.job, statement)
    plan.again = task.uid


def _no_start(cycle: Cycle, plan: Moving) -> str:
    """Return why moving more pods helps those no more that were to start; empty where it does, or where all of them have
    places."""
    state = cycle.state
    tasks = {uid: state.tasks.get(uid) for uid in plan.starts}
    if all(task is not None and task.status in READY_STATUSES for task in tasks.values()):
        return ""
    for uid, task in tasks.items():
        if task is None:
            return "a pod that it is for is gone"
        if task.status not in READY_STATUSES and uid not in state.nominations.kept:
            return f"{task.key} is not promised its place on {plan.starts[uid]} any more"
        if task.node != plan.starts[uid]:
            return f"{task.key} has a place on {task.node}"
    return ""


def _overtaken(cycle: Cycle, plan: Moving) -> str:
    """Return why the pods that are moved do not get their places; empty where they may."""
    state = cycle.state
    gone = next((step.target for step in plan.steps[plan.done :] if step.target not in state.ledger.table.row_of), None)
    if gone is not None:
        return f"node {gone} is gone"
    step = plan.step
    if step is None or plan.told is None:
        return ""
    old = state.tasks.get(step.uid)
    if old is not None and old.status is Status.RUNNING:
        return f"the eviction of {step.key} was refused"
    if plan.again and (new := state.tasks.get(plan.again)) is not None and new.status is Status.PENDING:
        return f"{new.key} could not be bound to {step.target}"
    if cycle.now - plan.told > PATIENCE:
        return f"{step.key} was evicted, and does not run again after {PATIENCE:.0f} s"
    return ""


def _made_anew(cycle: Cycle, step: Step, seen: Collection[str]) -> Task | None:
    """Return a pod of the same controller that was not there when the other was told to go, and that may be tried now."""
    found = (
        task
        for queue in queues(cycle) if queue.present and queue.open
        for job in queue.active
        for task in job.pending.values()
        if step.owns(task) and task.uid not in seen and not task.gated and task.backoff.until <= cycle.now
    )  # fmt: skip
    return next(found, None)


def _siblings(cycle: Cycle, step: Step) -> frozenset[str]:
    """Uids of the pods of the same controller that wait for another place."""
    waiting = (task for queue in cycle.state.queues.values() for job in queue.waiters for task in job.pending.values())
    return frozenset(task.uid for task in waiting if step.owns(task))


# -- the actions run: the next pod is told to go -----------------------------------------------------------------------


def go_on(cycle: Cycle) -> None:
    """Tell the next pod to go, once the one before runs again, after a look at the rest; or end the plan."""
    moves = cycle.state.moves
    plan, terms = moves.plan, moves.terms
    assert plan is not None
    assert terms is not None
    if plan.told is not None and plan.again:
        new = cycle.state.tasks.get(plan.again)
        if new is None:
            drop(cycle, "a pod that was moved is gone")
            return
        if new.status in (Status.RUNNING, Status.SUCCEEDED):
            plan.done, plan.told, plan.again = plan.done + 1, None, ""
    if plan.told is not None:
        cycle.state.scheduling_queue.cycle_at(plan.told + PATIENCE + 1)
        return
    step, waiting = plan.step, [uid for uid in plan.starts if uid in cycle.state.nominations.kept]
    if step is None or not waiting:
        _finish(cycle, plan)
        return
    if plan.done and cycle.now < plan.last + terms.interval:
        cycle.state.scheduling_queue.cycle_at(plan.last + terms.interval)
        return
    why = _changed(cycle, plan, terms.min_age)
    if why:
        drop(cycle, why)
        return
    task, statement = cycle.state.tasks[step.uid], cycle.statement()
    if not statement.evict(task, ACTION):
        drop(cycle, f"{step.key} cannot be told to go")
        return
    for told in statement.steps:
        assert isinstance(told, Evict)
        evict(cycle, told, gently=True)
    record_evictions(cycle, [task], ACTION)
    cycle.measures.evictions[ACTION] = cycle.measures.evictions.get(ACTION, 0) + 1
    plan.told = plan.last = cycle.now
    plan.seen = _siblings(cycle, step)
    cycle.state.scheduling_queue.cycle_at(plan.told + PATIENCE + 1)


def _changed(cycle: Cycle, plan: Moving, min_age: float) -> str:
    """Return why the rest does not lead there any more; empty: it does. What it is asked of is the ledger as it is now."""
    state = cycle.state
    starting = [state.tasks[uid] for uid in plan.starts]
    below = max(max(task.priority, plan.job.priority) for task in starting)
    for step in plan.steps[plan.done :]:
        task = state.tasks.get(step.uid)
        if task is None or task.node != step.node:
            return f"{step.key} is not where the plan saw it"
        found = mover(state, task, cycle.wall, min_age, below)
        if not isinstance(found, Mover):
            return f"{step.key} is moved no more: {found}"
        if cards_in(found.held) != cards_in(step.held):
            return f"{step.key} has other cards than the plan saw"
    waiting = [(task, plan.starts[task.uid]) for task in starting if task.status not in ALLOCATED_STATUSES]
    why = _rest(Trial(cycle, LOOKS), plan.steps[plan.done :], waiting)
    cycle.placer.reconsider(task.cls for task in _pending(starting))
    return why


def _pending(tasks: Iterable[Task]) -> list[Task]:
    return [task for task in tasks if task.status is not Status.RUNNING]


# -- a plan ends -------------------------------------------------------------------------------------------------------


def _finish(cycle: Cycle, plan: Moving) -> None:
    waiting = [uid for uid in plan.starts if uid in cycle.state.nominations.kept]
    if waiting and cycle.now - plan.last <= PATIENCE:  # who was to go may be terminating still
        cycle.state.scheduling_queue.cycle_at(plan.last + PATIENCE + 1)
        return
    if waiting:
        drop(cycle, f"it does not start {PATIENCE:.0f} s after the last move")
        return
    cycle.state.moves.end(cycle.now, stopped=False)
    cycle.state.moves.in_vain.pop(plan.job, None)


def drop(cycle: Cycle, why: str, *, hold_on: bool = False) -> Moving | None:
    """Give back what is held, and say so on the pod that was to start. Who was moved stays where it is. ``hold_on``: to the
    place of the pod that was told to go, until the one that is made anew has it; what is left of the plan is returned."""
    plan = cycle.state.moves.plan
    assert plan is not None
    cycle.state.moves.end(cycle.now)
    if hold_on and plan.told is not None and not plan.again:
        cycle.state.moves.begin(plan.rest)
    about = next((task for uid in plan.starts if (task := cycle.state.tasks.get(uid)) is not None), None)
    if about is not None:
        done = plan.done + bool(plan.again)
        _say(cycle, about, "Warning", "MovesStopped", f"{why}; {done} of {len(plan.steps)} moves were carried out")
    return cycle.state.moves.plan


def _say(cycle: Cycle, task: Task, severity: effects.Severity, reason: str, text: str) -> None:
    cycle.effects.append(effects.Event("Pod", "v1", task.namespace, task.name, task.uid, severity, reason, text))
