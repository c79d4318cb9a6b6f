"""Plugins and how their answers combine (spec volcano-core 7).

A plugin is one small class that overrides the questions it has an opinion on. ``Framework`` holds the plugins of one
configuration in tier order and asks them. Orders are keys instead of comparisons: the first plugin whose keys differ
decides, which is what comparing the tuples of keys does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.engine.state.jobs import Job, QueueState, Task
from pumice.engine.state.nodes import Rows
from pumice.engine.state.resources import Vector
from pumice.model.refusal import Short
from pumice.wire.scheduler_conf import Arguments, PluginConf, SchedulerConf

if TYPE_CHECKING:
    from pumice.engine.cycle.cycle import Cycle
    from pumice.engine.state.classes import PodClass
    from pumice.engine.state.state import State

PERMIT, ABSTAIN, REJECT = 1, 0, -1


class Part(Flag):
    """Which filters are asked: those that look at the node and what is there, those that look at pods elsewhere, or all."""

    NODE = auto()
    PODS = auto()
    ALL = NODE | PODS


@dataclass(frozen=True, slots=True)
class Verdict:
    """One filter's answer for many rows. ``failed`` is True where it refuses; ``final`` where evicting would not help;
    ``abort`` where further filters add no reasons."""

    failed: NDArray[np.bool_]
    text: str
    final: bool = False
    abort: bool = False
    short: Short = Short.REQUEST


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a job takes no part in this cycle."""

    reason: str
    message: str


class Plugin:
    """Base of all plugins: no opinion on anything. Override what you decide."""

    name = ""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments

    def open(self, cycle: Cycle) -> None:
        """A cycle begins."""

    def close(self, cycle: Cycle) -> None:
        """All actions have run."""

    # orders: smaller keys first
    def job_key(self, job: Job) -> Any: ...
    def queue_key(self, queue: QueueState) -> Any: ...
    def task_key(self, task: Task) -> Any: ...

    # jobs
    def job_valid(self, job: Job) -> Invalid | None: ...
    def job_ready(self, job: Job) -> bool:
        return True

    def job_pipelined(self, job: Job) -> int:
        return ABSTAIN

    def job_enqueueable(self, job: Job) -> int:
        return ABSTAIN

    def job_enqueued(self, job: Job) -> None: ...

    def job_due(self, job: Job) -> float | None:
        """When it will answer otherwise about the job although nothing happens."""

    # queues
    def overused(self, queue: QueueState) -> bool:
        return False

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        """Whether the queue may be charged so much more."""
        return True

    def lends(self, queue: QueueState, amounts: Vector) -> bool:
        """Whether the queue may be charged so much more although that is beyond its share, for it would lie idle else."""
        return self.allocatable(queue, amounts)

    def excess(self, queue: QueueState, amounts: Vector) -> float:
        """How far so much more would bring the queue over its share, as a part of the cluster."""
        return 0.0

    def short_of(self, queue: QueueState, amounts: Vector) -> str:
        """What a queue lacks that is not ``allocatable``, with the numbers, for people."""
        return ""

    # nodes, for many rows at once; rows None means all
    def constrains(self, state: State, cls: PodClass, part: Part = Part.ALL) -> bool:
        """Whether ``verdicts`` can refuse any node at all; False saves the asking."""
        return True

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part = Part.ALL) -> Iterable[Verdict]:
        return ()

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None: ...
    def score(self, state: State, cls: PodClass, row: int, have: list[int], used: list[int]) -> float | None:
        """The same as ``scores`` for one row, with its columns as plain numbers; None when there is no such form."""
        return None

    def relative(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        """Scores that depend on which other nodes fit (normalised over them). Shape (capacity,)."""

    # every tentative placement and its reversal
    def placed(self, task: Task) -> None: ...
    def removed(self, task: Task) -> None: ...


Answer = TypeVar("Answer", bound=Callable[..., Any])


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
        self._job_keys = self._flat("job_key", "JobOrder")
        self._queue_keys = self._flat("queue_key", "QueueOrder")
        self._task_keys = self._flat("task_key", "TaskOrder")
        self._valid = self._flat("job_valid", "")
        self._ready = self._flat("job_ready", "JobReady")
        self._pipelined = self._by_tier("job_pipelined", "JobPipelined")
        self._enqueueable = self._by_tier("job_enqueueable", "JobEnqueued")
        self._enqueued = self._flat("job_enqueued", "JobEnqueued")
        self._due = self._flat("job_due", "")
        self._overused = self._flat("overused", "Overused")
        self._allocatable = self._flat("allocatable", "Allocatable")
        payers: list[Plugin] = [allocatable.__self__ for allocatable in self._allocatable]  # type: ignore[attr-defined]
        self._lends = [plugin.lends for plugin in payers]
        self._excess = self._flat("excess", "Allocatable")
        self._short_of = self._flat("short_of", "Allocatable")
        self._verdicts = self._flat("verdicts", "Predicate")
        self._constrains = [verdicts.__self__.constrains for verdicts in self._verdicts]  # type: ignore[attr-defined]
        self._scores = self._flat("scores", "NodeOrder")
        plugins: list[Plugin] = [scores.__self__ for scores in self._scores]  # type: ignore[attr-defined]
        self._each = [plugin.score for plugin in plugins]
        self._relative = self._flat("relative", "NodeOrder")
        self._placed = self._flat("placed", "")
        self._removed = self._flat("removed", "")

    def has(self, name: str) -> bool:
        return any(plugin.name == name for plugin in self.plugins)

    def _by_tier(self, method: str, switch: str) -> list[list[Callable[..., Any]]]:
        return [
            [
                getattr(plugin, method)
                for entry, plugin in tier
                if getattr(type(plugin), method) is not getattr(Plugin, method)
                and (not switch or entry.enabled(switch))
            ]
            for tier in self._tiers
        ]

    def _flat(self, method: str, switch: str) -> list[Callable[..., Any]]:
        return [answer for tier in self._by_tier(method, switch) for answer in tier]

    # -- orders -------------------------------------------------------------------------------------------------

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """The job's place. A job that holds nothing keeps its key until something of it changes; what a job holds is
        weighed against the whole cluster, so such a key is worked out each time."""
        if job.sort_key is None or job.allocated:
            job.sort_key = (*[key(job) for key in self._job_keys], job.order())
        return job.sort_key

    def queue_key(self, queue: QueueState) -> tuple[Any, ...]:
        return (*[key(queue) for key in self._queue_keys], queue.created, queue.uid, queue.name)

    def task_key(self, task: Task) -> tuple[Any, ...]:
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

    def open_queues(self, cycle: Cycle) -> None:
        """Let the plugins that have a say in what queues may take look at the queues anew."""
        for plugin in self.plugins:
            if type(plugin).allocatable is not Plugin.allocatable:
                plugin.open(cycle)

    def overused(self, queue: QueueState) -> bool:
        return any(over(queue) for over in self._overused)

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        return all(may(queue, amounts) for may in self._allocatable)

    def lends(self, queue: QueueState, amounts: Vector) -> bool:
        return all(may(queue, amounts) for may in self._lends)

    def excess(self, queue: QueueState, amounts: Vector) -> float:
        return max((excess(queue, amounts) for excess in self._excess), default=0.0)

    def short_of(self, queue: QueueState, task: Task, amounts: Vector | None = None) -> str:
        amounts = task.cls.amounts if amounts is None else amounts
        return next((text for tell in self._short_of if (text := tell(queue, amounts))), "")

    def placed(self, task: Task) -> None:
        for tell in self._placed:
            tell(task)

    def removed(self, task: Task) -> None:
        for tell in self._removed:
            tell(task)

    # -- nodes --------------------------------------------------------------------------------------------------

    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part = Part.ALL) -> Iterator[Verdict]:
        for ask, constrains in zip(self._verdicts, self._constrains, strict=True):
            if constrains(state, cls, part):
                yield from ask(state, cls, rows, part)

    def constrains(self, state: State, cls: PodClass, part: Part = Part.ALL) -> bool:
        """Whether any filter beyond resources and devices can refuse a node."""
        return any(constrains(state, cls, part) for constrains in self._constrains)

    def refused_for_pods(self, state: State, cls: PodClass) -> NDArray[np.bool_] | None:
        """Rows that the class may not go to because of pods that run elsewhere; None when it minds none."""
        found: NDArray[np.bool_] | None = None
        for verdict in self.verdicts(state, cls, None, Part.PODS):
            found = verdict.failed if found is None else found | verdict.failed
        return found

    def score(self, state: State, cls: PodClass, row: int, have: list[int], used: list[int]) -> float:
        """Score of one node. ``have`` and ``used`` are its columns in the node table."""
        total = 0.0
        for score in self._each:
            part = score(state, cls, row, have, used)
            if part is None:
                found = self.scores(state, cls, np.array([row], np.intp))
                return 0.0 if found is None else float(found[0])
            total += part
        return total

    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None:
        return _sum(score(state, cls, rows) for score in self._scores)

    def relative(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        return _sum(score(state, cls, fits) for score in self._relative)


def _vote(tiers: Sequence[Sequence[Callable[..., Any]]], job: Job) -> bool:
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


def _sum(parts: Iterable[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    total: NDArray[np.float64] | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total
