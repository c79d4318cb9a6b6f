"""preempt, reclaim, gangpreempt, gangreclaim: room is made for jobs that starve; shuffle: pods that plugins name are evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pumice.scheduler.cycle.concluding import evict
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.preemption.evaluator import Evaluator, Trial
from pumice.scheduler.cycle.preemption.nominating import carry_out, hold, record_evictions
from pumice.scheduler.cycle.preemption.victims import Scope, between_jobs, between_queues, inside_a_job
from pumice.scheduler.cycle.queueing import queues, tasks_to_try
from pumice.scheduler.cycle.statement import Evict, Place
from pumice.scheduler.state.domains import bound_together, policies_of
from pumice.scheduler.state.jobs import Job, QueueState
from pumice.scheduler.state.tasks import Status

# -- starving jobs, and what becomes of a trial ------------------------------------------------------------------------


def starving(cycle: Cycle, action: str, admitted: Callable[[QueueState], bool] = lambda queue: True) -> Iterator[Job]:
    """Queue by queue, the most urgent first, the jobs that were tried in this cycle and lack pods. Those for whom there was no
    time stay active; one has its turn in every cycle. A search that was begun is gone on with by its action alone."""
    framework, first = cycle.framework, True
    for queue in sorted((queue for queue in queues(cycle) if queue.present and queue.open), key=framework.queue_order_key):
        jobs = [job for job in queue.active if cycle.attempt(job).tried and _may_ask(cycle, job, action)]
        if not jobs or not admitted(queue):
            continue
        for job in sorted(jobs, key=framework.job_order_key):
            if not first and cycle.out_of_time():
                cycle.attempts[job].postponed = True
                continue
            if not framework.job_starving(job):
                continue
            first = False
            if job in cycle.state.terminating.gang_searches and not tasks_to_try(cycle, job):  # no more time for its devices
                cycle.attempts[job].postponed = True
                continue
            yield job


def commit_or_hold(cycle: Cycle, evaluator: Evaluator, job: Job, trial: Trial) -> bool:
    """Carry the trial out where the job can go on by it, or hold it for the next cycle where it is not finished; else take it
    back. True: somebody goes."""
    statement, searches = trial.statement, cycle.state.terminating.gang_searches
    cycle.measures.preemption_attempts += trial.attempts
    late = cycle.placer.evaluation.claims.late
    if late and (job in searches or statement.steps) and not cycle.framework.job_pipelined(job):
        trial.unfinished |= any(task.cls in late for task in job.pending.values())  # these were left out
    if trial.unfinished:
        found = hold(cycle, job, trial)
        found.action, found.known = evaluator.scope.action, evaluator.orders
        cycle.attempts[job].postponed = True
        return False
    somebody = job in searches or any(isinstance(step, Evict) for step in statement.steps)
    if somebody and cycle.framework.job_pipelined(job):
        carry_out(cycle, job, trial, evaluator.scope.action)
        return True
    if job in searches:
        cycle.state.terminating.withdraw(job)
        cycle.attempts[job].discarded = True  # as a gang that was tried at once: it waits for what may help it
    if any(isinstance(step, Place) for step in statement.rollback()):
        cycle.placer.reconsider(task.cls for task in job.pending.values())  # one of its pods held another's room
    return False


def _may_ask(cycle: Cycle, job: Job, action: str) -> bool:
    """Not for jobs of which sub-groups are bound to parts of the network."""
    begun, attempt = cycle.state.terminating.gang_searches.get(job), cycle.attempt(job)
    return (begun is None or begun.action == action) and bool(
        job.pending and not job.is_pending() and not attempt.pipelined and not attempt.invalid
        and job.backoff.until <= cycle.now and not policies_of(job)
    )  # fmt: skip


# -- shuffle -----------------------------------------------------------------------------------------------------------


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
    record_evictions(cycle, [step.task for step in victims], "shuffle")
    if victims:
        cycle.measures.evictions["shuffle"] = len(victims)


# -- gangpreempt, gangreclaim: a gang may go too, then all of it; plugin gang is not asked -----------------------------


def gangpreempt(cycle: Cycle) -> None:
    _for_starving_jobs(cycle, between_jobs(cycle.framework, "gangpreempt", gangs=True))


def gangreclaim(cycle: Cycle) -> None:
    _for_starving_jobs(cycle, between_queues(cycle.framework, "gangreclaim", gangs=True))


def _for_starving_jobs(cycle: Cycle, scope: Scope) -> None:
    """Make room for each by what the action may evict. A queue that has its share reclaims nothing."""
    evaluator, overused = Evaluator(cycle, scope), cycle.framework.overused
    for job in starving(cycle, scope.action, lambda queue: not (scope.others and overused(queue))):
        commit_or_hold(cycle, evaluator, job, evaluator.for_job(job, tasks_to_try(cycle, job)))


# -- reclaim: a queue gets back what others borrowed of its share ------------------------------------------------------


def reclaim(cycle: Cycle) -> None:
    _for_starving_jobs(cycle, between_queues(cycle.framework))


# -- preempt: room within the queue ------------------------------------------------------------------------------------


def preempt(cycle: Cycle) -> None:
    """By pods of other jobs; of a job that starves still, by its own."""
    among, inside = Evaluator(cycle, between_jobs(cycle.framework)), Evaluator(cycle, inside_a_job(cycle.framework))
    for job in starving(cycle, "preempt"):
        commit_or_hold(cycle, among, job, among.for_job(job, tasks_to_try(cycle, job)))
        if cycle.attempt(job).postponed or job.ready_count == 0 or bound_together(job) or not cycle.framework.job_starving(job):
            continue
        for task in tasks_to_try(cycle, job):
            trial = Trial(cycle.statement(), attempts=1)
            inside.for_pod(task, trial)
            if not commit_or_hold(cycle, inside, job, trial):
                break
