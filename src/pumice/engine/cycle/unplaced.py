"""Pods that no node took: why, worked out beside the placing, and what follows from there being no hope."""

from __future__ import annotations

from pumice.engine.cycle.cycle import Cycle
from pumice.engine.placing.among import Among
from pumice.engine.state.jobs import Task
from pumice.engine.state.tasks import Status, by_nodes


def refused(cycle: Cycle, task: Task, *, amid_gang: bool = False, among: Among | None = None) -> None:
    """No node took the pod; why is worked out later, once per class (``explain``), or at once while the rest of its
    gang holds the room that it lacks, and where its queue or its job have a say in where it may go."""
    if amid_gang or among is not None:
        task.puzzling, task.error = False, by_nodes(cycle.placer.why(task.cls, among=among).text)
        _despair(cycle, task, cycle.placer.hopeless(task.cls))
        return
    cycle.state.scheduling_queue.ask_why(task)


def explain(cycle: Cycle) -> None:
    """Work out reasons while there is time; at least one class per cycle. The rest waits for the next cycle."""
    state, begin = cycle.state, cycle.tick()
    for cls in list(state.scheduling_queue.unexplained):
        tasks = state.scheduling_queue.take_unexplained(cls)
        pending = [t for t in tasks if t.puzzling and t.status is Status.PENDING and t.job is not None]
        if not pending:
            continue
        why = by_nodes(cycle.placer.why(cls).text)
        hopeless = cycle.placer.hopeless(cls)
        for task in pending:
            task.puzzling, task.error = False, why
            assert task.job is not None
            cycle.explained[task.job] = None
            _despair(cycle, task, hopeless)
        if cycle.tick() - begin > cycle.budget / 3:
            return


def _despair(cycle: Cycle, task: Task, hopeless: bool) -> None:
    """What no node can ever hold keeps nothing from others: neither a share of its queue nor its job's promise."""
    job = task.job
    if job is None or task.hopeless is hopeless:
        return
    job.mark(task, gated=task.gated, hopeless=hopeless)
    if hopeless:
        cycle.state.scheduling_queue.released()
        if job.stalled:
            cycle.state.scheduling_queue.end_inqueue(job)
