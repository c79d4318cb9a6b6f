"""Laying out several pods at once on cards that are cut into slices: exact on one card, improved over two at a time.

A card is a ``Board`` in a state; what can be cut on it from there is tabulated once (``fills``). Every card is given the best it
can hold of what is left, then cards are taken two by two, emptied of what was planned there, and filled again exactly, as long as
that serves more. The steps are bounded and nothing depends on chance: equal questions have equal answers. MIG cards and NPUs
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import le
from typing import Any, Protocol, TypeVar

from msgspec import Struct

STEPS = 6000
"""Pairs of fills that are weighed against each other at most: some ten milliseconds."""
STEPS_IN_A_CYCLE = 2000
"""As many where pods wait for the cycle to go on: some milliseconds."""
MOST_STATES = 2000
"""States of one card that are looked at; beyond them its table is not complete, and still right as far as it goes."""

Item = TypeVar("Item")
Counts = tuple[int, ...]
"""Number of each kind of request."""
Path = tuple[tuple[int, Any], ...]
"""A slice that is made: the kind of want, and the slice as its board calls it."""


class Board(Protocol):
    """One model of card. Equal boards have equal answers."""

    def __hash__(self) -> int: ...

    def ways(self, state: Any, need: Any) -> Iterable[tuple[Any, Any, float]]:
        """Slices in which that could be served: the state that it leaves, its name, and what is wasted by it, in the measure of
        ``left``. Of equal ones one is enough."""
        ...

    def left(self, state: Any) -> float:
        """Return what such a card can be expected to serve still (``pumice.model.cards``)."""
        ...


class Want(Struct, frozen=True):
    """A wish for a part of a card. ``size``: the gain of serving it. ``where``: numbers of the cards that it may have; None:
    all. ``must``: it comes before all that need not be, whatever their sizes."""

    need: Hashable
    size: int
    where: frozenset[int] | None = None
    must: bool = False


Spot = tuple[int, Any]
"""A card's number, and the slice there as its board calls it."""


def few_of_a_sort(
    cards: Iterable[Item], most: int, sort: Callable[[Item], Hashable], in_use: Callable[[Item], bool]
) -> list[Item]:
    """At most so many of each sort, those in use first: more cards of one sort than there are pods are as good as none."""
    seen: dict[Hashable, int] = {}
    kept = []
    for card in sorted(cards, key=lambda card: not in_use(card)):
        its = sort(card)
        seen[its] = seen.get(its, 0) + 1
        if seen[its] <= most:
            kept.append(card)
    return kept


def lay_out(wants: Sequence[Want], cards: Sequence[tuple[Board, Hashable]], steps: int = STEPS) -> list[Spot | None]:
    """A place for each want, or None for those that are left out."""
    plan = _Plan(wants, cards, steps)
    plan.fill()
    plan.improve()
    return plan.spots()


@dataclass(slots=True)
class _Card:
    number: int
    table: dict[Counts, tuple[float, Path]]
    """One way to make slices there: what it leaves of the card beyond what it wastes, and how it is cut."""
    allocated: Counts


@dataclass(slots=True)
class _Plan:
    wants: Sequence[Want]
    boards: Sequence[tuple[Board, Hashable]]
    steps: int
    kinds: list[tuple[Hashable, frozenset[int] | None]] = field(init=False)
    of_kind: list[list[int]] = field(init=False)
    """Per kind the numbers of its wants, those that must be served first, then the larger ones."""
    gains: list[list[int]] = field(init=False)
    """Per kind the gain of serving so many of it."""
    cards: list[_Card] = field(init=False)
    served: list[int] = field(init=False)

    def __post_init__(self) -> None:
        first = 1 + sum(want.size for want in self.wants)
        found: dict[tuple[Hashable, frozenset[int] | None], list[int]] = {}
        for number, want in enumerate(self.wants):
            found.setdefault((want.need, want.where), []).append(number)
        wants, largest_first = self.wants, sorted(found.items(), key=lambda item: -self.wants[item[1][0]].size)
        self.kinds = [kind for kind, _ in largest_first]
        self.of_kind = [sorted(numbers, key=lambda n: (not wants[n].must, -wants[n].size)) for _, numbers in largest_first]
        self.gains = []
        for numbers in self.of_kind:
            total = [0]
            for number in numbers:
                total.append(total[-1] + self.wants[number].size + first * self.wants[number].must)
            self.gains.append(total)
        self.served = [0] * len(self.kinds)
        nothing = (0,) * len(self.kinds)
        self.cards = []
        for number, (board, state) in enumerate(self.boards):
            needs = tuple(need if where is None or number in where else None for need, where in self.kinds)
            table = fills(board, state, needs)
            if len(table) > 1:
                self.cards.append(_Card(number, table, nothing))

    def value(self, *more: Counts) -> int:
        """Return the gain of serving these beside what is served."""
        return sum(
            gain[served + sum(counts)] for gain, served, *counts in zip(self.gains, self.served, *more, strict=True)
        )

    def room(self) -> Counts:
        """Return how many of each kind are not served."""
        return tuple(len(numbers) - served for numbers, served in zip(self.of_kind, self.served, strict=True))

    def hold(self, card: _Card, counts: Counts) -> None:
        self.served = [s + new - old for s, new, old in zip(self.served, counts, card.allocated, strict=True)]
        card.allocated = counts

    def fill(self) -> None:
        """Card by card the best that it can hold of what is left."""
        for card in self.cards:
            room = self.room()
            fitting = [counts for counts in card.table if all(map(le, counts, room))]
            self.hold(card, max(fitting, key=lambda counts: (self.value(counts), card.table[counts][0])))

    def improve(self) -> None:
        """Two cards at a time anew, until that brings nothing more."""
        better = True
        while better and self.steps > 0:
            better, seen = False, set()
            for at, one in enumerate(self.cards):
                for other in self.cards[at + 1 :]:
                    sort = id(one.table), id(other.table), one.allocated, other.allocated
                    if self.steps <= 0 or sort in seen:
                        continue
                    seen.add(sort)
                    if self.again(one, other):
                        better = True
                        seen.clear()

    def again(self, one: _Card, other: _Card) -> bool:
        before = self.value(), one.table[one.allocated][0] + other.table[other.allocated][0]
        kept, nothing = (one.allocated, other.allocated), (0,) * len(self.kinds)
        self.hold(one, nothing)
        self.hold(other, nothing)
        room, best, found = self.room(), before, kept
        for first, (left, _) in one.table.items():
            if not all(map(le, first, room)):
                continue
            rest = tuple(r - f for r, f in zip(room, first, strict=True))
            for second, (also_left, _) in other.table.items():
                if all(map(le, second, rest)):
                    self.steps -= 1
                    gain = self.value(first, second), left + also_left
                    if gain > best:
                        best, found = gain, (first, second)
        self.hold(one, found[0])
        self.hold(other, found[1])
        return found is not kept

    def spots(self) -> list[Spot | None]:
        spots: list[Spot | None] = [None] * len(self.wants)
        waiting = [iter(numbers) for numbers in self.of_kind]
        for card in self.cards:
            for kind, name in card.table[card.allocated][1]:
                spots[next(waiting[kind])] = card.number, name
        return spots


@lru_cache(maxsize=4096)
def fills(board: Board, state: Hashable, needs: tuple[Hashable, ...]) -> dict[Counts, tuple[float, Path]]:
    """All that can be cut on a card from that state, of each need any number; of several ways to cut as much the one that
    wastes least and leaves most. ``None`` among the needs is one that the card may not serve. Exact up to ``MOST_STATES``."""
    nothing = (0,) * len(needs)
    found: dict[Counts, tuple[float, Path]] = {nothing: (board.left(state), ())}
    seen = {(state, nothing): 0.0}
    queue: list[tuple[Hashable, Counts, Path, float]] = [(state, nothing, (), 0.0)]
    for at, counts, path, wasted in queue:
        if len(seen) > MOST_STATES:
            break
        for kind in range(path[-1][0] if path else 0, len(needs)):
            if needs[kind] is None:
                continue
            more = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
            for after, name, waste in board.ways(at, needs[kind]):
                total = wasted + waste
                if seen.get((after, more), float("inf")) <= total:
                    continue
                seen[after, more] = total
                way = (*path, (kind, name))
                queue.append((after, more, way, total))
                left = board.left(after) - total
                if more not in found or left > found[more][0]:
                    found[more] = left, way
    return found
