"""The plugins of one configuration, and how their answers combine (Volcano pkg/scheduler/framework/session_plugins.go).

``Framework`` holds the plugins in tier order and asks those that take a role. Orders are keys instead of comparisons: the first
plugin whose keys differ decides, which is what comparing the tuples of keys does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.plugins.contract import (
    Allocatable,
    AllocationHandler,
    HierarchicalQueueOrder,
    HyperNodeOrder,
    Invalid,
    JobDue,
    JobEnqueueable,
    JobOrder,
    JobPipelined,
    JobReady,
    JobStarving,
    JobValid,
    NodeOrder,
    Overused,
    Part,
    Plugin,
    Predicate,
    Preemptable,
    Preemptive,
    QueueOrder,
    QueueShares,
    Reclaimable,
    Role,
    Scorer,
    Session,
    Several,
    Spared,
    TaskNodeOrder,
    TaskOrder,
    TaskPredicate,
    Verdict,
    VictimTasks,
)
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.domains import Domain
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import Vector
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import PluginConf, SchedulerConf

InRole = TypeVar("InRole", bound=Role)

Vote = Callable[[Task, Sequence[Task]], Spared | None]
NOBODY_VOTES = "no plugin lets it go"
GANG = "gang"
"""The plugin that never lets a gang fall; where gangs go as a whole it is not asked."""


class Framework:
    """The plugins of one configuration."""

    def __init__(
        self, conf: SchedulerConf, make: Callable[[PluginConf], Plugin | None], always: Sequence[Plugin] = ()
    ) -> None:
        """``always`` stand before the first tier, so that no vote for a job is counted past theirs."""
        self.conf = conf
        self.plugins: list[Plugin] = [*always]
        self._tiers: list[list[tuple[PluginConf, Plugin]]] = [[(PluginConf(plugin.name), plugin) for plugin in always]]
        for tier in conf.tiers:
            made = [(entry, plugin) for entry in tier if (plugin := make(entry)) is not None]
            self._tiers.append(made)
            self.plugins += [plugin for _, plugin in made]
        self._job_keys = [plugin.job_order_key for plugin in self._all(JobOrder)]
        self._nests = next((plugin for plugin in self._all(HierarchicalQueueOrder) if plugin.hierarchical), None)
        """The plugin that sees the queues as a tree, whose branches take turns."""
        self._queue_keys = [plugin.queue_order_key for plugin in self._all(QueueOrder)]
        self._task_keys = [plugin.task_order_key for plugin in self._all(TaskOrder)]
        self._valid = [plugin.job_valid for plugin in self._all(JobValid)]
        self._ready = [plugin.job_ready for plugin in self._all(JobReady)]
        self._pipelined = [[plugin.job_pipelined for plugin in tier] for tier in self._by_tier(JobPipelined)]
        self._enqueueable = [[plugin.job_enqueueable for plugin in tier] for tier in self._by_tier(JobEnqueueable)]
        self._enqueued = [plugin.job_enqueued for plugin in self._all(JobEnqueueable)]
        self._due = [plugin.job_due for plugin in self._all(JobDue)]
        self._overused = [plugin.overused for plugin in self._all(Overused)]
        self._limits = self._all(Allocatable)
        self.knows_shares = next((plugin for plugin in self.plugins if isinstance(plugin, QueueShares)), None)
        self._starving = [[plugin.job_starving for plugin in tier] for tier in self._by_tier(JobStarving)]
        preempt, reclaim = self._by_tier(Preemptable), self._by_tier(Reclaimable)
        self._preempt = [[plugin.not_preemptable for plugin in tier] for tier in preempt]
        self._reclaim = [[plugin.not_reclaimable for plugin in tier] for tier in reclaim]
        self._preempt_gangs = [[plugin.not_preemptable for plugin in tier if plugin.name != GANG] for tier in preempt]
        self._reclaim_gangs = [[plugin.not_reclaimable for plugin in tier if plugin.name != GANG] for tier in reclaim]
        self._owners = [plugin.not_reclaimable for plugin in self._all(Reclaimable) if isinstance(plugin, Allocatable)]
        self._may_reclaim = [plugin.preemptive for plugin in self._all(Preemptive)]
        self._victims = [[plugin.victims for plugin in tier] for tier in self._by_tier(VictimTasks)]
        self._filters = self._all(Predicate)
        self._scores = self._all(NodeOrder)
        self._bounds = self._all(TaskPredicate)
        self._task_scorers = self._all(TaskNodeOrder)
        self._versions = [plugin.version for plugin in self._scores if type(plugin).version is not NodeOrder.version]
        self._domain_scores = self._all(HyperNodeOrder)
        self.minds_tasks = bool(self._bounds or self._task_scorers)
        """True if pods of one class may be treated differently."""
        self._placing = self._all(AllocationHandler)
        self.opening = [plugin for plugin in self.plugins if type(plugin).open is not Plugin.open]
        self.closing = [plugin for plugin in self.plugins if type(plugin).close is not Plugin.close]
        self.idle_times = {(plugin.name, hook): 0.0 for plugin in self.plugins for hook in ("OnSessionOpen", "OnSessionClose")}
        """The time of every plugin's hooks where it has none: most do nothing as a cycle begins and ends."""

    def _by_tier(self, role: type[InRole]) -> list[list[InRole]]:
        """Per tier the plugins that take the role, unless the configuration turns it off for them."""
        return [
            [plugin for entry, plugin in tier
             if isinstance(plugin, role) and (not role.switch or entry.enabled(role.switch))]
            for tier in self._tiers
        ]  # fmt: skip

    def _all(self, role: type[InRole]) -> list[InRole]:
        return [plugin for tier in self._by_tier(role) for plugin in tier]

    # -- orders -------------------------------------------------------------------------------------------------

    def job_order_key(self, job: Job) -> tuple[Any, ...]:
        """The job's place. A job that holds nothing keeps its key until something of it changes; what a job holds is
        weighed against the whole cluster, so such a key is worked out each time."""
        if job.sort_key is None or job.allocated:
            job.sort_key = (*[key(job) for key in self._job_keys], job.order())
        return job.sort_key

    def queue_order_key(self, queue: QueueState) -> tuple[Any, ...]:
        return (*[key(queue) for key in self._queue_keys], queue.created, queue.uid, queue.name)

    def queue_place(self, queue: QueueState) -> list[tuple[Hashable, Any]]:
        """The branches above the queue, from the root down, and the queue itself, each with its key among its siblings."""
        if self._nests is None:
            return [(queue, self.queue_order_key(queue))]
        keys = self._nests.queue_order_key(queue)
        if not keys:
            return [(queue, ((), self.queue_order_key(queue)))]
        above = zip(self._nests.branches(queue)[:-1], ((key, ()) for key in keys), strict=False)
        return [*above, (queue, (keys[-1], self.queue_order_key(queue)))]

    def task_order_key(self, task: Task) -> tuple[Any, ...]:
        return (*[key(task) for key in self._task_keys], task.order())

    # -- jobs and queues ----------------------------------------------------------------------------------------

    def job_valid(self, job: Job) -> Invalid | None:
        return next((found for valid in self._valid if (found := valid(job)) is not None), None)

    def job_ready(self, job: Job) -> bool:
        return all(ready(job) for ready in self._ready)

    def job_pipelined(self, job: Job) -> bool:
        return _vote(self._pipelined, job)

    def job_enqueueable(self, job: Job) -> bool:
        return _vote(self._enqueueable, job)

    def job_enqueued(self, job: Job) -> None:
        for tell in self._enqueued:
            tell(job)

    def job_due(self, job: Job, after: float) -> float:
        """The first time after ``after`` at which time alone changes an answer about the job."""
        times = (due(job) for due in self._due)
        return min((time for time in times if time is not None and time > after), default=float("inf"))

    def open_queues(self, session: Session) -> None:
        """Let the plugins that have a say in what queues may take look at the queues anew."""
        for plugin in self.plugins:
            if isinstance(plugin, Allocatable):
                plugin.open(session)

    def overused(self, queue: QueueState) -> bool:
        return any(over(queue) for over in self._overused)

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        return all(plugin.allocatable(queue, amounts) for plugin in self._limits)

    def may_borrow(self, queue: QueueState, amounts: Vector) -> bool:
        return all(plugin.may_borrow(queue, amounts) for plugin in self._limits)

    def excess(self, queue: QueueState, amounts: Vector) -> float:
        found = (plugin.excess(queue, amounts) for plugin in self._limits)
        return max((excess for excess in found if excess is not None), default=0.0)

    def short_of(self, queue: QueueState, task: Task, amounts: Vector | None = None) -> str:
        amounts = task.cls.amounts if amounts is None else amounts
        return next((text for plugin in self._limits if (text := plugin.short_of(queue, amounts))), "")

    def placed(self, task: Task) -> None:
        for plugin in self._placing:
            plugin.placed(task)

    def removed(self, task: Task) -> None:
        for plugin in self._placing:
            plugin.removed(task)

    # -- making room --------------------------------------------------------------------------------------------

    def job_starving(self, job: Job) -> bool:
        """The first tier with an opinion decides, and has to be of one mind."""
        tier = next((tier for tier in self._starving if tier), ())
        return bool(tier) and all(starving(job) for starving in tier)

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """Return the victims that stay, and why; all others may be evicted together."""
        return _spared(self._preempt, preemptor, victims)

    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """As the tiers vote, but what a queue deserves is asked in whatever tier that stands: with upstream's configurations gang
        and conformance decide in the first one, and two queues within their shares would evict each other for ever."""
        return self._but_owned(_spared(self._reclaim, preemptor, victims), preemptor, victims)

    def _but_owned(self, found: Spared, preemptor: Task, victims: Sequence[Task]) -> Spared:
        spared = dict(found)
        for vote in self._owners:
            spared = {**(vote(preemptor, [victim for victim in victims if victim.uid not in spared]) or {}), **spared}
        return spared

    def evictable_by_preempt(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        """The vote on whole gangs, of all but the one who never lets a gang fall (Volcano pkg/scheduler/actions/gangpreempt)."""
        return _spared(self._preempt_gangs, preemptor, victims)

    def evictable_by_reclaim(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        return self._but_owned(_spared(self._reclaim_gangs, preemptor, victims), preemptor, victims)

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        """Where nobody knows shares, no queue has one that it could have back: two would take from each other for ever."""
        votes = [vote for may in self._may_reclaim if (vote := may(queue, task)) is not None]
        return bool(votes) and all(votes)

    @property
    def names_victims(self) -> bool:
        return any(self._victims)

    def victims(self, running: Sequence[Task]) -> Mapping[str, str]:
        """The first tier that names anybody decides."""
        for tier in self._victims:
            found = {uid: why for named in tier for uid, why in named(running).items()}
            if found:
                return found
        return {}

    # -- nodes --------------------------------------------------------------------------------------------------

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part = Part.ALL) -> Iterator[Verdict]:
        for plugin in self._filters:
            if plugin.constrains(state, cls, part):
                yield from plugin.verdicts(state, cls, rows, part)

    def constrains(self, state: State, cls: PodClass, part: Part = Part.ALL) -> bool:
        """Return whether any filter beyond resources and devices can refuse a node."""
        return any(plugin.constrains(state, cls, part) for plugin in self._filters)

    def refused_for_pods(self, state: State, cls: PodClass) -> NDArray[np.bool_] | None:
        """Rows that the class may not go to because of pods that run elsewhere; None when it minds none."""
        found: NDArray[np.bool_] | None = None
        for verdict in self.verdicts(state, cls, None, Part.PODS):
            found = verdict.failed if found is None else found | verdict.failed
        return found

    def scorers(self, state: State, cls: PodClass) -> list[Scorer]:
        """``scores`` is the sum of these, taken in their order."""
        return [scorer for plugin in self._scores if (scorer := plugin.scorer(state, cls)) is not None]

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        return _sum(plugin.scores(state, cls, rows) for plugin in self._scores)

    def several(self, state: State, cls: PodClass) -> list[Several]:
        """As ``scorers``, of plugins that score a few rows together."""
        return [found for plugin in self._scores if (found := plugin.several(state, cls)) is not None]

    def scores_version(self, state: State, cls: PodClass) -> int:
        """Another number whenever ``scores`` of nodes that did not change may be others; 0: they never are."""
        return sum([version(state, cls) for version in self._versions])

    def relative(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        return _sum(plugin.relative(state, cls, fits) for plugin in self._scores)

    def bounds(self, state: State, task: Task) -> tuple[Verdict, ...]:
        return tuple([verdict for plugin in self._bounds for verdict in plugin.bounds(state, task)])

    def task_scores(self, state: State, task: Task) -> NDArray[np.float64] | None:
        return _sum(plugin.task_scores(state, task) for plugin in self._task_scorers)

    def domain_scores(self, state: State, classes: Sequence[PodClass], domains: Sequence[Domain]) -> list[float]:
        parts = [plugin.domain_scores(state, classes, domains) for plugin in self._domain_scores]
        return [sum(scores) for scores in zip(*parts, strict=True)] if parts else [0.0] * len(domains)


def _vote(tiers: Sequence[Sequence[Callable[[Job], int]]], job: Job) -> bool:
    """Any negative vote rejects; a tier with a positive one permits without asking later tiers; all abstaining permits."""
    for tier in tiers:
        permitted = False
        for vote in tier:  # the first negative vote ends it: who votes no has also said why
            answer = vote(job)
            if answer < 0:
                return False
            permitted |= answer > 0
        if permitted:
            return True
    return True


def _spared(tiers: Sequence[Sequence[Vote]], preemptor: Task, victims: Sequence[Task]) -> Spared:
    """The first tier that lets anybody go decides; in it, whoever one plugin spares stays. Where no tier lets anybody go, the
    first one that voted says why."""
    first: dict[str, str] | None = None
    for tier in tiers:
        votes = [spared for vote in tier if (spared := vote(preemptor, victims)) is not None]
        if not votes:
            continue
        stay = {uid: why for spared in reversed(votes) for uid, why in spared.items()}
        if any(victim.uid not in stay for victim in victims):
            return stay
        first = stay if first is None else first
    return {victim.uid: NOBODY_VOTES for victim in victims} if first is None else first


def _sum(parts: Iterable[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    total: NDArray[np.float64] | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total
