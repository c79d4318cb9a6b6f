"""A plan of moves, played before it is carried out: each eviction and each new place are decided by the engine, in full cycles.

While pods are moved, the cards that the plan keeps free and the cards that a pod leaves take nobody, as ``pumice defrag
apply`` cordons them. Then they are opened, and whoever was to start must have started and everybody who was moved must have a
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

from pumice.model.cards import Allocation
from pumice.scheduler.cycle.defragmenting.search import Move, Plan
from pumice.scheduler.engine import Engine
from pumice.simulation.play import Simulation
from pumice.wire import names
from pumice.wire.objects import Node, convert

ORDERS = 24
"""Orders of the moves that are tried."""
PAUSE = 30.0
"""Seconds between two steps: a pod that is made anew waits for its PodGroup."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A move as it was played. ``waits``: its pod finds its place only when others have gone, or when the cards are opened."""

    move: Move
    node: str
    allocations: tuple[Allocation, ...]
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Played:
    """A plan that ends as it says. ``starts``: of each pod that starts its uid, node and cards."""

    plan: Plan
    moves: tuple[Moved, ...]
    starts: tuple[tuple[str, str, tuple[Allocation, ...]], ...]


Json = dict[str, Any]
Objects = Mapping[str, list[Json]]


def rehearse(plan: Plan, engines: Iterable[Engine], now: float, objects: Objects) -> Played | None:
    """Play the plan in one order after the other, each in an engine that has seen the objects; None where none leads there."""
    for order, engine in zip(islice(permutations(plan.moves), ORDERS), engines, strict=False):
        played = _Rehearsal(engine, now, objects).play(plan, order)
        if played is not None:
            return played
    return None


class _Rehearsal:
    def __init__(self, engine: Engine, now: float, objects: Objects) -> None:
        self.engine, self.world = engine, Simulation(engine, now, objects)
        self.nodes = {node["metadata"]["name"]: node for node in objects.get("nodes", ())}
        self.closed: set[str] = set()
        self.world.settle()

    def play(self, plan: Plan, order: Iterable[Move]) -> Played | None:
        uids = {}
        moved: dict[str, Moved] = {}
        closing = cards_by_node(plan)
        for move in order:
            uid = move.mover.task.uid
            self._close({**closing, move.node: closing.get(move.node, frozenset()) | move.leaves})
            run = self.world.restart(uid)
            self.world.settle(PAUSE)
            uids[uid] = run.pod.metadata.uid
            moved[uid] = Moved(move, run.node, self._held(uids[uid]), not run.node)
        if plan.frees and (not all(self.world.run_of(uid).node for uid in uids.values()) or self._busy(plan)):
            return None  # whoever finds a place only when the cards are open takes them
        self._close({})
        self.world.settle(PAUSE)
        starts = tuple((task.uid, self.world.run_of(task.uid).node, self._held(task.uid)) for task, _ in plan.starts)
        if not all(node for _, node, _ in starts) or self.world.violations:
            return None
        for uid, found in moved.items():
            node = self.world.run_of(uids[uid]).node
            if not node:
                return None
            if found.waits:
                moved[uid] = Moved(found.move, node, self._held(uids[uid]), True)
        return Played(plan, tuple(moved.values()), starts)

    def _busy(self, plan: Plan) -> bool:
        tables = self.engine.state.ledger.device_tables
        return any(
            usage.holders
            for free in plan.frees
            for card, usage in zip(
                tables[free.device_type].nodes[free.node].inventory.cards, tables[free.device_type].nodes[free.node].usages,
                strict=True,
            )
            if card.uuid == free.card.uuid
        )  # fmt: skip

    def _held(self, uid: str) -> tuple[Allocation, ...]:
        placement = self.engine.state.ledger.placements.get(uid)
        return () if placement is None else placement.allocations

    def _close(self, cards: Mapping[str, frozenset[str]]) -> None:
        """Cordon these cards and no others, beside those that were cordoned before."""
        for name in sorted(self.closed | cards.keys()):
            node = cordoned(self.nodes[name], cards.get(name, frozenset()))
            self.engine.state.bookings.put_node(convert(Node, node))
        self.closed = set(cards)


def cards_by_node(plan: Plan) -> dict[str, frozenset[str]]:
    """The cards that are kept for who starts, or free."""
    found: dict[str, set[str]] = {}
    for _, choice in plan.starts:
        for given in choice.allocations:
            found.setdefault(choice.node, set()).update(piece.uuid for piece in given.container_devices)
    for free in plan.frees:
        found.setdefault(free.node, set()).add(free.card.uuid)
    return {node: frozenset(uuids) for node, uuids in found.items()}


def cordoned(node: Json, uuids: frozenset[str]) -> Json:
    """The node with these cards cordoned, too."""
    notes = node["metadata"].get("annotations") or {}
    before = notes.get(names.CORDONED_CARDS, "")
    text = ",".join(filter(None, (before, *sorted(uuids))))
    return {**node, "metadata": {**node["metadata"], "annotations": {**notes, names.CORDONED_CARDS: text}}}
