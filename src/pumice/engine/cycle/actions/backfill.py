"""backfill: pods that request nothing are placed where any room is (spec volcano-core 10.3)."""

from __future__ import annotations

from pumice.engine.cycle.concluding import commit, discard
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.domains import reach
from pumice.engine.cycle.over_cycles import begun
from pumice.engine.cycle.queueing import candidates, queues
from pumice.engine.cycle.unplaced import refused
from pumice.engine.placing.among import Among
from pumice.engine.placing.evaluation import Choice
from pumice.engine.state.jobs import Job, Status, Task


def backfill(cycle: Cycle) -> None:
    framework = cycle.framework
    found: list[tuple[Job, list[Task]]] = []
    for queue in sorted(queues(cycle), key=framework.queue_key):
        if not (queue.open and queue.best_effort):
            continue
        jobs = [
            job for job in candidates(queue)
            if job.pending_best_effort and not job.is_pending() and job not in cycle.standing and framework.job_valid(job) is None
            and begun(cycle, job) is None
        ]  # fmt: skip
        for job in sorted(jobs, key=framework.job_key):
            tasks = [
                t for t in job.pending.values() if t.best_effort and not t.gated and t.backoff.until <= cycle.now
            ]
            if tasks:
                found.append((job, sorted(tasks, key=framework.task_key)))
    for number, (job, tasks) in enumerate(found):
        if cycle.out_of_time():
            for late, _ in found[number:]:
                cycle.postpone(late)
            return
        cycle.tried[job] = None
        statement = cycle.statement()
        for task in tasks:
            task.trial = None
            among = cycle.among(task)
            choice = _choose(cycle, job, task, among)
            if choice is None:
                refused(cycle, task, amid_gang=bool(statement.steps), among=among)
                continue
            statement.place(task, choice)
        if framework.job_ready(job) and job.counts[Status.ALLOCATED]:
            commit(cycle, job, statement)
            if job in cycle.discarded:  # with these it stands: the others, which failed as a gang, may come one by one
                cycle.postponed[job] = None
        elif statement.steps:  # else nothing was taken back for which it could wait: it sleeps until a node may take it
            discard(cycle, job, statement)


def _choose(cycle: Cycle, job: Job, task: Task, among: Among | None) -> Choice | None:
    """A node for the pod; where its job asks for one switch, behind that."""
    around = reach(cycle, job, task)
    if around is None:
        return cycle.placer.choose(task.cls, among=among)
    choices = (cycle.placer.choose(task.cls, among=cycle.among(task, domain.rows)) for domain in around)
    return next((choice for choice in choices if choice is not None), None)
