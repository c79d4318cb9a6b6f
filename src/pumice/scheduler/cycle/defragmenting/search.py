"""The search for a plan: the fewest running pods whose moving lets waiting ones start, or empties cards.

By the number of moves, from one up: a pod that finds no place displaces others from one node, and those are placed again before
anything counts as found; one of them may displace others in turn. Every look is the scheduler's own choice on its own ledger, so
soft shares, MIG slots, ports, labels and terms of other pods count alike. Of the plans with the fewest moves the one that costs
least comes first. The search is bounded by a number of looks for a place, and says when it ended there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, islice

from pumice.model.cards import Allocation, Card
from pumice.scheduler.cycle.defragmenting.movers import Mover
from pumice.scheduler.cycle.defragmenting.trial import Trial
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.node_devices import NodeDevices

ALTERNATIVES = 12
"""Plans of equal length that are compared."""
NODES = 64
"""Nodes between two questions whether it is late: those that nobody may leave cost no look for a place."""
SETS = 2000
"""Sets of cards that are looked at, in order of how many pods they hold."""


@dataclass(frozen=True, slots=True)
class Move:
    """One pod, and the place that was found for it. The scheduler decides where it really goes."""

    mover: Mover
    node: str
    held: tuple[Allocation, ...]
    to: Choice

    @property
    def leaves(self) -> frozenset[str]:
        """UUIDs of the cards that it leaves for good."""
        taken = {piece.uuid for given in self.to.allocations for piece in given.container_devices}
        return frozenset(piece.uuid for given in self.held for piece in given.container_devices) - taken


@dataclass(frozen=True, slots=True)
class FreeCard:
    """A card that holds nobody once the plan is carried out."""

    node: str
    device_type: str
    card: Card


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of moves. ``moves`` in the order in which the pods go. ``starts``: who starts then, and where; ``frees``: the
    cards that come free."""

    moves: tuple[Move, ...]
    starts: tuple[tuple[Task, Choice], ...] = ()
    frees: tuple[FreeCard, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """UUIDs of the cards that nobody else may come onto until it is carried out."""
        taken = (piece.uuid for _, choice in self.starts for given in choice.allocations for piece in given.container_devices)
        return frozenset(chain(taken, (free.card.uuid for free in self.frees)))

    @property
    def cost(self) -> tuple[int, int, float]:
        """Moves, PodDisruptionBudgets touched, seconds of work lost."""
        budgets = {(move.mover.task.namespace, name) for move in self.moves for name in move.mover.budgets}
        return len(self.moves), len(budgets), sum(move.mover.lost for move in self.moves)


@dataclass(frozen=True, slots=True)
class Opening:
    """A way to begin: cards that are kept free, and who has to leave them."""

    frees: tuple[FreeCard, ...] = ()
    leaving: tuple[Task, ...] = ()


Found = tuple[tuple[Task, Choice], ...]


@dataclass(slots=True)
class Search:
    """A search for moves. ``movers``: the pods that may be moved, by uid; ``starting``: those that shall start, in order, or
    nobody. ``looks``: how many looks for a place are allowed."""

    trial: Trial
    movers: Mapping[str, Mover]
    starting: Sequence[Task]
    openings: Sequence[Opening] = (Opening(),)
    after: str = ""
    """Nodes whose names come after this one are looked at first, those before it at the end."""
    cut_short: bool = False
    """True where looks ran out before all of a number of moves was tried."""
    last: str = ""
    """The node at which they did."""
    _lifted: set[str] = field(default_factory=set)

    def plans(self, most: int) -> Iterator[Plan]:
        """Plans of one move, two moves, up to ``most``; of equal length the cheapest first."""
        looks = max(1, self.trial.left // max(1, most))
        for number in range(1, most + 1):
            self.trial.left = looks
            found: dict[Hashable, Plan] = {}
            for plan in islice(self._of(number), 4 * ALTERNATIVES):
                key = frozenset(move.mover.task.uid for move in plan.moves), plan.kept
                found.setdefault(key, plan)
                if len(found) >= ALTERNATIVES:
                    break
            self.trial.back()
            self._lifted.clear()
            self.cut_short = self.cut_short or self.trial.left <= 0
            yield from sorted(found.values(), key=lambda plan: plan.cost)
            if self.trial.over:
                return

    def _of(self, number: int) -> Iterator[Plan]:
        for opening in self.openings:
            rest = number - len(opening.leaving)
            if rest < 0 or self.trial.left <= 0:
                continue
            mark = self.trial.mark()
            for free in opening.frees:
                self.trial.close(free.node, free.device_type, (free.card.uuid,))
            self.trial.lift(opening.leaving)
            self._lifted |= {task.uid for task in opening.leaving}
            where = {task.uid: task for task in opening.leaving}
            for placed in self._placed([*self.starting, *where.values()], rest):
                yield self._plan(placed, opening)
            self._lifted -= where.keys()
            self.trial.back(mark)

    def _plan(self, placed: Found, opening: Opening) -> Plan:
        ours = {task.uid for task in self.starting}
        moved = [(task, choice) for task, choice in placed if task.uid not in ours]
        moves = tuple(
            Move(self.movers[task.uid], task.node, self._held(task.uid), choice)
            for task, choice in reversed(moved)  # whoever was placed last relies on nobody that was placed before
        )
        return Plan(moves, tuple((task, choice) for task, choice in placed if task.uid in ours), opening.frees)

    # -- placing those who have no place -----------------------------------------------------------------------------

    def _placed(self, homeless: list[Task], more: int) -> Iterator[Found]:
        """Ways to place them all while exactly so many more are moved."""
        if not homeless:
            if more == 0:
                yield ()
            return
        if self.trial.left <= 0:
            return
        task, rest = homeless[0], homeless[1:]
        for choice in self.trial.places_of(task):
            yield from self._with(task, choice, rest, more)
        if more:
            for gone, choice in self._displacing(task, more):
                yield from self._with(task, choice, [*rest, *gone], more - len(gone))

    def _with(self, task: Task, choice: Choice, rest: list[Task], more: int) -> Iterator[Found]:
        mark = self.trial.mark()
        self.trial.place(task, choice)
        for found in self._placed(rest, more):
            yield ((task, choice), *found)
        self.trial.back(mark)

    def _displacing(self, task: Task, most: int) -> Iterator[tuple[tuple[Task, ...], Choice]]:
        """The smallest sets of movable pods of one node without which that node takes the pod, and its places then. They are off
        the ledger while the caller looks at one."""
        table, ledger = self.trial.cycle.state.ledger.table, self.trial.cycle.state.ledger
        sizes: list[list[tuple[int, list[Task]]]] = [[] for _ in range(most)]
        names = sorted(ledger.by_node)
        first = bisect_right(names, self.after)
        for number, node in enumerate(chain(names[first:], names[:first]), 1):
            if number % NODES == 0:
                self.trial.look_at_the_time()
            if self.trial.left <= 0:
                self.last = self.last or node
                break
            here = [
                mover.task for uid in ledger.by_node[node]
                if (mover := self.movers.get(uid)) is not None and uid not in self._lifted
            ]  # fmt: skip
            if here and node in table.row_of and self._might(task, node, here):
                here.sort(key=lambda one: (-self._size(one.uid), self.movers[one.uid].lost, one.uid))
                for at in range(most):
                    sizes[at].append((len(here), here))
        enough: dict[int, list[frozenset[str]]] = {}
        for at in range(most):
            for number, (_, here) in enumerate(sizes[at]):
                known: set[Hashable] = set()
                for gone in combinations(here, at + 1):
                    uids = frozenset(one.uid for one in gone)
                    alike = tuple(sorted((one.cls.number, self._cards(one.uid)) for one in gone))
                    if alike in known or any(less <= uids for less in enough.get(number, ())):
                        continue
                    known.add(alike)
                    if self.trial.left <= 0:
                        return
                    mark = self.trial.mark()
                    self.trial.lift(gone)
                    self._lifted |= uids
                    choice = self.trial.place_of(task, gone[0].node)
                    if choice is not None:
                        enough.setdefault(number, []).append(uids)
                        for place in self.trial.cards_of(task, choice):
                            yield gone, place
                            if len(gone) > 1:  # slices of one card are given out in turn: who comes first may leave none
                                yield gone[::-1], place
                    self._lifted -= uids
                    self.trial.back(mark)

    def _might(self, task: Task, node: str, here: Sequence[Task]) -> bool:
        """Return whether the node takes the pod where all who may be moved are gone."""
        mark = self.trial.mark()
        self.trial.lift(here)
        found = self.trial.place_of(task, node)
        self.trial.back(mark)
        return found is not None

    def _held(self, uid: str) -> tuple[Allocation, ...]:
        """Return what it holds, on trial or not: who is lifted held it where the trial began."""
        return self.movers[uid].held

    def _size(self, uid: str) -> int:
        return sum(piece.memory for given in self._held(uid) for piece in given.container_devices)

    def _cards(self, uid: str) -> tuple[tuple[str, str], ...]:
        return tuple((piece.uuid, str(piece.slot)) for given in self._held(uid) for piece in given.container_devices)


# -- whole cards -------------------------------------------------------------------------------------------------------


def free_cards(trial: Trial, model: str) -> tuple[list[FreeCard], list[tuple[FreeCard, tuple[str, ...]]]]:
    """The open cards of a model (a part of its name; empty: any) that nobody holds, and the others with who holds them."""
    free: list[FreeCard] = []
    held: list[tuple[FreeCard, tuple[str, ...]]] = []
    for device_type, table in sorted(trial.cycle.state.ledger.device_tables.items()):
        for node in sorted(table.nodes):
            book: NodeDevices = table.nodes[node]
            for place, (card, usage) in enumerate(zip(book.inventory.cards, book.usages, strict=True)):
                if not card.healthy or card.blocked or place in book.quarantined() or model.lower() not in card.type.lower():
                    continue
                found = FreeCard(node, device_type, card)
                if usage.holders:
                    held.append((found, tuple(usage.holders)))
                else:
                    free.append(found)
    return free, held


def openings(free: Sequence[FreeCard], held: Sequence[tuple[FreeCard, tuple[str, ...]]], movers: Mapping[str, Mover],
             number: int, most: int) -> list[Opening]:  # fmt: skip
    """Those that are free, and sets of cards that make them so many and all of whose holders may be moved: those of the fewest
    holders first."""
    open_to = [(card, uids) for card, uids in held if len(uids) <= most and all(uid in movers for uid in uids)]
    open_to.sort(key=lambda found: (len(found[1]), sum(movers[uid].lost for uid in found[1]), found[0].node, found[0].card.index))
    sets: list[tuple[int, int, Opening]] = []
    for cards in islice(combinations(open_to, number - len(free)), SETS):
        uids = dict.fromkeys(uid for _, holders in cards for uid in holders)
        if len(uids) <= most:
            opening = Opening((*free, *(card for card, _ in cards)), tuple(movers[uid].task for uid in uids))
            sets.append((len(uids), len(sets), opening))
    return [opening for _, _, opening in sorted(sets, key=lambda found: found[:2])]
