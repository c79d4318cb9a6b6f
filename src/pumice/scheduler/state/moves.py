"""Moves that the action defrag carries out: one plan at a time, and the places that are held for the pods that it moves.

A place is held in the ledger until the pod that is made anew has it. Nothing of it is written anywhere: a scheduler that is
killed forgets it, and with it what was held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pumice.effects.backoff import Backoff
from pumice.model.cards import Allocation
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.ledger import Ledger, Placement, closed_to_others
from pumice.scheduler.state.nominations import Nominations
from pumice.scheduler.state.resources import Request
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.scheduler.state.tasks import NO_BACKOFF, Retry
from pumice.wire.quantity import parse_duration
from pumice.wire.scheduler_conf import SchedulerConf

ACTION: Final = "defrag"
INTERVAL: Final = "pumice.interval"
MAX_MOVES: Final = "pumice.max-moves"
MIN_AGE: Final = "pumice.min-age"
IN_VAIN: Final = 3600.0
"""Seconds after which a job is asked about again at the latest for which no plan was found, or one was dropped."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The arguments of the action. ``interval``: seconds between two evictions, and those that a pod has waited before others are
    moved for it; ``most``: pods that one plan moves; ``min_age``: seconds for which each has run at least."""

    interval: float = 60.0
    most: int = 2
    min_age: float = 300.0


def terms_of(conf: SchedulerConf) -> tuple[Terms | None, list[str]]:
    """Return what the arguments say (``configurations:``), or None without the action; and complaints."""
    if ACTION not in conf.actions:
        return None, []
    arguments, usual, complaints = conf.action(ACTION), Terms(), list[str]()

    def duration(key: str, otherwise: float, words: str) -> float:
        text = arguments.text(key)
        try:
            return max(1.0, parse_duration(text)) if text else otherwise
        except ValueError as error:
            complaints.append(f"configuration {ACTION}: {key}: {error}; {words} is used")
            return otherwise

    interval, min_age = duration(INTERVAL, usual.interval, "1m"), duration(MIN_AGE, usual.min_age, "5m")
    most = arguments.integer(MAX_MOVES, usual.most)
    if not 1 <= most <= 16:
        complaints.append(f"configuration {ACTION}: {MAX_MOVES}: {most} is not between 1 and 16; {usual.most} is used")
        most = usual.most
    unknown = sorted(set(arguments) - {INTERVAL, MAX_MOVES, MIN_AGE})
    complaints += [f"configuration {ACTION}: unknown argument {key} is ignored" for key in unknown]
    return Terms(interval, most, min_age), complaints + arguments.complaints


@dataclass(frozen=True, slots=True)
class Step:
    """One pod that is moved, what it holds, and the place that is held for who is made anew by its ``owner``."""

    uid: str
    key: str
    owner: str
    node: str
    held: tuple[Allocation, ...]
    request: Request
    target: str
    allocations: tuple[Allocation, ...]

    @property
    def hold(self) -> str:
        """Under which uid its place stands in the ledger."""
        return f"held for {self.key} ({self.uid})"

    def owns(self, task: Task) -> bool:
        """Return whether a pod has the same controller."""
        return task.owner == self.owner and task.namespace == self.key.partition("/")[0]

    @property
    def place(self) -> Placement:
        """Return what is held, on top of whatever is still there; cards that are cut take nobody else, as in a nomination."""
        return Placement(self.hold, self.target, self.request, tuple(map(closed_to_others, self.allocations)))


@dataclass(slots=True)
class Moving:
    """A plan that is being carried out for a job. ``starts``: its pods by uid, and their nodes."""

    job: Job
    starts: Mapping[str, str]
    steps: tuple[Step, ...]
    done: int = 0
    told: float | None = None
    """When the pod of this step was told to go."""
    again: str = ""
    """The uid of the one that was made anew, once it has its place."""
    last: float = 0.0
    """When a pod was told to go last."""
    seen: frozenset[str] = frozenset()
    """Uids of pods of the same controller that waited then: none of them is made anew for it."""

    @property
    def rest(self) -> Moving:
        """The same for nobody, with the pod alone that was told to go."""
        return Moving(self.job, {}, self.steps[self.done : self.done + 1], 0, self.told, self.again, self.last, self.seen)

    @property
    def step(self) -> Step | None:
        return self.steps[self.done] if self.done < len(self.steps) else None


@dataclass(slots=True)
class Moves:
    """The moves that are under way. ``terms`` None: the configuration has no such action."""

    ledger: Ledger
    scheduling_queue: SchedulingQueue
    nominations: Nominations
    terms: Terms | None = None
    plan: Moving | None = None
    due: float = 0.0
    """No plan is looked for before."""
    after: dict[Job, str] = field(default_factory=dict)
    """Jobs for which a search ran out of time, and the node at which the next one goes on."""
    in_vain: dict[Job, Retry] = field(default_factory=dict)
    """Jobs that are not asked about for a while."""

    def configure(self, terms: Terms | None) -> None:
        """Another configuration decides now: what was held is free."""
        if self.plan is not None:
            self.end(0.0)
        self.terms, self.due = terms, 0.0
        self.after.clear()
        self.in_vain.clear()

    def begin(self, plan: Moving) -> None:
        self.plan = plan
        for step in plan.steps:
            self.ledger.reserve(step.place)

    def end(self, now: float, *, stopped: bool = True) -> None:
        """Give back whatever is held: the places, and, where the plan was ``stopped``, those that were promised."""
        plan, self.plan = self.plan, None
        assert plan is not None
        for step in plan.steps:
            self.ledger.release(step.hold)
        if stopped:
            for uid in plan.starts:
                if uid in self.nominations.kept:
                    self.nominations.lapse_job(self.nominations.kept[uid].task)
            self.rest(plan.job, now)
        self.scheduling_queue.released()
        self.due = now + (self.terms.interval if self.terms is not None else 0.0)

    def rest(self, job: Job, now: float) -> None:
        """Ask about a job no more for a while, which is longer each time."""
        first = self.terms.interval if self.terms is not None else IN_VAIN
        self.in_vain[job] = self.in_vain.get(job, NO_BACKOFF).refused(now, Backoff(first, max(first, IN_VAIN)))
        self.after.pop(job, None)

    def tidy(self) -> None:
        """Forget jobs that wait no more."""
        self.in_vain = {job: retry for job, retry in self.in_vain.items() if job.known and job.pending}
        self.after = {job: node for job, node in self.after.items() if job.known and job.pending}
