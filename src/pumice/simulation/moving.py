"""The answer to ``pumice defrag``: a plan that was searched for and rehearsed, with what it costs, or why there is none.

It is played before it is carried out, and its rest once more before each step: each eviction and each new place are decided by
the engine, in full cycles. While a pod is moved, the cards that the plan keeps free, those that the pod leaves, and those that
others are to be moved onto take nobody, and its own place is held for it, by the annotation of nodes that ``pumice defrag apply``
writes. At the end places are held for who starts and for who waited. All of them must then have a place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations, product, repeat
from typing import Any

from pumice.model.cards import Allocation
from pumice.scheduler.cycle.defragmenting.asking import Limits, Stays
from pumice.scheduler.cycle.defragmenting.movers import Mover, mover
from pumice.scheduler.cycle.defragmenting.search import FreeCard, Move, Plan
from pumice.scheduler.cycle.preemption.victims import stands_without
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.moves import Goal, Question, question
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.jobs import Task
from pumice.simulation.play import Simulation
from pumice.wire import names
from pumice.wire.held_places import HeldPlace, render_held_places
from pumice.wire.objects import Node, convert
from pumice.wire.times import stamp

HELD = 600.0
"""Seconds for which places are held, from each step on: twice as long as one takes at most, for clocks differ."""
REHEARSED = 24
"""Plans that are rehearsed at most."""
ORDERS = 24
"""Orders of the moves that are tried."""
PAUSE = 30.0
"""Seconds between two steps: a pod that is made anew waits for its PodGroup."""
Json = dict[str, Any]
Objects = Mapping[str, list[Json]]
Wanted = tuple[str, str, str, Iterable[str]]
"""Node, uid of the pod, uid of its controller (see ``HeldPlace``), and UUIDs of the cards."""


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
    moves, starts = found.moves, found.starts
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


# -- A plan, played ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """A plan that ends as it says."""

    plan: Plan
    moves: tuple[MoveView, ...]
    starts: tuple[StartView, ...]


def rehearse(plan: Plan, engines: Iterable[Engine], now: float, objects: Objects) -> Played | None:
    """Play the plan in one order after the other, each in an engine that has seen the objects; None where none leads there."""
    kept = plan.kept
    shared = any(not kept.isdisjoint(_on(move.to)) for move in plan.moves)
    ways = product((False, True) if shared else (False,), islice(permutations(plan.moves), ORDERS))
    for (closed, order), engine in zip(ways, engines, strict=False):
        played = Rehearsal(engine, now, objects).play(plan, order, kept_closed=closed)
        if played is not None:
            return played
    return None


class Rehearsal:
    """The world in which it is played, from the moment at which everybody has a place who finds one. ``held``: places that are
    held before that."""

    def __init__(self, engine: Engine, now: float, objects: Objects, held: Iterable[Wanted] = ()) -> None:
        self.engine, self.world = engine, Simulation(engine, now, objects)
        self.nodes = {node["metadata"]["name"]: node for node in objects.get("nodes", ())}
        self._held: set[str] = set()
        self.hold(held)
        self.world.settle()

    def play(self, plan: Plan, order: Iterable[Move], *, kept_closed: bool) -> Played | None:
        """``kept_closed``: a place on a kept card is taken only when all are opened, as where the card must be empty to be cut
        anew; else it is taken at once."""
        order, moves, anew = tuple(order), list[MoveView](), list[str]()
        for step, move in enumerate(order):
            waiting = [one for one, uid in zip(order, anew, strict=False) if not self.world.run_of(uid).node]
            if not self.may_go([one.mover.task for one in (*waiting, move)]):
                return None
            moves.append(_planned(move, held_meanwhile(plan, move, [*waiting, *order[step + 1 :]], kept_closed=kept_closed)))
            self.hold(held_during(Answer("", "", moves=tuple(moves)), step))
            run = self.world.restart(move.mover.task.uid)
            self.world.settle(PAUSE)
            anew.append(run.pod.metadata.uid)
            moves[step] = replace(moves[step], waits=not run.node)
        kept = self.busy((free.node, free.card.uuid) for free in plan.frees)
        if plan.frees and (kept or not all(self.world.run_of(uid).node for uid in anew)):
            return None  # whoever finds a place only when the cards are open takes them
        starts = tuple(StartView(task.key, task.uid, place_of(to.node, to.allocations)) for task, to in plan.starts)
        self.hold(held_at_the_end(Answer("", "", moves=tuple(moves), starts=starts), len(moves)))
        self.world.settle(PAUSE)
        starts = tuple(replace(start, target=self.place(start.uid)) for start in starts)
        found = tuple(replace(move, target=self.place(uid)) for move, uid in zip(moves, anew, strict=True))
        if self.world.violations or not all([one.target.node for one in starts] + [one.target.node for one in found]):
            return None
        return Played(plan, found, starts)

    def may_go(self, gone: Sequence[Task]) -> bool:
        """Return whether these may be without a place at one time: by their PodDisruptionBudgets, and by their gangs."""
        if self.engine.state.budgets.spared(gone):
            return False
        return all(
            stands_without(job, [task for task in gone if task.job is job])
            for job in dict.fromkeys(task.job for task in gone) if job is not None
        )  # fmt: skip

    def busy(self, cards: Iterable[tuple[str, str]]) -> bool:
        """Return whether somebody holds one of the cards, given by node and UUID."""
        wanted = set(cards)
        return any(
            usage.holders and (name, card.uuid) in wanted
            for table in self.engine.state.ledger.device_tables.values()
            for name in {node for node, _ in wanted} & table.nodes.keys()
            for card, usage in zip(table.nodes[name].inventory.cards, table.nodes[name].usages, strict=True)
        )  # fmt: skip

    def place(self, uid: str) -> Place:
        """Return where a pod is now."""
        placement = self.engine.state.ledger.placements.get(uid)
        return place_of(self.world.run_of(uid).node, () if placement is None else placement.allocations)

    def hold(self, places: Iterable[Wanted]) -> None:
        """Hold these places and no others."""
        found = by_node(places, stamp(self.world.now + HELD))
        for name in sorted(self._held | found.keys()):
            node, held = self.nodes[name], render_held_places(found.get(name, ()))
            notes = {**(node["metadata"].get("annotations") or {}), names.HELD_PLACES: held}
            self.engine.state.bookings.put_node(convert(Node, {**node, "metadata": {**node["metadata"], "annotations": notes}}))
        self._held = set(found)


def _planned(move: Move, closed: Mapping[str, frozenset[str]]) -> MoveView:
    """A move with the place that was found for it. ``closed``: the cards that take nobody meanwhile, by node."""
    mover, task = move.mover, move.mover.task
    return MoveView(
        task.key, task.uid, task.owner, place_of(move.node, move.held), place_of(move.to.node, move.to.allocations),
        int(mover.lost), mover.since, mover.doubt, mover.budgets, waits=False, closed=_kept(closed),
    )  # fmt: skip


def held_meanwhile(plan: Plan, move: Move, others: Iterable[Move], *, kept_closed: bool) -> dict[str, frozenset[str]]:
    """The cards that take nobody while a pod is moved: those of who starts, or free, those that it leaves, and the places of
    others that have none yet. Its own place is open to it, unless ``kept_closed`` and who starts has a part of that card."""
    found = {node: set(uuids) for node, uuids in cards_by_node(plan).items()}
    found.setdefault(move.node, set()).update(move.leaves)
    for other in others:
        found.setdefault(other.to.node, set()).update(_on(other.to))
    found.setdefault(move.to.node, set()).difference_update(_on(move.to) - (plan.kept if kept_closed else frozenset()))
    return {node: frozenset(uuids) for node, uuids in found.items() if uuids}


def _on(choice: Choice) -> frozenset[str]:
    return frozenset(piece.uuid for given in choice.allocations for piece in given.container_devices)


def cards_by_node(plan: Plan) -> dict[str, frozenset[str]]:
    """The cards that are kept for who starts, or free."""
    found: dict[str, set[str]] = {}
    for _, choice in plan.starts:
        found.setdefault(choice.node, set()).update(_on(choice))
    for free in plan.frees:
        found.setdefault(free.node, set()).add(free.card.uuid)
    return {node: frozenset(uuids) for node, uuids in found.items()}


# -- The places that are held meanwhile -------------------------------------------------------------------------------


def beside(closed: Mapping[str, Collection[str]], places: Iterable[Wanted]) -> list[Wanted]:
    """Return these places, as far as their cards are not closed, and the closed cards, which take nobody."""
    own = ((node, pod, controller, [uuid for uuid in uuids if uuid not in closed.get(node, ())])
           for node, pod, controller, uuids in places)  # fmt: skip
    return [*((node, "", "", sorted(uuids)) for node, uuids in closed.items()), *own]


def by_node(places: Iterable[Wanted], until: str) -> dict[str, tuple[HeldPlace, ...]]:
    """Return what each node's annotation is to say; ``until``: RFC 3339."""
    found = dict[str, list[HeldPlace]]()
    for node, pod, controller, cards in places:
        if uuids := tuple(cards):
            found.setdefault(node, []).append(HeldPlace(uuids, until, pod, controller))
    return {node: tuple(held) for node, held in found.items()}


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
        if why := _differs(move, stage.place(moved[-1])):
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


def _differs(move: MoveView, place: Place) -> str:
    """Return why a pod would not go where the plan says; empty where it does."""
    if move.waits or place == move.target:
        return ""
    return f"{move.pod} would go to {place.node}, elsewhere than planned" if place.node else f"{move.pod} would find no place"
