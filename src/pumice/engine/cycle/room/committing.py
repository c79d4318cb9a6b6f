"""A trial that is carried out: who goes is told to the world, who waits for it keeps its place beyond the cycle."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.engine import effects
from pumice.engine.cycle.concluding import evict
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.room.making import Trial
from pumice.engine.cycle.statement import Evict, Place, Promise, Statement
from pumice.engine.state.jobs import Job, Task
from pumice.engine.state.statuses import Status
from pumice.wire.volcano import SCHEDULING_API


def carry_out(cycle: Cycle, job: Job, trial: Trial, action: str) -> None:
    statement = trial.statement
    victims = [step for step in statement.steps if isinstance(step, Evict)]
    for step in victims:
        evict(cycle, step)
    tell_groups(cycle, [step.task for step in victims], action)
    gone = {step.task.uid: step.task.node for step in victims}
    for claimant, choice in _kept(cycle, statement):
        awaits = {uid for uid, node in gone.items() if node == choice} | cycle.state.ledger.going(choice)
        cycle.state.promises.keep(claimant, awaits)
        claimant.trial, claimant.puzzling = (Status.PIPELINED, choice), False
        cycle.effects.append(effects.Nominate(claimant.uid, claimant.namespace, claimant.name, choice))
    job.refusal = None
    cycle.measures.evictions[action] = cycle.measures.evictions.get(action, 0) + len(victims)
    cycle.state.agenda.look_at(job)
    statement.steps.clear()


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

