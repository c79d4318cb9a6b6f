"""The roles of plugins (Volcano pkg/scheduler/framework/session_plugins.go).

A plugin is one small class that takes the roles it has an opinion in: a job order, a filter, a node score. What a role asks is
abstract; what it may leave open has an answer here. ``switch`` is what turns the role off for one plugin of a configuration
(``enableJobOrder: false``). Orders are keys instead of comparisons: smaller keys first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.model.refusal import Short
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.domains import Domain
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.resources import Vector
from pumice.scheduler.state.state import State
from pumice.wire.scheduler_conf import Arguments

PERMIT, ABSTAIN, REJECT = 1, 0, -1


class Session(Protocol):
    """The plugins' view of the running cycle."""

    @property
    def state(self) -> State: ...
    @property
    def now(self) -> float: ...
    @property
    def wall(self) -> float: ...
    @property
    def started(self) -> float: ...
    @property
    def actions(self) -> frozenset[str]:
        """Those that run in it."""

    def past(self, since: float, part: float = 1.0) -> bool:
        """Return whether more than this part of its time has passed since then."""

    def looked_at(self) -> Iterable[Job]:
        """Jobs that changed, were tried or had their reasons found."""

    def report_ready(self, job: Job) -> None:
        """Have the PodGroup say that the gang is whole."""

    def report_unready(self, job: Job, members: int) -> None:
        """Have the PodGroup say that so many members find no place, once the reasons are known."""


class Plugin:
    """Base of all plugins: no opinion on anything."""

    name = ""
    hierarchical = False
    """True if queues are taken with those above them (``enableHierarchy``)."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments

    def open(self, session: Session) -> None:
        """A cycle begins."""

    def close(self, session: Session) -> None:
        """All actions have run."""


class Role(Plugin, ABC):
    switch: ClassVar[str] = ""
    """The configuration's word for it; empty: nothing turns it off."""


# -- orders -----------------------------------------------------------------------------------------------------------


class JobOrder(Role):
    switch = "JobOrder"

    @abstractmethod
    def job_order_key(self, job: Job) -> Any: ...


class QueueOrder(Role):
    switch = "QueueOrder"

    @abstractmethod
    def queue_order_key(self, queue: QueueState) -> Any: ...


class HierarchicalQueueOrder(QueueOrder):
    """The plugin that sees queues as a tree where it is ``hierarchical``. Its key of a queue is then a tuple with one for each
    branch, which changes by what is placed below that branch alone."""

    @abstractmethod
    def branches(self, queue: QueueState) -> Sequence[Hashable]:
        """From the root down to the queue."""


class TaskOrder(Role):
    switch = "TaskOrder"

    @abstractmethod
    def task_order_key(self, task: Task) -> Any: ...


# -- jobs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Invalid:
    """The reason for which a job takes no part in this cycle."""

    reason: str
    message: str


class JobValid(Role):
    @abstractmethod
    def job_valid(self, job: Job) -> Invalid | None: ...


class JobReady(Role):
    switch = "JobReady"

    @abstractmethod
    def job_ready(self, job: Job) -> bool: ...


class JobPipelined(Role):
    """A vote on keeping the nominations of a job that is not ready."""

    switch = "JobPipelined"

    @abstractmethod
    def job_pipelined(self, job: Job) -> int: ...


class JobEnqueueable(Role):
    """A vote on moving a pending job to Inqueue."""

    switch = "JobEnqueued"

    @abstractmethod
    def job_enqueueable(self, job: Job) -> int: ...

    def job_enqueued(self, job: Job) -> None:
        """The vote was for it."""


class JobDue(Role):
    @abstractmethod
    def job_due(self, job: Job) -> float | None:
        """Return when it will answer otherwise about the job although nothing happens."""


# -- queues -----------------------------------------------------------------------------------------------------------


class Overused(Role):
    switch = "Overused"

    @abstractmethod
    def overused(self, queue: QueueState) -> bool: ...


class Allocatable(Role):
    switch = "Allocatable"

    @abstractmethod
    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        """Return whether the queue may be charged so much more."""

    @abstractmethod
    def short_of(self, queue: QueueState, amounts: Vector) -> str:
        """Return the resource that a queue lacks when it is not ``allocatable``, with the numbers, for people."""

    def may_borrow(self, queue: QueueState, amounts: Vector) -> bool:
        """Return whether the queue may be charged so much more although that is beyond its share, for it would lie idle else."""
        return self.allocatable(queue, amounts)

    def excess(self, queue: QueueState, amounts: Vector) -> float | None:
        """Return how far so much more would bring the queue over its share, as a part of the cluster; None of who knows no
        shares."""


class Standing(NamedTuple):
    """The state of one queue: what it has taken and may take at most, what it deserves and is guaranteed."""

    taken: Vector
    most: Vector
    deserved: Vector
    guarantee: Vector


class QueueShares(Role):
    """The plugin that knows the queues' shares, for reclaim and for people."""

    @abstractmethod
    def standing(self, queue: QueueState) -> Standing: ...

    @abstractmethod
    def share(self, queue: QueueState) -> float:
        """The largest part that the queue uses of anything that it deserves."""


# -- making room ------------------------------------------------------------------------------------------------------

Spared = Mapping[str, str]
"""By uid, why a pod stays: a sentence for people, such as "gang b would fall under its minimum 4"."""


class JobStarving(Role):
    """Jobs that may preempt."""

    switch = "JobStarving"

    @abstractmethod
    def job_starving(self, job: Job) -> bool: ...


class Preemptable(Role):
    """A vote on who goes for the sake of a pod of the same queue."""

    switch = "Preemptable"

    @abstractmethod
    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared | None:
        """Return the victims that stay; all others may be evicted. None abstains. The victims come in the order in which they
        would go: who counts what is left of a job or a queue counts down along them."""


class Reclaimable(Role):
    """A vote on who goes for the sake of a pod of another queue."""

    switch = "Reclaimable"

    @abstractmethod
    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared | None:
        """As ``not_preemptable``."""


class Preemptive(Role):
    """Queues that may reclaim from others."""

    switch = "Preemptive"

    @abstractmethod
    def preemptive(self, queue: QueueState, task: Task) -> bool | None:
        """None abstains."""


class VictimTasks(Role):
    """VictimTasks: pods to evict although no pod waits for their place (Volcano pkg/scheduler/actions/shuffle)."""

    switch = "Victim"

    @abstractmethod
    def victims(self, running: Sequence[Task]) -> Mapping[str, str]:
        """By uid why it goes, for people."""


# -- nodes, for many rows at once; rows None means all ------------------------------------------------------------------


class Part(Flag):
    """The filters that are asked: those that look at the node and what is there, those that look at pods elsewhere, or all."""

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


class Predicate(Role):
    switch = "Predicate"

    @abstractmethod
    def constrains(self, state: State, cls: PodClass, part: Part) -> bool:
        """Return whether ``verdicts`` can refuse any node at all; False saves the asking. Of ``Part.NODE`` alone it is asked
        once for a class and a version of the nodes."""

    @abstractmethod
    def verdicts(self, state: State, cls: PodClass, rows: Rows | None, part: Part) -> Iterable[Verdict]: ...


Scorer = Callable[[int, list[int], list[int]], float]
"""The score of one row, given its columns of what there is and of what is used as plain numbers."""


Several = Callable[[list[int]], Sequence[float]]
"""The scores of a few rows."""


class NodeOrder(Role):
    switch = "NodeOrder"

    @abstractmethod
    def scores(self, state: State, cls: PodClass, rows: Rows | None) -> NDArray[np.float64] | None: ...

    def scorer(self, state: State, cls: PodClass) -> Scorer | None:
        """The same as ``scores`` for single rows, made once for a class; None where it has nothing to say."""

        def by_arrays(row: int, have: list[int], used: list[int]) -> float:
            found = self.scores(state, cls, np.array([row], np.intp))
            return 0.0 if found is None else float(found[0])

        return by_arrays

    def several(self, state: State, cls: PodClass) -> Several | None:
        """In place of ``scorer``, for who scores a few rows together as quickly as one."""
        return None

    def version(self, state: State, cls: PodClass) -> int:
        """Another number whenever ``scores`` of nodes that did not change may be others for the class; 0: they never are."""
        return 0

    def relative(self, state: State, cls: PodClass, fits: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        """Scores that depend on which other nodes fit (normalised over them). Shape (capacity,)."""


# -- nodes for one pod, by its queue or its job; whatever follows from the pod alone belongs to its class -------------


class TaskPredicate(Role):
    switch = "Predicate"

    @abstractmethod
    def bounds(self, state: State, task: Task) -> Iterable[Verdict]:
        """Over all rows: where this pod may not go, though its class may."""


class TaskNodeOrder(Role):
    switch = "NodeOrder"

    @abstractmethod
    def task_scores(self, state: State, task: Task) -> NDArray[np.float64] | None:
        """Over all rows, on top of the scores of its class."""


# -- domains of the network, of which one takes a job or a sub-group as a whole ------------------------------------------


class HyperNodeOrder(Role):
    switch = "HyperNodeOrder"

    @abstractmethod
    def domain_scores(self, state: State, classes: Sequence[PodClass], domains: Sequence[Domain]) -> Sequence[float]:
        """Score how well each domain, among others of its tier, suits pods of these classes together."""


# -- every tentative placement and its reversal -------------------------------------------------------------------------


class AllocationHandler(Role):
    @abstractmethod
    def placed(self, task: Task) -> None: ...

    @abstractmethod
    def removed(self, task: Task) -> None: ...
