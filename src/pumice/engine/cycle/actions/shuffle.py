"""shuffle: running pods that plugins name are told to go, whoever wants their room (spec volcano-core 10.6)."""

from __future__ import annotations

from pumice.engine.cycle.concluding import evict
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.room.committing import tell_groups
from pumice.engine.cycle.statement import Evict
from pumice.engine.state.tasks import Status


def shuffle(cycle: Cycle) -> None:
    if not cycle.framework.names_victims:
        return
    running = [task for task in cycle.state.tasks.values() if task.status is Status.RUNNING and task.job and not task.spared]
    named, statement = cycle.framework.victims(running), cycle.statement()
    for task in running:
        if task.uid in named:
            statement.evict(task, "shuffle")
    victims = [step for step in statement.steps if isinstance(step, Evict)]
    for step in victims:
        evict(cycle, step)
    tell_groups(cycle, [step.task for step in victims], "shuffle")
    if victims:
        cycle.measures.evictions["shuffle"] = len(victims)
