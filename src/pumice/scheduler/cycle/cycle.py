"""The running cycle: what it works on, what it has found so far, and what shall be done in the world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pumice.effects.vocabulary import SchedulerEffect
from pumice.scheduler.cycle.statement import START, Mark, Statement
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.evaluation import Among, among
from pumice.scheduler.placing.placer import Placer
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.scheduling_queue import UNTRIED, Attempt
from pumice.scheduler.state.state import State

PREEMPTING = frozenset({"preempt", "reclaim", "gangpreempt", "gangreclaim"})
RETRY = 60.0
"""Seconds after which a job that waits for a release or a queue is tried again although nothing of the kind was seen. What it
waits for activates it; this is for what nobody thought of."""

LEAST_JOBS = 32
"""Jobs tried in every cycle, within half of its time whatever came before, and one in any case: it always gets somewhere."""


@dataclass(slots=True)
class Measures:
    """The times of a cycle's parts, in seconds, and its results."""

    actions: dict[str, float] = field(default_factory=dict)
    plugins: dict[tuple[str, str], float] = field(default_factory=dict)
    open: float = 0.0
    total: float = 0.0
    placed: int = 0
    refused: int = 0
    jobs: list[float] = field(default_factory=list)
    """Seconds from creation to standing, of the jobs whose gang stood for the first time."""
    assumed: list[float] = field(default_factory=list)
    """Seconds from creation to decision, of the pods placed."""
    stages: list[tuple[str, float]] = field(default_factory=list)
    """Predicate and Scoring: seconds of each pass over many nodes."""
    preemption_attempts: int = 0
    """Pods for which room was to be made."""
    evictions: dict[str, int] = field(default_factory=dict)
    """By action, how many pods were told to go."""
    unready: list[str] = field(default_factory=list)
    """Keys of jobs that were tried and do not stand."""


@dataclass(slots=True)
class Plan:
    """The decisions of a cycle."""

    effects: list[SchedulerEffect]
    measures: Measures
    more: bool = False
    """True where jobs are left that the cycle had no time for."""


@dataclass(slots=True, eq=False)
class Cycle:
    """The running cycle. ``uuid`` marks the conditions that it writes; ``deadline`` ends it early (in perf_counter
    seconds of ``tick``), so that a huge backlog does not keep the first Bindings waiting."""

    state: State
    framework: Framework
    placer: Placer
    now: float
    uuid: str
    budget: float = float("inf")
    tick: Callable[[], float] = perf_counter
    wall: float = 0.0
    """The time of day, for what people and the API server date; ``now`` is never set back."""
    at_least: int = LEAST_JOBS
    """Jobs that are tried although the time is over."""
    heard: Callable[[bool], bool] | None = None
    """The hook of a journal: it notes each answer of ``past``, or gives the answer that it has noted."""
    effects: list[SchedulerEffect] = field(default_factory=list)
    measures: Measures = field(default_factory=Measures)
    attempts: defaultdict[Job, Attempt] = field(init=False)
    """The findings about each job that it looked at (``SchedulingQueue.attempts``)."""
    uncommitted: list[Statement] = field(default_factory=list)
    """Nominations beside what was committed, and all places of pipelined gangs: kept from others until the cycle ends."""
    hints: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """By the uids of pods that were laid out together: the node, and what to take there (``planning``)."""
    before: dict[str, str] = field(default_factory=dict)
    """The nodes that pods of pipelined gangs had in the last cycle, by uid: they are looked at first."""
    gangs: dict[Job, int | None] = field(default_factory=dict)
    """Number of members that each gang lacks; None: it is ready."""
    given_back: set[str] = field(default_factory=set)
    """The uids of claims whose devices are given back by effects of this cycle."""
    actions: frozenset[str] = frozenset()
    """Those that run in it."""
    started: float = 0.0

    def __post_init__(self) -> None:
        self.attempts = self.state.scheduling_queue.attempts

    def attempt(self, job: Job) -> Attempt:
        """Return what it has found of the job so far, to be read."""
        return self.attempts.get(job, UNTRIED)

    @property
    def preempts(self) -> bool:
        """Return whether an action of it lets running pods go for waiting ones."""
        return not self.actions.isdisjoint(PREEMPTING)

    def out_of_time(self) -> bool:
        """Return whether it has taken as long as it may."""
        return self.past(self.started)

    def past(self, since: float, part: float = 1.0) -> bool:
        """Return whether more than this part of its time has passed since then. Nothing else that it decides depends on how
        quick the machine is."""
        answer = self.tick() - since > self.budget * part
        return answer if self.heard is None else self.heard(answer)

    def among(self, task: Task, rows: Rows | None = None) -> Among | None:
        """Among which nodes the pod may choose, beyond what its class says; ``rows``: nothing but these."""
        return among(self.framework, self.state, task, rows)

    def statement(self) -> Statement:
        """Nothing done yet."""
        return Statement(self.state, self.framework)

    def take_back(self, statement: Statement, tasks: Iterable[Task], mark: Mark = START) -> None:
        """Take back what was done since the mark. These pods are tried anew: while others held the room, their classes may have
        become unschedulable."""
        statement.rollback(mark)
        self.placer.reconsider(task.cls for task in tasks)

    def postpone(self, job: Job) -> None:
        """There was no time to try all of its pods: whatever was found so far, it goes on in the next cycle."""
        attempt = self.attempts[job]
        attempt.tried = attempt.blocked = False

    # -- what plugins may look at and say -----------------------------------------------------------------------

    def looked_at(self) -> Iterable[Job]:
        looked_at = (job for job, found in self.attempts.items() if found.tried or found.explained)
        return {**self.state.scheduling_queue.dirty, **dict.fromkeys(looked_at)}

    def report_ready(self, job: Job) -> None:
        self.gangs[job] = None

    def report_unready(self, job: Job, members: int) -> None:
        self.gangs[job] = members
