"""The answer to ``pumice defrag``: a plan that was searched for and rehearsed, with what it costs, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from pumice.model.cards import Allocation
from pumice.scheduler.cycle.defragmenting.asking import Limits, Stays
from pumice.scheduler.cycle.defragmenting.movers import Mover, mover
from pumice.scheduler.cycle.defragmenting.search import FreeCard
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.moves import Goal, Question, question
from pumice.simulation.rehearsal import (
    PAUSE,
    Moved,
    Objects,
    Played,
    Rehearsal,
    Wanted,
    beside,
    cards_by_node,
    rehearse,
)

REHEARSED = 24
"""Plans that are rehearsed at most."""


@dataclass(frozen=True, slots=True)
class HeldCard:
    """A part of a card, or all of it. ``slice``: the MIG profile, where it is one."""

    card: int
    uuid: str
    memory: int
    cores: int
    slice: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    cards: tuple[HeldCard, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Cards of a node that take nobody for a while."""

    node: str
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveView:
    """One pod that is evicted and made anew. ``lost``: seconds of work, counted from ``since`` (start, checkpoint); ``doubt``:
    why its checkpoint is not believed. ``waits``: it has no place until others have gone.
    ``closed``: the cards that take nobody while it is moved: kept ones, those that it leaves, and the places of others."""

    pod: str
    uid: str
    owner: str
    source: Place
    target: Place
    lost: int
    since: str
    doubt: str
    budgets: tuple[str, ...]
    waits: bool
    closed: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class StartView:
    """A pod that starts when the plan is carried out."""

    pod: str
    uid: str
    target: Place


@dataclass(frozen=True, slots=True)
class FreeView:
    """A card that holds nobody when the plan is carried out."""

    node: str
    card: int
    uuid: str
    model: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a plan of moves. ``lost``: seconds of work; ``budgets``: PodDisruptionBudgets that count a moved pod."""

    restarts: int
    lost: int
    budgets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of `pumice defrag`. ``reached``: the goal is met without a move. ``fewest``: no plan of fewer moves was left
    untried."""

    goal: str
    summary: str
    reached: bool = False
    moves: tuple[MoveView, ...] = ()
    starts: tuple[StartView, ...] = ()
    frees: tuple[FreeView, ...] = ()
    kept: tuple[Kept, ...] = ()
    cost: Cost = Cost(0, 0, ())
    looks: int = 0
    fewest: bool = True
    movable: int = 0
    stays: tuple[Stays, ...] = ()


def planned(make: Callable[[], Engine], objects: Objects, now: float, goal: Goal, limits: Limits) -> Answer:
    """Search and rehearse. ``make``: an engine that has seen the objects. Raises BadInput where the goal names nothing."""
    asked = question(make(), goal, now, limits)
    if asked.search is None:
        return Answer(goal.text, asked.needless, asked.reached, frees=_frees(asked.free) if asked.reached else ())
    found, tried = _best(asked, make, now, objects, limits)
    looks, fewest = asked.search.trial.spent, not asked.search.cut_short
    if found is None:
        rehearsed = f", and none of {tried} that were rehearsed ends as it should" if tried else ""
        bounded = f"; the search ended after {looks} looks" if not fewest else ""
        summary = f"no plan of up to {limits.moves} moves was found{rehearsed}{bounded}"
        return Answer(goal.text, summary, False, looks=looks, fewest=fewest, movable=asked.movers, stays=asked.stays)
    moves = tuple(_move(moved) for moved in found.moves)
    starts = tuple(
        StartView(task.key, uid, place_of(node, given))
        for (task, _), (uid, node, given) in zip(found.plan.starts, found.starts, strict=True)
    )
    budgets = tuple(sorted({f"{move.pod.partition('/')[0]}/{name}" for move in moves for name in move.budgets}))
    cost = Cost(len(moves), sum(move.lost for move in moves), budgets)
    kept = _kept(cards_by_node(found.plan))
    who = f"{len(moves)} pod{'' if len(moves) == 1 else 's'} would be moved"
    then = f"{', '.join(start.pod for start in starts)} would start" if starts else f"{goal.text} would be there"
    return Answer(goal.text, f"{who}, then {then}", False, moves, starts, _frees(found.plan.frees), kept, cost, looks, fewest,
                  asked.movers, asked.stays)  # fmt: skip


def _best(asked: Question, make: Callable[[], Engine], now: float, objects: Objects, limits: Limits) -> tuple[Played | None, int]:
    """The first plan that ends as it says; of those with as few moves, one by which nobody waits for a place meanwhile. And how
    many were rehearsed."""
    best: Played | None = None
    tried = 0
    for plan in asked.plans(limits.moves):
        if tried >= REHEARSED or (best is not None and len(plan.moves) > len(best.moves)):
            break
        tried += 1
        played = rehearse(plan, _engines(make), now, objects)
        if played is not None and not any(moved.waits for moved in played.moves):
            return played, tried
        best = best or played
    return best, tried


def _engines(make: Callable[[], Engine]) -> Iterator[Engine]:
    return (each() for each in repeat(make))


def _move(moved: Moved) -> MoveView:
    mover, task = moved.move.mover, moved.move.mover.task
    return MoveView(
        task.key, task.uid, task.owner, place_of(moved.move.node, moved.move.held), place_of(moved.node, moved.allocations),
        int(mover.lost), mover.since, mover.doubt, mover.budgets, moved.waits, _kept(moved.closed),
    )  # fmt: skip


def _kept(cards: Mapping[str, frozenset[str]]) -> tuple[Kept, ...]:
    return tuple(Kept(node, tuple(sorted(uuids))) for node, uuids in sorted(cards.items()))


def _frees(found: Sequence[FreeCard]) -> tuple[FreeView, ...]:
    return tuple(FreeView(free.node, free.card.index, free.card.uuid, free.card.type) for free in found)


def place_of(node: str, allocations: Sequence[Allocation]) -> Place:
    """Return what people are shown of a place."""
    return Place(node, tuple(
        HeldCard(piece.card, piece.uuid, piece.memory, piece.cores, piece.slot.profile if piece.slot is not None else "")
        for given in allocations for piece in given.container_devices
    ))  # fmt: skip


def held_during(plan: Answer, step: int) -> list[Wanted]:
    """Return the places that are held while one pod is moved: its own, those of earlier ones that waited for it, and cards that
    take nobody."""
    move = plan.moves[step]
    closed = {one.node: one.uuids for one in move.closed}
    return beside(closed, map(_place_for, [*(one for one in plan.moves[:step] if one.waits), move]))


def held_at_the_end(plan: Answer, moved: int) -> list[Wanted]:
    """Return the places that are held after so many moves: of those that start, and of the moved ones that waited for them."""
    starts = ((start.target.node, start.uid, "", _uuids(start.target)) for start in plan.starts)
    return [*starts, *(_place_for(move) for move in plan.moves[:moved] if move.waits)]


def _place_for(move: MoveView) -> Wanted:
    return move.target.node, move.uid, move.owner, _uuids(move.target)


def _uuids(place: Place) -> tuple[str, ...]:
    return tuple(dict.fromkeys(held.uuid for held in place.cards))


# -- The rest of a plan before its next step: the engine plays it once more from the world as it is now ----------------


@dataclass(frozen=True, slots=True)
class Outlook:
    """The prospect of the rest of a plan. ``reached``: no more need be moved. ``why`` the rest does not lead to the goal any
    more; empty: it does."""

    reached: bool = False
    why: str = ""


def outlook(make: Callable[[], Engine], objects: Objects, now: float, plan: Answer, done: int, moved: Sequence[str],
            limits: Limits) -> Outlook:  # fmt: skip
    """``make``: an engine that has seen the objects, in which the places that the plan holds are open. ``done``: moves that were
    carried out, ``moved``: uids of the pods that were made anew by them."""
    frees = [(free.node, free.uuid) for free in plan.frees]
    there = Rehearsal(make(), now, objects)
    if _placed(there, [*(start.uid for start in plan.starts), *moved]) and not there.busy(frees):
        return Outlook(reached=True)
    engine, rest = make(), plan.moves[done:]
    starting = [engine.state.tasks[start.uid] for start in plan.starts if start.uid in engine.state.tasks]
    below = max((max(task.priority, task.job.priority) for task in starting if task.job is not None), default=None)
    for move in rest:
        task = engine.state.tasks.get(move.uid)
        found = "it is gone" if task is None else mover(engine.state, task, now, limits.min_age, below)
        if not isinstance(found, Mover):
            return Outlook(why=f"{move.pod} is moved no more: {found}")
    stage = Rehearsal(engine, now, objects, held_during(plan, done))
    moved = list(moved)
    for step, move in enumerate(rest, done):
        stage.hold(held_during(plan, step))
        run = stage.world.restart(move.uid)
        stage.world.settle(PAUSE)
        moved.append(run.pod.metadata.uid)
        if why := _differs(stage, move, run.node, moved[-1]):
            return Outlook(why=why)
    if stage.busy(frees):
        return Outlook(why="somebody would hold the cards that shall come free")
    stage.hold(held_at_the_end(plan, len(plan.moves)))
    stage.world.settle(PAUSE)
    if not _placed(stage, [start.uid for start in plan.starts]):
        return Outlook(why=f"{plan.goal} would not start")
    return Outlook() if _placed(stage, moved) else Outlook(why="a pod that is moved would be left without a place")


def _placed(stage: Rehearsal, uids: Sequence[str]) -> bool:
    """Return whether they all have places; who is gone needs none."""
    there = {run.pod.metadata.uid: run.node for run in stage.world.runs_alive()}
    return all(there.get(uid, "gone") for uid in uids)


def _differs(stage: Rehearsal, move: MoveView, node: str, uid: str) -> str:
    """Return why a pod would not go where the plan says; empty where it does."""
    if move.waits:
        return ""
    if not node:
        return f"{move.pod} would find no place"
    same = place_of(node, stage.held(uid)) == move.target
    return "" if same else f"{move.pod} would go to {node}, elsewhere than planned"
