"""A trial that is carried out: who goes is told to the world, who waits for it keeps its place beyond the cycle."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.effects import vocabulary as effects
from pumice.engine.cycle.concluding import expect
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.over_cycles import ACTION as ALLOCATE
from pumice.engine.cycle.room.making import Trial
from pumice.engine.cycle.statement import Evict, Place, Promise, Statement
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.nominations import Search
from pumice.engine.state.tasks import Status
from pumice.wire.volcano import SCHEDULING_API


def carry_out(cycle: Cycle, job: Job, trial: Trial, action: str) -> None:
    """Tell everybody of it, with what earlier cycles found."""
    found = hold(cycle, job, trial)
    departures, promises = cycle.state.departures, cycle.state.promises
    del departures.untold[job]
    victims = [eviction.task for eviction in map(departures.told, found.leaving) if eviction is not None]
    for task in victims:
        cycle.effects.append(effects.Evict(task.uid, task.namespace, task.name, action))
    tell_groups(cycle, victims, action)
    for claimant in [promises.kept[uid].task for uid in found.claimants if uid in promises.kept]:
        cycle.effects.append(effects.Nominate(claimant.uid, claimant.namespace, claimant.name, claimant.node))
    promises.ripe[job] = None
    job.refusal = None
    cycle.measures.evictions[action] = cycle.measures.evictions.get(action, 0) + len(victims)


def hold(cycle: Cycle, job: Job, trial: Trial) -> Search:
    """Keep on the books what a trial has found, until the search for all of the job's pods is at its end."""
    statement, state = trial.statement, cycle.state
    found = state.departures.untold.setdefault(job, Search())
    gone: dict[str, set[str]] = {}
    for step in statement.steps:
        if isinstance(step, Evict):
            expect(cycle, step)
            found.leaving[step.task.uid] = step.task.node
            gone.setdefault(step.task.node, set()).add(step.task.uid)
    for claimant, choice in _kept(cycle, statement):
        state.promises.keep(claimant, gone.get(choice, set()) | state.ledger.going(choice))
        found.claimants.append(claimant.uid)
        claimant.trial, claimant.puzzling = (Status.PIPELINED, choice), False
    state.scheduling_queue.write_status(job)
    statement.steps.clear()
    return found


def withdraw_broken(cycle: Cycle) -> None:
    """Give up searches of which a part is lost: a claimant has gone, or the node that it was promised."""
    departures, kept = cycle.state.departures, cycle.state.promises.kept
    for job, found in list(departures.untold.items()):
        if not job.known or any(uid not in kept for uid in found.claimants):
            departures.withdraw(job)
            lapsed = [task for task in cycle.state.promises.lapsed if task.uid not in found.claimants]  # nobody was told of those
            cycle.state.promises.lapsed = lapsed


def withdraw_idle(cycle: Cycle) -> None:
    """Give up searches that nobody goes on with: the job wants no room any more, or is not looked at."""
    for job, found in list(cycle.state.departures.untold.items()):
        if job not in cycle.postponed and (job in cycle.tried or not cycle.out_of_time()):
            cycle.state.departures.withdraw(job)
            if found.action == ALLOCATE:  # it is tried as any other
                cycle.postponed[job] = None


def tell_groups(cycle: Cycle, victims: Iterable[Task], reason: str) -> None:
    """Spec 12.2: the PodGroups of those who go hear of it, too."""
    for job in dict.fromkeys(task.job for task in victims):
        if job is not None and job.group is not None:
            about = ("PodGroup", SCHEDULING_API, job.namespace, job.name, job.uid)
            cycle.effects.append(effects.Event(*about, "Normal", "Evict", reason))


def _kept(cycle: Cycle, statement: Statement) -> list[tuple[Task, str]]:
    """Every place of the trial as a promise: what is idle is promised too, until the whole gang can be bound."""
    found = []
    for step in list(statement.steps):
        if isinstance(step, Place):
            statement.take_back(step)
            statement.promise(step.task, step.choice)
        if isinstance(step, Place | Promise):
            found.append((step.task, step.choice.node))
    return found

