"""The search for places for a gang that takes longer than a cycle may: what was found is held, and the next cycle goes on.

What is held stands in the ledger as a nomination that nobody was told of. Once as many pods as the gang needs have places,
each of them is taken again by a look at its own node alone, all in one cycle: nothing of the gang reaches the world before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.queueing import affordable, cost_of, with_kept_for_others
from pumice.scheduler.cycle.statement import Nomination, Place, Statement
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.nominations import Nominated, Search

ACTION: Final = "allocate"


def begun(cycle: Cycle, job: Job) -> Search | None:
    """The search so far, where earlier cycles began one."""
    found = cycle.state.terminating.gang_searches.get(job)
    return found if found is not None and found.action == ACTION else None


def elsewhere(cycle: Cycle, job: Job) -> bool:
    """Return whether another action searches for room for the job, and holds what it has found."""
    return job in cycle.state.terminating.gang_searches and begun(cycle, job) is None


def searching(cycle: Cycle) -> list[QueueState]:
    """Queues of jobs for which a search was begun."""
    searches = cycle.state.terminating.gang_searches
    return list(dict.fromkeys(job.queue for job, found in searches.items() if found.action == ACTION))


def may_stop(cycle: Cycle, job: Job, tasks: list[Task]) -> bool:
    """Return whether the search may go on in another cycle. What is held has no labels, ports or volumes in the eyes of
    others, so that no member may mind another one's, and claims that are its pods' alone."""
    if job.min_available < 2 or cycle.framework.job_ready(job):
        return False
    if elsewhere(cycle, job):
        return False
    return not any(
        task.cls.constraints.topological or task.cls.constraints.ports or task.cls.constraints.claims
        or any(one.key for one in task.cls.device_claims)
        or task.uid in cycle.hints or cycle.among(task) is not None for task in tasks
    )  # fmt: skip


@dataclass(slots=True)
class Held:
    """The search for one job within a cycle. ``tasks``: those still to be tried; ``passed_over``: those that have no place."""

    cycle: Cycle
    job: Job
    statement: Statement
    tasks: list[Task]
    failed_roles: set[str]
    passed_over: list[Task] = field(default_factory=list)
    places: int = 0
    """Pods with a place from earlier cycles that nobody has to leave first."""
    begun: bool = False
    taken: bool = False

    def __post_init__(self) -> None:
        found, kept = begun(self.cycle, self.job), self.cycle.state.nominations.kept
        if found is not None:
            self.begun = True
            self.places = sum(uid in kept and not kept[uid].awaits for uid in found.preemptors)
            self.tasks[:] = [task for task in self.tasks if task.uid not in found.passed_over]
            self.failed_roles |= found.failed_roles
            now = self.cycle.state.ledger.table.revisions
            found.revisions = {row: seen for row, seen in found.revisions.items() if now[row] == seen}
            if found.devices != self.cycle.state.device_claims.in_use.state:
                found.devices = None

    def is_late(self) -> bool:
        """Return whether the search has to stop. Where it goes first, others who wait have half of the cycle's time."""
        cycle = self.cycle
        halved = self.begun and sum(len(queue.active) for queue in cycle.state.queues.values()) > 1
        return not self.taken and cycle.past(cycle.started, 0.5 if halved else 1.0)

    def enough(self) -> bool:
        """Return whether the gang may be whole with what is held."""
        return self.job.ready_count + self.places >= self.job.min_available and self.job.role_pipelined()

    def hold(self) -> None:
        """Keep in the ledger what this cycle has found, and go on in the next one."""
        cycle, state, statement = self.cycle, self.cycle.state, self.statement
        in_use = state.device_claims.in_use
        found = state.terminating.gang_searches.setdefault(self.job, Search(action=ACTION, devices=in_use.state))
        before, rows = {found.choices[uid].row for uid in found.choices}, dict[int, None]()
        statement.put_by()
        for step in statement.steps:
            if not isinstance(step, Place | Nomination):
                continue
            uid, nominated = step.task.uid, step.task.nominated
            if isinstance(step, Place):
                found.choices[uid] = step.choice
            else:
                state.nominations.keep(step.task, state.ledger.going(step.choice.node))
                step.task.nominated = nominated
            rows[step.choice.row] = None
            if nominated:
                found.nominated[uid] = nominated
            found.preemptors.append(uid)
        statement.steps.clear()
        now = state.ledger.table.revisions
        for row in rows:
            if row in found.revisions or row not in before:
                found.revisions[row] = now[row]
        found.devices = None if found.devices is None else in_use.state
        found.passed_over.update(dict.fromkeys(task.uid for task in self.passed_over))
        found.failed_roles |= self.failed_roles
        attempt = cycle.attempts[self.job]
        found.short_of_share |= attempt.short_of_share
        attempt.tried = attempt.blocked = attempt.short_of_share = False
        attempt.postponed = True

    def take_again(self) -> None:
        """Take in this cycle what is held. A pod whose place is lost is tried like any other."""
        if not self.begun:
            return
        cycle, job, statement = self.cycle, self.job, self.statement
        self.begun, self.taken, self.places = False, True, 0
        found, kept = cycle.state.terminating.gang_searches[job], cycle.state.nominations.kept
        unchanged = [kept[uid].task for uid in found.preemptors if uid in kept and self._is_unchanged(found, kept[uid])]
        for task in unchanged[:-1]:  # the last one is asked about as any other: its queue may have another share by now
            statement.take_up(task, found.choices[task.uid])
        held = [(kept[uid].task, kept[uid].node) for uid in found.preemptors if uid in kept]
        cycle.state.terminating.withdraw(job, gain=False)
        row_of = cycle.state.ledger.table.row_of
        rows = [*found.revisions, *(row_of[node] for _, node in held if node in row_of)]
        cycle.state.scheduling_queue.keep_reserved(job, rows)  # others are offered what it keeps no longer
        cycle.placer.reconsider(task.cls for task, _ in held)
        may = affordable(cycle, statement)
        for task, node in held:
            cost = cost_of(cycle, task, may)
            accept = None if cost is None else cost.accepted
            pays = may(job.queue, with_kept_for_others(task, task.cls.amounts))
            choice = cycle.placer.choose(task.cls, node, accept) if pays else None
            if choice is not None:
                statement.place(task, choice)
            elif pays and (future := cycle.placer.choose_future(task.cls, node, accept=accept)) is not None:
                statement.nominate(task, future)
            else:
                self.tasks.append(task)
        if found.short_of_share:
            attempt = cycle.attempts[job]
            attempt.blocked = attempt.short_of_share = True

    def _is_unchanged(self, found: Search, nominated: Nominated) -> bool:
        """Return whether nothing has come to its node or its queue since that could refuse the pod the place that it has
        there."""
        task = nominated.task
        if nominated.awaits or task.cls.base is not task.cls or task.uid not in found.choices:
            return False
        if task.cls.device_claims and found.devices is None:
            return False
        return found.choices[task.uid].row in found.revisions and not self.cycle.state.terminating.unanswered
