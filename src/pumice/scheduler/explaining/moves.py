"""Pods that would be moved so that a waiting pod or gang starts, or cards come free: the question, and plans one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pumice.model.errors import BadInput, nearest
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.defragmenting.asking import Limits, Stays, gang_of, movers_of, refusal_of
from pumice.scheduler.cycle.defragmenting.search import FreeCard, Plan, Search, free_cards, openings
from pumice.scheduler.cycle.defragmenting.trial import Trial
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.what_if import PLACING
from pumice.scheduler.state.jobs import Job, Status, Task


@dataclass(frozen=True, slots=True)
class ForPod:
    """The pod shall start, with the others of its gang."""

    namespace: str
    name: str

    @property
    def text(self) -> str:
        return f"pod {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ForGroup:
    """The gang of a PodGroup shall start."""

    namespace: str
    name: str

    @property
    def text(self) -> str:
        return f"podgroup {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ForCards:
    """So many cards shall hold nobody. ``model``: a part of their name; empty: any."""

    number: int
    model: str = ""

    @property
    def text(self) -> str:
        return f"{self.number} free {self.model or 'card'}{'' if self.model or self.number == 1 else 's'}"


Goal = ForPod | ForGroup | ForCards


@dataclass(slots=True)
class Question:
    """A question for moves. ``needless``: why nothing is to be moved, or why moving does not help; empty: there is something
    to search for."""

    goal: Goal
    needless: str = ""
    reached: bool = False
    """True where the goal is met without a move."""
    starting: tuple[Task, ...] = ()
    free: tuple[FreeCard, ...] = ()
    """The cards that are free already."""
    search: Search | None = None
    movers: int = 0
    stays: tuple[Stays, ...] = ()

    def plans(self, most: int) -> Iterator[Plan]:
        """The fewest moves first."""
        if self.search is not None:
            yield from self.search.plans(most)


def question(engine: Engine, goal: Goal, now: float, limits: Limits) -> Question:
    """Place whoever has a place now, then look what is to be searched for. The engine should not be used further once plans were
    asked for. Raises BadInput where the goal names nothing that is there."""
    engine.actions = [(name, action) for name, action in engine.actions if name in PLACING]
    job, named = _named(engine, goal)
    engine.cycle(now)
    cycle = engine.open_cycle(now, plugins=True)
    trial = Trial(cycle, limits.looks)
    if job is None:
        assert isinstance(goal, ForCards)
        return _cards(cycle, trial, goal, now, limits)
    if (named is None and cycle.framework.job_ready(job)) or (named is not None and named.status is not Status.PENDING):
        where = f"{named.node} takes it" if named is not None else "it has all the pods that it needs"
        return Question(goal, f"{where}: nothing is to be moved", reached=True)
    waiting = gang_of(cycle, job, named)
    refusal = refusal_of(cycle, job, waiting)
    if refusal:
        return Question(goal, refusal, starting=tuple(waiting))
    movers, stays = movers_of(cycle, now, limits, max(job.priority, *(task.priority for task in waiting)))
    return Question(goal, "", False, tuple(waiting), (), Search(trial, movers, waiting), len(movers), stays)


def _named(engine: Engine, goal: Goal) -> tuple[Job | None, Task | None]:
    """The job, and the pod where one is named. Raises BadInput."""
    match goal:
        case ForPod(namespace, name):
            key = f"{namespace}/{name}"
            keys = {task.key: task for task in engine.state.tasks.values()}
            if key not in keys or keys[key].job is None:
                raise BadInput(f"no pod {key} that this scheduler places{nearest(key, sorted(keys))}")
            return keys[key].job, keys[key]
        case ForGroup(namespace, name):
            key = f"{namespace}/{name}"
            jobs = {f"{job.namespace}/{job.name}": job for job in engine.state.jobs.values()}
            if key not in jobs:
                raise BadInput(f"no PodGroup {key}{nearest(key, sorted(jobs))}")
            return jobs[key], None
    return None, None


def _cards(cycle: Cycle, trial: Trial, goal: ForCards, now: float, limits: Limits) -> Question:
    free, held = free_cards(trial, goal.model)
    if not free and not held:
        types = sorted({card.type for t in cycle.state.ledger.device_tables.values()
                        for device_table in t.nodes.values() for card in device_table.inventory.cards})  # fmt: skip
        there = f"; there are {', '.join(types)}" if types else "; no node has cards"
        raise BadInput(f"no open card of model {goal.model!r}{there}")
    if len(free) >= goal.number:
        return Question(goal, f"{len(free)} are free already: nothing is to be moved", reached=True, free=tuple(free))
    if len(free) + len(held) < goal.number:
        return Question(goal, f"moving pods does not help: there are {len(free) + len(held)} such cards", free=tuple(free))
    movers, stays = movers_of(cycle, now, limits)
    ways = openings(free, held, movers, goal.number, limits.moves)
    return Question(goal, "", False, (), tuple(free), Search(trial, movers, (), ways), len(movers), stays)
