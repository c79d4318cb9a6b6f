"""Placing a job by what it asks of the network: whole, behind one switch, the nearest that takes it (docs/reference/topology.md).

Domains are tried from the lowest tier up, of one tier the one that plugins like best. Each trial stands on the live ledger and is
taken back where the gang does not stand. A domain where it stands at once is better than a nearer one where it would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.cycle import over_cycles, planning, trying
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.queueing import affordable
from pumice.scheduler.cycle.statement import Place, Statement
from pumice.scheduler.cycle.trying import CHUNK, Outcome
from pumice.scheduler.state.domains import (
    HELD,
    Domain,
    GroupKey,
    Tree,
    bound_together,
    group_of,
    highest_tier,
    policies_of,
    topology_of,
)
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.tasks import READY_STATUSES, Status, by_nodes
from pumice.wire.topology import NetworkTopology, SubGroupPolicy

Trial = Callable[[Domain], bool]


def place(
    cycle: Cycle, job: Job, statement: Statement, tasks: list[Task], failed_roles: set[str], *, beyond: bool = False
) -> bool:
    """Place tasks of the job (``planning.place``), within HyperNodes where the job asks for a network topology. What is left
    stays in ``tasks``. Return whether the search goes on in the next cycle."""
    requested, policies = topology_of(job), policies_of(job)
    if requested is None and not policies:
        stop = not beyond and over_cycles.may_stop(cycle, job, tasks)
        return planning.place(cycle, job, statement, tasks, failed_roles, beyond=beyond, may_stop=stop)
    if over_cycles.begun(cycle, job) is not None:  # it asks for other things than when that was begun
        cycle.state.terminating.withdraw(job)
    waiting = list(tasks)
    search = _Search(cycle, job, statement, cycle.state.hyper_nodes.tree, policies, waiting, beyond)
    search.place(requested or NetworkTopology("soft"), by_network=requested is not None)
    tasks[:] = [task for task in waiting if task.status is Status.PENDING] if statement.steps else []
    return False


def reach(cycle: Cycle, job: Job, task: Task) -> list[Domain] | None:
    """The domains in which this pod of the job may be placed, the nearest first; None where it does not matter."""
    if not bound_together(job):
        return None
    policies, tree = policies_of(job), cycle.state.hyper_nodes.tree
    key = group_of(policies, task)
    demands = [(topology_of(job), list(job.tasks.values()))]
    if key is not None:
        members = [other for other in job.tasks.values() if group_of(policies, other) == key]
        demands.append((policies[key.policy].network_topology, members))
    found: list[Domain] | None = None
    for requested, tasks in demands:
        if requested is None or not requested.hard:
            continue
        tier = highest_tier(requested, tree)
        wider = [tree.root] if found is None else found
        around = [] if isinstance(tier, str) else _around(tree, tier, _rows(cycle, tasks), tree.root)
        found = [domain for domain in around if any(domain.lies_in(other) for other in wider)]
    return found


def allowed(cycle: Cycle, job: Job, tasks: list[Task]) -> list[Domain] | None:
    """The domains of which one may take these pods of the job, with those that it has: the nearest first, of one tier the one
    that plugins like best. None where the job does not ask for any."""
    requested, tree = topology_of(job), cycle.state.hyper_nodes.tree
    if requested is None:
        return None
    tier = highest_tier(requested, tree)
    if isinstance(tier, str):
        return []
    return _best_first(cycle, list(_around(tree, tier, _rows(cycle, job.tasks.values()), tree.root)), tasks)


def _best_first(cycle: Cycle, domains: list[Domain], tasks: list[Task]) -> list[Domain]:
    scores = cycle.framework.domain_scores(cycle.state, [task.cls for task in tasks], domains)
    worth = [(domain.tier, -score, domain.name, domain) for domain, score in zip(domains, scores, strict=True)]
    return [entry[-1] for entry in sorted(worth, key=lambda entry: entry[:3])]


@dataclass(slots=True)
class _Search:
    """A search for the domain of a job. ``tasks``: those to be placed, the first one last."""

    cycle: Cycle
    job: Job
    statement: Statement
    tree: Tree
    policies: list[SubGroupPolicy]
    tasks: list[Task]
    beyond: bool
    closest: tuple[int, str] = (-1, "")
    """Number of pods that found a place in the domain that came closest, and what is to be said of it."""
    copies: NDArray[np.int64] | None = field(init=False)
    members: dict[GroupKey | None, list[Task]] = field(default_factory=dict)
    """The job's pods by sub-group, as far as there are any."""

    def __post_init__(self) -> None:
        self.copies = self._copies()
        for task in self.job.tasks.values() if self.policies else ():
            self.members.setdefault(group_of(self.policies, task), []).append(task)

    def place(self, requested: NetworkTopology, *, by_network: bool) -> None:
        tier = highest_tier(requested, self.tree)
        if isinstance(tier, str):
            self._refuse(tier)
            return
        allocated = _rows(self.cycle, self.job.tasks.values())
        around = list(_around(self.tree, tier, allocated, self.tree.root)) if by_network else [self.tree.root]
        if self._first(self._ranked(around, self.tasks), self._whole, self._stands):
            return
        if around and around[-1] is self.tree.root:
            self._whole(self.tree.root)  # nobody is kept away from any node: it waits as any job does, and for the same reasons
            return
        where = f"tier {requested.highest_tier_name or tier}"
        if not around and allocated:
            self._refuse(f"the pods that it has are in no HyperNode of {where} or below together")
        else:
            lacking = f"{self._lacking} pods" if self._lacking > 1 else "it"
            closest = f"; {self.closest[1]}" if self.closest[1] else ""
            self._refuse(f"no HyperNode of {where} or below takes {lacking} ({len(around)} looked at){closest}")

    # -- one domain after the other -------------------------------------------------------------------------------

    def _first(self, domains: Iterable[Domain], trial: Trial, stands: Callable[[bool], bool]) -> bool:
        """Try domains until one takes what is to be placed now; else the first in which it would stand once something is
        released. ``stands(now)``: whether it does so. Nothing is left of the other trials."""
        later: Domain | None = None
        mark = self.statement.mark()
        for domain in domains:
            if trial(domain) and stands(True):
                return True
            if later is None and self.statement.mark() > mark and stands(False):
                later = domain
            self.cycle.take_back(self.statement, self.tasks, mark)
        return later is not None and trial(later)

    def _stands(self, now: bool) -> bool:
        framework = self.cycle.framework
        if not self.statement.steps:
            return False
        if now:
            return framework.job_ready(self.job) and any(isinstance(step, Place) for step in self.statement.steps)
        return framework.job_ready(self.job) or framework.job_pipelined(self.job)

    def _whole(self, domain: Domain) -> bool:
        """Place what the job needs in one domain. True: something was placed."""
        within = None if domain is self.tree.root else domain.rows
        if self.policies:
            self._by_groups(domain)
        else:
            left = list(self.tasks)
            planning.place(self.cycle, self.job, self.statement, left, set(), beyond=self.beyond, within=within)
        placed = len(self.statement.steps)
        if placed > self.closest[0] and within is not None:
            error = next((task.error for task in reversed(self.tasks) if task.status is Status.PENDING and task.error), None)
            self.closest = placed, f"In hyperNode {domain.name}: {error.text}" if error else ""
        return placed > 0

    # -- sub-groups -----------------------------------------------------------------------------------------------

    def _by_groups(self, domain: Domain) -> None:
        """One sub-group after the other, each as a whole, until the job stands; pods of no sub-group one by one."""
        framework, placed = self.cycle.framework, 0
        was_ready = framework.job_ready(self.job)
        for key, tasks in self._groups():
            policy = None if key is None else self.policies[key.policy]
            while tasks:
                unit = 1 if policy is None else max(1, policy.sub_group_size - self._ready(key))
                if len(tasks) < unit or not self._place_unit(domain, key, policy, tasks[:unit]):
                    break
                tasks = tasks[unit:]
                placed += unit
                if framework.job_ready(self.job) and (not was_ready or self.beyond or placed >= CHUNK):
                    return

    def _groups(self) -> list[tuple[GroupKey | None, list[Task]]]:
        """Those that lack members first, then by the number in their label."""
        found: dict[GroupKey | None, list[Task]] = {}
        key_of = {task.uid: key for key, tasks in self.members.items() for task in tasks}
        for task in reversed(self.tasks):
            found.setdefault(key_of[task.uid], []).append(task)

        def order(key: GroupKey | None) -> tuple[object, ...]:
            return (1,) if key is None else (0, self._ready(key) >= self.policies[key.policy].sub_group_size, *key.order)

        return sorted(found.items(), key=lambda item: order(item[0]))

    def _ready(self, key: GroupKey | None) -> int:
        return sum(task.status in READY_STATUSES for task in self.members[key])

    def _place_unit(self, domain: Domain, key: GroupKey | None, policy: SubGroupPolicy | None, tasks: list[Task]) -> bool:
        requested = None if policy is None else policy.network_topology
        around: Iterable[Domain] = [domain]
        if requested is not None:
            tier = highest_tier(requested, self.tree)
            if isinstance(tier, str):
                for task in tasks:
                    task.unexplained, task.error = False, by_nodes(tier)
                return False
            around = self._ranked(_around(self.tree, tier, _rows(self.cycle, self.members[key]), domain), tasks)

        def trial(inner: Domain) -> bool:
            may = affordable(self.cycle, self.statement, beyond=self.beyond)
            within = None if inner is self.tree.root else inner.rows
            return all(
                trying.attempt(self.cycle, self.statement, task, may, (), within) is Outcome.PLACED for task in tasks
            )

        def stands(now: bool) -> bool:
            return all(task.status is Status.ALLOCATED or (not now and task.status is Status.PIPELINED) for task in tasks)

        return self._first(around, trial, stands)

    # -- which domains, and in which order ------------------------------------------------------------------------

    def _ranked(self, domains: Iterable[Domain], tasks: list[Task]) -> list[Domain]:
        """From the lowest tier up, of one tier the best liked first; those that cannot hold what is needed are left out."""
        able = [domain for domain in domains if self._could_hold(domain, min(len(tasks), self._lacking))]
        return _best_first(self.cycle, able, tasks)

    def _could_hold(self, domain: Domain, number: int) -> bool:
        if self.copies is None or domain is self.tree.root:
            return True
        room = int(self.copies[domain.rows].sum())
        if room < number and room > self.closest[0]:
            self.closest = room, f"{domain.name} has room for {room} at most"
        return room >= number

    @property
    def _lacking(self) -> int:
        return max(1, self.job.min_available - self.job.ready_count)

    def _copies(self) -> NDArray[np.int64] | None:
        """Per node how many such pods there is room for, by resources alone and with what is going; None for unlike pods."""
        classes = {task.cls for task in self.tasks}
        if len(classes) != 1:
            return None
        (cls,) = classes
        table = self.cycle.state.ledger.table
        free = table.alloc - table.used + np.maximum(table.releasing - table.pipelined, 0)
        parts = [free[:, column] // amount for column, amount in self.cycle.state.ledger.columns(cls.request) if amount]
        return np.asarray(np.maximum(np.minimum.reduce(parts), 0))

    def _refuse(self, text: str) -> None:
        """The job waits for anything that is released, and its pods are told why."""
        self.cycle.attempts[self.job].blocked = True
        said = by_nodes(text)
        if not self.cycle.framework.job_ready(self.job):
            self.job.refusal = said
        for task in self.tasks:
            task.unexplained, task.error, task.trial = False, said, None


def _rows(cycle: Cycle, tasks: Iterable[Task]) -> frozenset[int]:
    """Return where those of them that have a place are, or are promised one."""
    row_of = cycle.state.ledger.table.row_of
    return frozenset(row_of[task.node] for task in tasks if task.status in HELD and task.node in row_of)


def _around(tree: Tree, tier: int, allocated: frozenset[int], within: Domain) -> Iterator[Domain]:
    """Domains up to that tier that hold all of those rows, as far as they lie within another one; the lowest first."""
    for domain in tree.all():
        if domain.tier <= tier and allocated <= domain.members and domain.lies_in(within):
            yield domain
