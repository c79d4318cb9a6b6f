"""The cheapest room in the whole cluster for one pod, best first.

Every row has a cost below which no room can be had there: who holds a place on it and may be asked at all. Rows are looked at
exactly in that order, until no other can be cheaper. What was found of a row is kept for the next pod of the kind while the row
is unchanged.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.engine.cycle.room.on_a_node import NodeSearch, Room
from pumice.engine.cycle.room.scope import Scope, rank
from pumice.engine.cycle.room.victims import BASE, Cost, Prices, coherent
from pumice.engine.cycle.statement import Statement
from pumice.engine.placing.placer import Placer
from pumice.engine.state.nodes import Rows
from pumice.engine.state.tasks import Task

CANDIDATES = 100
"""Nodes with room for one pod among which the cheapest is chosen, as upstream's maxCandidateNodesAbsolute: with many nodes
there may be one that is a little cheaper."""

Entry = tuple[Cost, int, int, int, Room | None]
"""Cost at least, place in the order of names, row, version of the row, what was found there."""


@dataclass(slots=True)
class Search:
    """For pods of one class and of jobs that are alike to the vote."""

    scope: Scope
    placer: Placer
    prices: Prices
    heap: list[Entry] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)
    cursor: int = -1
    looked: int = 0
    """Nodes looked at in all."""

    def best(self, claimant: Task, statement: Statement, *, short_queue: bool) -> Room | None:
        self._refresh(claimant)
        best: Entry | None = None
        fresh: set[int] = set()
        """Rows looked at for this claimant."""
        while self.heap:
            entry = heapq.heappop(self.heap)
            _, place, row, version, room = entry
            if self.versions.get(row) != version:
                continue
            if room is not None and (row in fresh or (not short_queue and self._holds(claimant, room))):
                heapq.heappush(self.heap, entry)
                break
            room = NodeSearch(self.scope, self.placer, self.prices, statement, claimant, row, short_queue).find()
            self.looked += 1
            if room is None:
                continue
            fresh.add(row)
            entry = (room.cost, place, row, version, room)
            heapq.heappush(self.heap, entry)
            if best is None or entry[:2] < best[:2]:
                best = entry
            if len(fresh) >= CANDIDATES:
                room = best[4]
                break
        else:
            room = None
        self.cursor = self.placer.state.ledger.table.changes.end  # trials were taken back: no row is other than it was
        return room

    def _holds(self, claimant: Task, room: Room) -> bool:
        """Whether what was found for another pod of the kind is still true: votes count what went since."""
        pods = room.pods
        return (
            all(self.scope.candidate(claimant, pod) for pod in pods)
            and coherent(room.units) and not self.scope.spared(claimant, pods)
        )  # fmt: skip

    def _refresh(self, claimant: Task) -> None:
        table = self.placer.state.ledger.table
        changed = None if self.cursor < 0 else table.changes.since(self.cursor)
        rows = table.live_rows() if changed is None else np.array(changed, np.intp)
        if changed is None:
            self.heap, self.versions = [], {}
        if len(rows) == 0:
            return
        for row in rows.tolist():
            self.versions[row] = self.versions.get(row, 0) + 1
        order, entries = table.rank(), list[Entry]()
        for row in rows[self._open(claimant, rows)].tolist():
            bound = self._bound(claimant, row)
            if bound is not None:
                entries.append((bound, int(order[row]), row, self.versions[row], None))
        if changed is None:
            self.heap = entries
            heapq.heapify(self.heap)
        else:
            for entry in entries:
                heapq.heappush(self.heap, entry)
        self.cursor = table.changes.end

    def _open(self, claimant: Task, rows: Rows) -> NDArray[np.bool_]:
        """Where no filter closes the row for good, and it is large enough when it is empty."""
        state, cls = self.placer.state, claimant.cls
        table = state.ledger.table
        may = table.live[rows]
        for column, amount in state.ledger.columns(cls.request):
            may &= table.alloc[rows, column] >= amount
        for verdict in self.placer.framework.verdicts(state, cls, rows):
            if verdict.final:
                may &= ~verdict.failed
        for ask in cls.asks:
            may &= state.ledger.books[ask.family].has_cards(rows, table.capacity)
        return may

    def _bound(self, claimant: Task, row: int) -> Cost | None:
        """What room there costs at least; None where nobody can be asked."""
        state = self.placer.state
        candidate, tasks = self.scope.candidate, state.tasks
        held = state.ledger.by_node.get(state.ledger.table.name(row), ())
        ranks = [rank(pod) for uid in held if (pod := tasks.get(uid)) is not None and candidate(claimant, pod)]
        if not ranks:
            return None
        least = min(ranks)
        return Cost(0, least, 1, least + BASE, 1, 0)
