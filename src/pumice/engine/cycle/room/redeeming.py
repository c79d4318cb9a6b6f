"""Promises at the beginning of a cycle: where those who held the place are gone, it is taken before anybody else sees it."""

from __future__ import annotations

from pumice.effects import vocabulary as effects
from pumice.engine.cycle.concluding import commit
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.letting_in import beside_others
from pumice.engine.cycle.price import agreed
from pumice.engine.cycle.room.committing import withdraw_broken
from pumice.engine.cycle.trust import rests_on_trust
from pumice.engine.state.domains import bound_together
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.tasks import Status


def redeem(cycle: Cycle) -> None:
    promises = cycle.state.promises
    withdraw_broken(cycle)
    elsewhere = _free_elsewhere(cycle)
    while promises.ripe:
        job = next(iter(promises.ripe))
        del promises.ripe[job]
        if job.known and job not in cycle.state.departures.untold:
            _redeem(cycle, job, elsewhere)
    tell_lapsed(cycle)


def _free_elsewhere(cycle: Cycle) -> frozenset[str]:
    """Uids of pods that need not wait for those who go: something has come free, or come anew, that takes them now. One of a job
    at a time, and of a gang that is not whole only the last: the others would have nothing to go back to."""
    promises, news = cycle.state.promises, cycle.placer.news
    if not promises.kept or promises.seen == news:
        return frozenset()
    promises.seen = news
    found: dict[Job, Task] = {}
    for kept in promises.kept.values():
        job = kept.task.job
        if job is None or job in found or not kept.awaits or job.ready_count + 1 < job.min_available or bound_together(job):
            continue
        if job in cycle.state.departures.untold or rests_on_trust(cycle, job.queue):
            continue
        if cycle.placer.choose(kept.task.cls, among=cycle.among(kept.task), accept=agreed(cycle, kept.task)) is not None:
            found[job] = kept.task
    promises.ripe.update(dict.fromkeys(found))
    return frozenset(task.uid for task in found.values())


def tell_lapsed(cycle: Cycle) -> None:
    """Pods that were promised a place in vain are nominated for it no longer."""
    promises = cycle.state.promises
    lapsed, promises.lapsed = promises.lapsed, []
    for task in dict.fromkeys(lapsed):
        if task.status is Status.PENDING and not task.nominated:
            cycle.effects.append(effects.Nominate(task.uid, task.namespace, task.name, ""))


def _redeem(cycle: Cycle, job: Job, elsewhere: frozenset[str]) -> None:
    """Bind those of its pods whose places are free, where that makes it whole. Once nobody is awaited any more and it is not, it
    waits like any other."""
    promises, framework = cycle.state.promises, cycle.framework
    kept = [promises.kept[uid] for uid in job.tasks if uid in promises.kept]
    free = [found.task for found in kept if not found.awaits or found.task.uid in elsewhere]
    if not free or (len(free) < len(kept) and job.ready_count + len(free) < job.min_available):
        return
    free.sort(key=framework.task_key)
    if rests_on_trust(cycle, job.queue):
        promises.on_trust[job] = None
        return
    nodes = {task.uid: task.node for task in free}
    for task in free:
        promises.take_back(task)
    statement = cycle.statement()
    missed: list[Task] = []
    for task in free:
        among, accept = cycle.among(task), agreed(cycle, task)
        pays = framework.lends(job.queue, beside_others(task, task.cls.amounts))  # who was to go from elsewhere may have stayed
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
        promises.lapsed.append(task)
    if missed:
        for found in kept:
            if found.task.uid in promises.kept and not framework.job_ready(job):
                promises.lapse(found.task)
