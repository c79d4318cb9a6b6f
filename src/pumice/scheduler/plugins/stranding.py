"""Cards of each node that a pod would strand, for policies that count them (``pumice.devices.fragmentation``).

Nodes are judged by the shapes that the cluster has seen. What a card is to them is remembered for each kind of card, and for each
row the sum over its cards: with one pod more, one kind of card is exchanged for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.devices.card_policies import Stranding
from pumice.devices.fragmentation import CardPart, FreeCard, Shapes, of_cards, of_nodes, steps, tightest, worth_of
from pumice.scheduler.plugins.topology import node_affinity_met
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.classes import Constraints
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State

KINDS = 20_000
"""Kinds of cards remembered; when there are more, all are looked at anew."""
ALIKE_FROM = 32
"""Rows from which on those that are alike are looked for."""


Exchange = list[tuple[FreeCard, FreeCard]]
"""Of a node the cards that a pod would take, each before and after it."""
NO_CARD: FreeCard = (0, 0, 0, 0, False)


@dataclass(slots=True)
class StrandedCards:
    """Of one state, one way of counting and one device type. Rows are those of the table of nodes."""

    state: State
    book: DeviceTable
    how: Stranding
    _shapes: Shapes | None = None
    _cursor: int = 0
    _nodes: int = -1
    """Version of the table of nodes by which ``_allowed`` was found."""
    _allowed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))
    _kind: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    """Per row the number of its line of ``_allowed``, of which there are few."""
    _numbers: dict[FreeCard, int] = field(default_factory=dict)
    _cards: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4, 0)))
    """The use of each kind of card to the shapes, by its number; 0 stands for no card."""
    _unread: list[FreeCard] = field(default_factory=list)
    _sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4, 0)))
    _left: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """Per row what is left of its cards, how many are whole, and how many there are."""
    _now: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def steps(
        self, rows: Rows | None, cpu: int, memory: int, part: CardPart | None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Per row by how many steps fewer cards are stranded with such a pod, and where cards take it."""
        table = self.state.ledger.table
        self._catch_up()
        every = np.arange(table.capacity) if rows is None else rows
        found, may = np.zeros(len(every)), np.zeros(len(every), bool)
        free = table.alloc[every, :2] - table.used[every, :2] - (cpu, memory)
        places = np.flatnonzero((self._left[every, 2] > 0) & (free >= 0).all(axis=1))
        if len(places) >= ALIKE_FROM:
            first, like = self._alike(every[places], free[places])
            of_kinds = self._with_pod(every[places[first]], free[places[first]], part)
            found[places], may[places] = of_kinds[0][like], of_kinds[1][like]
        elif len(places):
            found[places], may[places] = self._with_pod(every[places], free[places], part)
        return found, may

    def _alike(self, rows: Rows, free: NDArray[np.int64]) -> tuple[Rows, Rows]:
        """Of each kind of rows one, and per row the number of its kind: equal cards, equally used, equal room, equal labels as
        far as shapes look at them."""
        key = self.book.states.ids[rows].astype(np.int64) * len(self._allowed) + self._kind[rows]
        for column in (0, 1):
            _, number = np.unique(free[:, column], return_inverse=True)
            _, key = np.unique(key * (int(number.max()) + 1) + number, return_inverse=True)
        _, first, like = np.unique(key, return_index=True, return_inverse=True)
        return first, like

    def _with_pod(
        self, rows: Rows, free: NDArray[np.int64], part: CardPart | None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """As ``steps``, for rows with that much cpu and memory left beside the pod."""
        found, may = np.zeros(len(rows)), np.ones(len(rows), bool)
        sums, left = self._sums[rows], self._left[rows]
        if part is not None:
            changes = self._exchanges(rows, part)
            if not any(changes):
                return found, np.zeros(len(rows), bool)
            nothing: Exchange = [(NO_CARD, NO_CARD)] * part.count  # no more than a node has
            numbers = [[(self._number(old), self._number(new)) for old, new in pairs or nothing] for pairs in changes]
            self._read()
            exchanged = np.array(numbers, np.intp)  # (rows, cards of the pod, 2)
            for card in range(part.count):
                sums += self._cards[exchanged[:, card, 1]] - self._cards[exchanged[:, card, 0]]
            left += [_difference(pairs or ()) for pairs in changes]
            may[:] = [pairs is not None for pairs in changes]
        found = steps(self._now[rows], self._stranded(rows, sums, left, free))
        return np.where(may, found, 0.0), may

    def _exchanges(self, rows: Rows, part: CardPart) -> list[Exchange | None]:
        """Per row the cards that the pod takes, each before and after it; None where too few take it."""
        numbers = self.book.states.ids[rows].tolist()
        known = {number: tightest(self._cards_of(number), part) for number in dict.fromkeys(numbers)}
        return [known[number] for number in numbers]

    def _cards_of(self, number: int) -> list[FreeCard]:
        """The shared cards that are open, by the number of the node's state."""
        state = self.book.states[number]
        if state is None:
            return []
        return [
            (total, max(0, total - memory), max(0, 100 - cores), max(0, limit - shares), shares == 0)
            for (total, limit, open_card, mig, _), (memory, cores, shares, _) in zip(*state, strict=True)
            if open_card and not mig and total > 0
        ]

    def _number(self, card: FreeCard) -> int:
        """The number of a kind of card; new ones are read before they are used."""
        found = self._numbers.get(card)
        if found is None:
            found = self._numbers[card] = len(self._numbers)
            self._unread.append(card)
        return found

    def _read(self) -> None:
        if not self._unread or self._shapes is None:
            return
        total, free, cores, slots, alone = np.array(self._unread, np.float64).T
        end = len(self._numbers)
        if end > len(self._cards):
            bigger = np.zeros((2 * end, 4, len(self._shapes)))
            bigger[: len(self._cards)] = self._cards
            self._cards = bigger
        self._cards[end - len(self._unread) : end] = of_cards(total, free, cores, slots, alone > 0, self._shapes)
        self._unread.clear()

    def _catch_up(self) -> None:
        """Bring what is stranded now up to date."""
        table, shapes = self.state.ledger.table, self.state.classes.seen.current()
        changed = table.changes.since(self._cursor)
        self._cursor = table.changes.end
        if shapes is not self._shapes or self._nodes != table.version:
            self._allow(shapes)
        every = changed is None or shapes is not self._shapes or len(self._now) != table.capacity or len(self._numbers) > KINDS
        if every:
            self._shapes, capacity = shapes, table.capacity
            self._numbers = {NO_CARD: 0}
            self._unread.clear()
            self._cards = np.zeros((64, 4, len(shapes)))
            self._sums, self._left, self._now = np.zeros((capacity, 4, len(shapes))), np.zeros((capacity, 3)), np.zeros(capacity)
        if not every and not changed:
            return
        has = self.book.has_cards(None, table.capacity)
        rows = np.flatnonzero(table.live & has) if every else np.array(changed, np.intp)
        by_state: dict[int, list[FreeCard]] = {}
        numbers = np.where(has[rows], self.book.states.ids[rows], 0).tolist()
        for number in numbers:
            if number not in by_state:
                by_state[number] = self._cards_of(number) if number else []
        kinds = {number: [self._number(card) for card in cards] for number, cards in by_state.items()}
        self._read()
        if not len(rows):
            return
        sums = np.array([self._cards[of_node].sum(axis=0) for of_node in kinds.values()])
        left = np.array([
            (sum(map(worth_of, cards)), sum(card[4] for card in cards), len(cards)) for cards in by_state.values()
        ], np.float64)  # fmt: skip
        places = {number: place for place, number in enumerate(by_state)}
        like = np.array([places[number] for number in numbers], np.intp)
        self._sums[rows], self._left[rows] = sums[like], left[like]
        free = table.alloc[rows, :2] - table.used[rows, :2]
        self._now[rows] = self._stranded(rows, self._sums[rows], self._left[rows], free)

    def _stranded(
        self, rows: Rows, sums: NDArray[np.float64], left: NDArray[np.float64], free: NDArray[Any]
    ) -> NDArray[np.float64]:
        assert self._shapes is not None
        free = free.astype(np.float64)
        return of_nodes(sums, left[:, 0], left[:, 1], left[:, 2], free[:, 0], free[:, 1], self._allowed[self._kind[rows]],
                        self._shapes, self.how)  # fmt: skip

    def _allow(self, shapes: Shapes) -> None:
        table = self.state.ledger.table
        self._nodes, self._kind = table.version, np.zeros(table.capacity, np.intp)
        wanted = [(place, shape.where) for place, shape in enumerate(shapes.shapes) if isinstance(shape.where, Constraints)]
        met = [(place, node_affinity_met(self.state, where)) for place, where in wanted]
        for _, mask in met:
            _, self._kind = np.unique(self._kind * 2 + mask, return_inverse=True)
        _, first = np.unique(self._kind, return_index=True)
        ours = np.array([shape.device_type == self.book.device_type.name for shape in shapes.shapes], bool)
        self._allowed = np.tile(ours, (len(first), 1))
        for place, mask in met:
            self._allowed[:, place] &= mask[first]


def _difference(exchange: Sequence[tuple[FreeCard, FreeCard]]) -> tuple[float, int, int]:
    """The changes of a node's ``_left``."""
    return sum([worth_of(new) - worth_of(old) for old, new in exchange]), -sum([old[4] for old, _ in exchange]), 0
