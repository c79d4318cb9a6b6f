"""A plan of moves, played before it is carried out: each eviction and each new place are decided by the engine, in full cycles.

While a pod is moved, the cards that the plan keeps free, those that the pod leaves, and those that others are to be moved onto
take nobody, and its own place is held for it, by the annotation of nodes that ``pumice defrag apply`` writes. At the end places
are held for who starts and for who waited. All of them must then have a place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product
from typing import Any

from pumice.model.cards import Allocation
from pumice.scheduler.cycle.defragmenting.search import Move, Plan
from pumice.scheduler.cycle.preemption.victims import stands_without
from pumice.scheduler.engine import Engine
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.jobs import Task
from pumice.simulation.play import Simulation
from pumice.wire import names
from pumice.wire.held_places import HeldPlace, render_held_places
from pumice.wire.objects import Node, convert
from pumice.wire.times import stamp

HELD = 600.0
"""Seconds for which places are held, from each step on: twice as long as one takes at most, for clocks differ."""
ORDERS = 24
"""Orders of the moves that are tried."""
PAUSE = 30.0
"""Seconds between two steps: a pod that is made anew waits for its PodGroup."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A move as it was played. ``waits``: its pod finds its place only when others have gone, or when the cards are opened.
    ``closed``: the cards that take nobody meanwhile, by node."""

    move: Move
    node: str
    allocations: tuple[Allocation, ...]
    waits: bool
    closed: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Played:
    """A plan that ends as it says. ``starts``: of each pod that starts its uid, node and cards."""

    plan: Plan
    moves: tuple[Moved, ...]
    starts: tuple[tuple[str, str, tuple[Allocation, ...]], ...]


Json = dict[str, Any]
Objects = Mapping[str, list[Json]]
Wanted = tuple[str, str, str, Iterable[str]]
"""Node, uid of the pod, uid of its controller (see ``HeldPlace``), and UUIDs of the cards."""


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


def rehearse(plan: Plan, engines: Iterable[Engine], now: float, objects: Objects) -> Played | None:
    """Play the plan in one order after the other, each in an engine that has seen the objects; None where none leads there."""
    kept = plan.kept
    shared = any(not kept.isdisjoint(_uuids(move.to)) for move in plan.moves)
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
        uids: dict[str, str] = {}
        moved: dict[str, Moved] = {}
        moves = tuple(order)
        for step, move in enumerate(moves):
            waiting = [one.move for one in moved.values() if not self.world.run_of(uids[one.move.mover.task.uid]).node]
            if not self.may_go([one.mover.task for one in (*waiting, move)]):
                return None
            uid, others = move.mover.task.uid, [*waiting, *moves[step + 1 :]]
            closed = held_meanwhile(plan, move, others, kept_closed=kept_closed)
            self.hold(beside(closed, map(_place, [*(one.move for one in moved.values() if one.waits), move])))
            run = self.world.restart(uid)
            self.world.settle(PAUSE)
            uids[uid] = run.pod.metadata.uid
            moved[uid] = Moved(move, run.node, self.held(uids[uid]), not run.node, closed)
        kept = self.busy((free.node, free.card.uuid) for free in plan.frees)
        if plan.frees and (kept or not all(self.world.run_of(uid).node for uid in uids.values())):
            return None  # whoever finds a place only when the cards are open takes them
        starts_at = ((choice.node, task.uid, "", _uuids(choice)) for task, choice in plan.starts)
        self.hold([*starts_at, *(_place(found.move) for found in moved.values() if found.waits)])
        self.world.settle(PAUSE)
        starts = tuple((task.uid, self.world.run_of(task.uid).node, self.held(task.uid)) for task, _ in plan.starts)
        if not all(node for _, node, _ in starts) or self.world.violations:
            return None
        for uid, found in moved.items():
            node = self.world.run_of(uids[uid]).node
            if not node:
                return None
            if found.waits:
                moved[uid] = Moved(found.move, node, self.held(uids[uid]), True, found.closed)
        return Played(plan, tuple(moved.values()), starts)

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

    def held(self, uid: str) -> tuple[Allocation, ...]:
        placement = self.engine.state.ledger.placements.get(uid)
        return () if placement is None else placement.allocations

    def hold(self, places: Iterable[Wanted]) -> None:
        """Hold these places and no others."""
        found = by_node(places, stamp(self.world.now + HELD))
        for name in sorted(self._held | found.keys()):
            node, held = self.nodes[name], render_held_places(found.get(name, ()))
            notes = {**(node["metadata"].get("annotations") or {}), names.HELD_PLACES: held}
            self.engine.state.bookings.put_node(convert(Node, {**node, "metadata": {**node["metadata"], "annotations": notes}}))
        self._held = set(found)


def held_meanwhile(plan: Plan, move: Move, others: Iterable[Move], *, kept_closed: bool) -> dict[str, frozenset[str]]:
    """The cards that take nobody while a pod is moved: those of who starts, or free, those that it leaves, and the places of
    others that have none yet. Its own place is open to it, unless ``kept_closed`` and who starts has a part of that card."""
    found = {node: set(uuids) for node, uuids in cards_by_node(plan).items()}
    found.setdefault(move.node, set()).update(move.leaves)
    for other in others:
        found.setdefault(other.to.node, set()).update(_uuids(other.to))
    found.setdefault(move.to.node, set()).difference_update(_uuids(move.to) - (plan.kept if kept_closed else frozenset()))
    return {node: frozenset(uuids) for node, uuids in found.items() if uuids}


def _place(move: Move) -> Wanted:
    return move.to.node, move.mover.task.uid, move.mover.task.owner, sorted(_uuids(move.to))


def _uuids(choice: Choice) -> frozenset[str]:
    return frozenset(piece.uuid for given in choice.allocations for piece in given.container_devices)


def cards_by_node(plan: Plan) -> dict[str, frozenset[str]]:
    """The cards that are kept for who starts, or free."""
    found: dict[str, set[str]] = {}
    for _, choice in plan.starts:
        for given in choice.allocations:
            found.setdefault(choice.node, set()).update(piece.uuid for piece in given.container_devices)
    for free in plan.frees:
        found.setdefault(free.node, set()).add(free.card.uuid)
    return {node: frozenset(uuids) for node, uuids in found.items()}
