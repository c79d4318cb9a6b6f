"""What a pod would strand of the cards of each node, for policies that count it (``pumice.devices.fragmentation``).

Nodes are judged by the shapes that the cluster has seen. What is stranded now is remembered per row; what would be is worked out
for one class at a time, once for all nodes that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.devices.card_policies import Stranding
from pumice.devices.fragmentation import CardPart, FreeNodes, Shapes, placed, steps, stranded, together
from pumice.scheduler.plugins.topology import node_affinity_met
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.classes import Constraints
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State

UNIQUE_FROM = 64
"""Rows from which on it pays to look for those that are alike."""


@dataclass(slots=True)
class StrandedCards:
    """Of one state, one way of counting and one device type. Rows are those of the table of nodes."""

    state: State
    book: DeviceTable
    how: Stranding
    _shapes: Shapes = field(default_factory=lambda: Shapes(()))
    _cursor: int = 0
    _nodes: int = -1
    """Version of the table of nodes by which ``_allowed`` was found."""
    _allowed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))
    _kind: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    """Per row the number of its line of ``_allowed``, of which there are few."""
    _now: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def steps(
        self, rows: Rows | None, cpu: int, memory: int, part: CardPart | None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Per row by how many steps fewer cards are stranded with such a pod, and where a card takes it."""
        table = self.state.ledger.table
        every = np.arange(table.capacity) if rows is None else rows
        found, may = np.zeros(len(every)), np.zeros(len(every), bool)
        stale = self._stale()
        has = np.flatnonzero(self.book.has_cards(every, table.capacity) & table.live[every])
        free = table.alloc[every[has], :2] - table.used[every[has], :2]
        has = has[(free[:, 0] >= cpu) & (free[:, 1] >= memory)]
        places = every[has]
        first, like = self._alike(places)
        before = self._free(stale)
        after, takes = placed(self._free(places[first]), cpu, memory, part)
        kinds = self._kind[np.concatenate((stale, places[first]))]
        cards = stranded(together(before, after), self._shapes, self._allowed[kinds], self.how)
        self._now[stale] = cards[: len(stale)]
        found[has] = steps(self._now[places], cards[len(stale) :][like])
        may[has] = takes[like]
        return found, may

    def _stale(self) -> Rows:
        """Rows of which what is stranded now is not known."""
        table = self.state.ledger.table
        shapes = self.state.classes.seen.current()
        changed = table.changes.since(self._cursor)
        self._cursor = table.changes.end
        if shapes is not self._shapes or self._nodes != table.version:
            self._allow(shapes)
        if shapes is not self._shapes or changed is None or len(self._now) != table.capacity:
            self._shapes, self._now = shapes, np.zeros(table.capacity)
            return np.flatnonzero(table.live & self.book.has_cards(None, table.capacity))
        rows = np.array(changed, np.intp)
        return rows[table.live[rows] & self.book.has_cards(rows, table.capacity)]

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

    def _free(self, rows: Rows) -> FreeNodes:
        table = self.state.ledger.table
        free = (table.alloc[rows, :2] - table.used[rows, :2]).astype(np.float64)
        cards = self.book.columns(rows)
        counted = cards.flags & ~cards.mig
        total = np.where(counted, cards.total, 0).T.astype(np.float64)
        left = np.maximum(total - cards.memory.T, 0.0)
        return FreeNodes(
            free[:, 0], free[:, 1], total, left, np.maximum(100.0 - cards.cores.T, 0.0),
            np.maximum(cards.share_limit - cards.shares, 0).T.astype(np.float64), cards.shares.T == 0,
        )  # fmt: skip

    def _alike(self, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """One place of each kind of rows, and per row the number of its kind: equal cards, equally used, equal room, equal
        labels as far as shapes look at them."""
        if len(rows) < UNIQUE_FROM:
            return np.arange(len(rows)), np.arange(len(rows))
        table = self.state.ledger.table
        key = (
            self.book.states.ids[rows].astype(np.int64) * (int(self._kind.max(initial=0)) + 1) + self._kind[rows]
        )
        for column in (0, 1):
            _, number = np.unique(table.alloc[rows, column] - table.used[rows, column], return_inverse=True)
            _, key = np.unique(key * (int(number.max(initial=0)) + 1) + number, return_inverse=True)
        _, first, like = np.unique(key, return_index=True, return_inverse=True)
        return first, like
