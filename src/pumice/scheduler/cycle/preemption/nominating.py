"""Nominations: a preemption that is carried out, and at the beginning of a cycle the places of those whose victims are gone."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.effects import vocabulary as effects
from pumice.scheduler.cycle.concluding import commit, expect
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.over_cycles import ACTION as ALLOCATE
from pumice.scheduler.cycle.preemption.evaluator import Trial
from pumice.scheduler.cycle.queueing import agreed, depends_on_evictions, with_kept_for_others
from pumice.scheduler.cycle.statement import Evict, Nomination, Place, Statement
from pumice.scheduler.state.domains import bound_together
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.nominations import Search
from pumice.scheduler.state.tasks import Status

# -- evictions and nominations of a trial that is carried out, or held until its search ends ---------------------------


def carry_out(cycle: Cycle, job: Job, trial: Trial, action: str) -> None:
    """Tell everybody of it, with what earlier cycles found."""
    found = hold(cycle, job, trial)
    terminating, nominations = cycle.state.terminating, cycle.state.nominations
    del terminating.gang_searches[job]
    victims = [eviction.task for eviction in map(terminating.eviction, found.leaving) if eviction is not None]
    for task in victims:
        cycle.effects.append(effects.Evict(task.uid, task.namespace, task.name, action))
    record_evictions(cycle, victims, action)
    for preemptor in [nominations.kept[uid].task for uid in found.preemptors if uid in nominations.kept]:
        cycle.effects.append(effects.Nominate(preemptor.uid, preemptor.namespace, preemptor.name, preemptor.node))
    nominations.ripe[job] = None
    job.refusal = None
    cycle.measures.evictions[action] = cycle.measures.evictions.get(action, 0) + len(victims)


def hold(cycle: Cycle, job: Job, trial: Trial) -> Search:
    """Keep in the ledger what a trial has found, until the search for all of the job's pods is at its end."""
    statement, state = trial.statement, cycle.state
    found = state.terminating.gang_searches.setdefault(job, Search())
    gone: dict[str, set[str]] = {}
    for step in statement.steps:
        if isinstance(step, Evict):
            expect(cycle, step)
            found.leaving[step.task.uid] = step.task.node
            gone.setdefault(step.task.node, set()).add(step.task.uid)
    for preemptor, choice in _kept(cycle, statement):
        state.nominations.keep(preemptor, gone.get(choice, set()) | state.ledger.going(choice))
        found.preemptors.append(preemptor.uid)
        preemptor.trial, preemptor.unexplained = (Status.PIPELINED, choice), False
    state.scheduling_queue.write_status(job)
    statement.steps.clear()
    return found


def withdraw_broken(cycle: Cycle) -> None:
    """Give up searches of which a part is lost: a preemptor has gone, or the node that it was promised."""
    terminating, kept = cycle.state.terminating, cycle.state.nominations.kept
    for job, found in list(terminating.gang_searches.items()):
        if not job.known or any(uid not in kept for uid in found.preemptors):
            terminating.withdraw(job)
            # nobody was told of those
            lapsed = [task for task in cycle.state.nominations.lapsed if task.uid not in found.preemptors]
            cycle.state.nominations.lapsed = lapsed


def withdraw_idle(cycle: Cycle) -> None:
    """Give up searches that nobody goes on with: the job wants no room any more, or is not looked at."""
    for job, found in list(cycle.state.terminating.gang_searches.items()):
        attempt = cycle.attempt(job)
        if not attempt.postponed and (attempt.tried or not cycle.out_of_time()):
            cycle.state.terminating.withdraw(job)
            if found.action == ALLOCATE:  # it is tried as any other
                cycle.attempts[job].postponed = True


def record_evictions(cycle: Cycle, victims: Iterable[Task], reason: str) -> None:
    """Record an Event on the PodGroup of each victim, as Volcano does."""
    for job in dict.fromkeys(task.job for task in victims):
        if job is not None and job.group is not None:
            cycle.effects.append(job.event("Normal", "Evict", reason))


def _kept(cycle: Cycle, statement: Statement) -> list[tuple[Task, str]]:
    """Every place of the trial as a nomination: what is idle is nominated too, until the whole gang can be bound."""
    found = []
    for step in list(statement.steps):
        if isinstance(step, Place):
            statement.take_back(step)
            statement.nominate(step.task, step.choice)
        if isinstance(step, Place | Nomination):
            found.append((step.task, step.choice.node))
    return found


# -- nominated places that are free now are taken before any other job sees them ---------------------------------------


def redeem(cycle: Cycle) -> None:
    nominations = cycle.state.nominations
    withdraw_broken(cycle)
    elsewhere = _free_elsewhere(cycle)
    while nominations.ripe:
        job = next(iter(nominations.ripe))
        del nominations.ripe[job]
        if job.known and job not in cycle.state.terminating.gang_searches:
            with cycle.placer.evaluation.claims.without_time_limit():  # in the next cycle others could take the devices
                _redeem(cycle, job, elsewhere)
    clear_lapsed(cycle)


def _free_elsewhere(cycle: Cycle) -> frozenset[str]:
    """Uids of pods that need not wait for those who go: something has come free, or come anew, that takes them now. One of a job
    at a time, and of a gang that is not whole only the last: the others would have nothing to go back to."""
    nominations, news = cycle.state.nominations, cycle.placer.news
    if not nominations.kept or nominations.seen == news:
        return frozenset()
    nominations.seen = news
    found: dict[Job, Task] = {}
    for kept in nominations.kept.values():
        job = kept.task.job
        if job is None or job in found or not kept.awaits or job.ready_count + 1 < job.min_available or bound_together(job):
            continue
        if job in cycle.state.terminating.gang_searches or depends_on_evictions(cycle, job.queue):
            continue
        if cycle.placer.choose(kept.task.cls, among=cycle.among(kept.task), accept=agreed(cycle, kept.task)) is not None:
            found[job] = kept.task
    nominations.ripe.update(dict.fromkeys(found))
    return frozenset(task.uid for task in found.values())


def clear_lapsed(cycle: Cycle) -> None:
    """Pods that were nominated in vain are nominated no longer."""
    nominations = cycle.state.nominations
    lapsed, nominations.lapsed = nominations.lapsed, []
    for task in dict.fromkeys(lapsed):
        if task.status is Status.PENDING:
            task.nominated = ""  # the watch may have shown our own word since
            cycle.effects.append(effects.Nominate(task.uid, task.namespace, task.name, ""))


def _redeem(cycle: Cycle, job: Job, elsewhere: frozenset[str]) -> None:
    """Bind those of its pods whose places are free, where that makes it whole. Once nobody is awaited any more and it is not, it
    waits like any other."""
    nominations, framework = cycle.state.nominations, cycle.framework
    kept = [nominations.kept[uid] for uid in job.tasks if uid in nominations.kept]
    free = [found.task for found in kept if not found.awaits or found.task.uid in elsewhere]
    if not free or (len(free) < len(kept) and job.ready_count + len(free) < job.min_available):
        return
    free.sort(key=framework.task_order_key)
    if depends_on_evictions(cycle, job.queue):
        nominations.on_trust[job] = None
        return
    nodes = {task.uid: task.node for task in free}
    for task in free:
        nominations.take_back(task)
    statement = cycle.statement()
    missed: list[Task] = []
    for task in free:
        among, accept = cycle.among(task), agreed(cycle, task)
        # who was to go from elsewhere may have stayed
        pays = framework.may_borrow(job.queue, with_kept_for_others(task, task.cls.amounts))
        choice = cycle.placer.choose(task.cls, nodes[task.uid], accept, among) if pays else None
        if choice is None and pays and not bound_together(job):
            choice = cycle.placer.choose(task.cls, accept=accept, among=among)
        if choice is None:
            missed.append(task)
        else:
            statement.place(task, choice)
    if statement.steps and framework.job_ready(job):
        commit(cycle, job, statement)
    else:
        statement.rollback()
        missed = free
    for task in missed:
        nominations.lapsed.append(task)
    if missed:
        for found in kept:
            if found.task.uid in nominations.kept and not framework.job_ready(job):
                nominations.lapse(found.task)
