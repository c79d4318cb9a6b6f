"""Room for the pods of one job, in one trial: who goes, who is nominated where, and who may stay after all."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Final

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.domains import allowed
from pumice.scheduler.cycle.preemption.search import Candidate, Order, Preemptor
from pumice.scheduler.cycle.preemption.victims import Prices, Scope, Unit
from pumice.scheduler.cycle.queueing import affordable, agreed, with_kept_for_others
from pumice.scheduler.cycle.statement import Evict, Nomination, Place, Statement, Step
from pumice.scheduler.placing.evaluation import Among
from pumice.scheduler.state.domains import Domain
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.nodes import Rows

DOMAINS: Final = 16
"""Of each tier, those that plugins like best, in which room is looked for."""


@dataclass(slots=True)
class Trial:
    """Steps that were not taken back yet. ``units``: who goes, and for whom it was asked."""

    statement: Statement
    within: Rows | None = None
    """The only nodes on which its pods may be."""
    units: list[tuple[Unit, Task]] = field(default_factory=list)
    attempts: int = 0
    bounded: bool = False
    """It goes as far as the time allows."""
    unfinished: bool = False
    """There was no time for all of its pods: the search goes on in the next cycle, behind what was found."""
    vain: set[Hashable] = field(default_factory=set)
    """Kinds of pods for which there was no more room to be made beside what it has."""


@dataclass(slots=True)
class Evaluator:
    """Evaluates preemption for one action in one cycle: which victims make room for which pod."""

    cycle: Cycle
    scope: Scope
    _vain: set[Hashable] = field(default_factory=set)
    """Kinds of pods for which there was no room to be made at all."""
    orders: dict[Hashable, Order] = field(default_factory=dict)
    """Per kind of pods where room is made for the next one."""
    _began: float = 0.0

    def __post_init__(self) -> None:
        self._began = self.cycle.tick()

    def out_of_time(self) -> bool:
        """Return whether the cycle's time is over. However long others took, half of it may be spent here."""
        return self.cycle.out_of_time() and self.cycle.past(self._began, 0.5)

    def for_job(self, job: Job, tasks: list[Task]) -> Trial:
        """Find room for its pods, in this order, until it starves no longer. Pods for which there is none are skipped."""
        domains = allowed(self.cycle, job, tasks)
        return self._try(job, tasks, None, bounded=True) if domains is None else self._behind_one_switch(job, tasks, domains)

    def _behind_one_switch(self, job: Job, tasks: list[Task], domains: list[Domain]) -> Trial:
        """In the nearest tier in which that can be: where it is cheapest, of those domains that are looked at. Where the job only
        wishes for it, a farther domain is taken that is cheaper."""
        cycle, root = self.cycle, self.cycle.state.hyper_nodes.tree.root
        hint, best = domains[-1:] == [root], None
        attempts = 0
        for _, tier in groupby(domains, key=lambda domain: domain.tier):
            for domain in islice(tier, DOMAINS):
                rows = None if domain is root else domain.rows
                trial = self._try(job, tasks, rows)
                attempts += trial.attempts
                cost = prices(cycle).cost(unit for unit, _ in trial.units) if trial.units else None
                if cycle.framework.job_pipelined(job) and cost is not None and (best is None or cost < best[0]):
                    best = cost, rows
                cycle.take_back(trial.statement, tasks)
            if best is not None and not hint:
                break
        if best is None:
            return Trial(cycle.statement(), attempts=attempts)
        return self._try(job, tasks, best[1])

    def _try(self, job: Job, tasks: list[Task], within: Rows | None, *, bounded: bool = False) -> Trial:
        trial = Trial(self.cycle.statement(), within, bounded=bounded)
        with self.cycle.state.ledger.as_nominated():  # once for all of them, not for each look
            self._find(job, tasks, trial)
            placed = sum(isinstance(step, Place | Nomination) for step in trial.statement.steps)
            if len(trial.units) > 1 and placed > 1:  # for one pod alone nobody goes in vain (``reprieve``)
                self._give_back(trial)
        return trial

    def _find(self, job: Job, tasks: list[Task], trial: Trial) -> None:
        for task in tasks:
            if not self.cycle.framework.job_starving(job):
                break
            if trial.unfinished or (trial.bounded and trial.units and self.out_of_time()):
                trial.unfinished = True
                break
            trial.attempts += 1
            self.for_pod(task, trial)

    def for_pod(self, task: Task, trial: Trial) -> bool:
        """Nominate the pod for a place: an idle one, one that is being released, or the cheapest that others can make."""
        among = self.cycle.among(task, trial.within)
        if self._nominate(task, trial.statement, among):
            return True
        if not task.yielding.preempts or task.cls.refusals or task.request.refused or not self.scope.admits(task):
            return False
        room = self._cheapest(task, trial, among)
        if room is None:
            return False
        mark = trial.statement.mark()
        for pod in room.pods:
            trial.statement.evict(pod, self.scope.action)
        choice = self.cycle.placer.choose_future(task.cls, self._name(room.row), among, agreed(self.cycle, task))
        if choice is None:
            trial.statement.rollback(mark)
            return False
        trial.statement.nominate(task, choice)
        trial.units += [(unit, task) for unit in room.units]
        return True

    def _name(self, row: int) -> str:
        return self.cycle.state.ledger.table.name(row)

    def _nominate(self, task: Task, statement: Statement, among: Among | None) -> bool:
        """Without asking anybody to go."""
        job, placer = task.job, self.cycle.placer
        if job is None or not self.cycle.framework.allocatable(job.queue, with_kept_for_others(task, task.amounts)):
            return False
        accept = agreed(self.cycle, task)
        idle = None
        if not placer.was_unschedulable(task.cls):
            with self.cycle.state.ledger.at_present():
                idle = placer.choose(task.cls, accept=accept, among=among)
        if idle is not None and affordable(self.cycle, statement)(job.queue, task.amounts):
            statement.place(task, idle)
            return True
        future = placer.choose_future(task.cls, among=among, accept=accept)
        if future is not None:
            statement.nominate(task, future)
        return future is not None

    def _cheapest(self, task: Task, trial: Trial, among: Among | None) -> Candidate | None:
        job = task.job
        assert job is not None
        short = not self.cycle.framework.allocatable(job.queue, with_kept_for_others(task, task.amounts))
        own = job if job.ready_count or self.scope.inside else None
        where = None if trial.within is None else trial.within.tobytes()
        key = (task.cls, job.queue, job.priority, task.priority, own, short, where)
        if key in self._vain or key in trial.vain:
            return None
        preemptor = Preemptor(task, among, short, agreed(self.cycle, task))
        begun = self.cycle.state.terminating.gang_searches.get(job)
        if begun is not None:  # it goes on where the last cycle ended
            self.orders = begun.known or self.orders
        alone = among is not None and self.cycle.framework.minds_tasks  # one pod's bounds are not another's
        alone = alone or task.cls.constraints.awaits_pods  # and where it may be changes with each of its gang
        order = self.orders.get(key)
        if order is None or alone:
            order = self.orders[key] = Order(self.scope, self.cycle.placer, preemptor)
        enough = self.out_of_time if trial.bounded and not alone else None
        room = order.cheapest(prices(self.cycle), self.cycle.statement(), preemptor, begun or trial, enough)
        trial.unfinished = order.unfinished
        if room is None and not order.unfinished:
            (trial.vain if trial.statement.steps else self._vain).add(key)
        return room

    def _give_back(self, trial: Trial) -> None:
        """From the most important down, whoever is not needed stays: the pods that were promised its node find other places. Of a
        gang that falls nobody does, not even those that it could have lost."""
        statement, units, on = trial.statement, dict.fromkeys(unit for unit, _ in trial.units), dict[str, dict[str, Nomination]]()
        evicted = {step.task.uid: step for step in statement.steps if isinstance(step, Evict)}
        falling = {unit.job for unit in units if unit.whole}
        for step in statement.steps:
            if isinstance(step, Nomination):
                on.setdefault(step.choice.node, {})[step.task.uid] = step
        for unit in sorted(units, key=lambda unit: (unit.highest, unit.whole, unit.total), reverse=True):
            if len(units) == 1:
                break
            if not unit.whole and unit.job in falling:
                continue
            gone = [evicted.pop(pod.uid) for pod in unit.pods]
            nodes = dict.fromkeys(pod.node for pod in unit.pods)
            nominated = [nomination for node in nodes for nomination in on.pop(node, {}).values()]
            both: tuple[Step, ...] = (*nominated, *gone)
            for step in both:
                statement.take_back(step)
            mark = statement.mark()
            stays = all(self._nominate_again(step.task, trial) for step in nominated)
            if stays:
                del units[unit]
                falling.discard(unit.job if unit.whole else None)
            else:
                statement.rollback(mark)
                for eviction in gone:
                    statement.evict(eviction.task, eviction.reason)
                for nomination in nominated:
                    statement.nominate(nomination.task, nomination.choice)
            for step in statement.steps[mark:]:
                if isinstance(step, Nomination):
                    on.setdefault(step.choice.node, {})[step.task.uid] = step
                elif isinstance(step, Evict):
                    evicted[step.task.uid] = step
        trial.units = [(unit, preemptor) for unit, preemptor in trial.units if unit in units]

    def _nominate_again(self, task: Task, trial: Trial) -> bool:
        if task.job is None or not self.cycle.framework.allocatable(task.job.queue, with_kept_for_others(task, task.amounts)):
            return False
        among = self.cycle.among(task, trial.within)
        future = self.cycle.placer.choose_future(task.cls, among=among, accept=agreed(self.cycle, task))
        if future is not None:
            trial.statement.nominate(task, future)
        return future is not None


def prices(cycle: Cycle) -> Prices:
    budgets = cycle.state.budgets
    minded = bool(budgets.known) and any(plugin.name == "pdb" for plugin in cycle.framework.plugins)
    return Prices(cycle.state, budgets.spared if minded else lambda pods: ())
