"""The cheapest room in the whole cluster for one pod, best first.

For every node it is known, for all at once, what room there costs at least: how much is missing, and who could give it. Nodes are
looked at in that order, until no other can be cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pumice.engine.cycle.room.on_a_node import Claim, NodeSearch, Room
from pumice.engine.cycle.room.scope import Scope
from pumice.engine.cycle.room.victims import BASE, Cost, Prices
from pumice.engine.cycle.statement import Statement
from pumice.engine.placing.placer import Placer
from pumice.engine.state.classes import PodClass
from pumice.engine.state.jobs import Task
from pumice.engine.state.ledger import Ledger
from pumice.engine.state.nodes import Rows

CANDIDATES: Final = 100
"""Nodes with room for one pod among which the cheapest is chosen, as upstream's maxCandidateNodesAbsolute: with many nodes
there may be one that is a little cheaper."""

Numbers = NDArray[np.int64]
Entry = tuple[Cost, int, int]
"""The cost of room, the place in the order of names, and the row."""
MUCH: Final = 2**45


@dataclass(slots=True)
class Order:
    """The nodes on which room may be made for pods of one kind, the cheapest first, from one pod to the next: only what has
    changed is looked at again.

    What room costs on a node that was looked at stands there until the node changes or another trial begins: within a trial more
    and more pods go, and who may still go besides becomes fewer. Nodes without room are left out as long."""

    scope: Scope
    placer: Placer
    claim: Claim
    """Of one of these pods: they ask for the same, and may ask the same."""
    unfinished: bool = False
    """There was no time to find the cheapest one."""
    _rows: Rows = field(default_factory=lambda: np.zeros(0, np.intp))
    _heap: list[Entry] = field(default_factory=list)
    _least: dict[int, Entry] = field(default_factory=dict)
    """Per row what room costs there at least, whoever votes."""
    _now: dict[int, Entry] = field(default_factory=dict)
    """Per row its place in the heap; other entries are out of date."""
    _looked_at: dict[int, None] = field(default_factory=dict)
    """Rows that stand elsewhere than their least cost says, or nowhere."""
    _trial: object = None
    _cursor: int = 0
    _version: int = -1

    def cheapest(
        self, prices: Prices, trial: Statement, claim: Claim, whole: object, enough: Callable[[], bool] | None = None
    ) -> Room | None:
        """The cheapest room; of equally cheap ones that of the first node by name. None where there is none, or where it is
        ``unfinished``. ``whole``: the trial of which this search is a part; ``enough``: whether to go on with it later."""
        self._refresh(whole)
        room = self._search(prices, trial, claim, enough)
        self.placer.occupants.nothing_new()  # what was tried is taken back
        self._cursor = self.placer.state.ledger.table.changes.end
        return room

    def _search(self, prices: Prices, trial: Statement, claim: Claim, enough: Callable[[], bool] | None) -> Room | None:
        heap, found, looked = self._heap, dict[int, Room](), 0
        self.unfinished = False
        while heap:
            entry = heap[0]
            row = entry[2]
            if self._now.get(row) is not entry:
                heappop(heap)
                continue
            if row in found:
                return found[row]
            if looked > 1 and enough is not None and enough():  # one of them may have been looked at in the last cycle, too
                self.unfinished = True
                return None
            looked += 1
            heappop(heap)
            del self._now[row]
            self._looked_at[row] = None
            room = NodeSearch(self.scope, self.placer, prices, trial, claim, row).find()
            if room is None:
                continue
            found[row] = room
            self._put((room.cost, entry[1], row))
            if len(found) >= CANDIDATES:
                return min(found.items(), key=lambda item: self._now[item[0]])[1]
        return None

    def _refresh(self, whole: object) -> None:
        table = self.placer.state.ledger.table
        self.placer.occupants.refresh()
        changed = table.changes.since(self._cursor) if self._version == table.version else None
        self._cursor, self._version = table.changes.end, table.version
        if changed is None:
            self._rows = _rows(self.scope, self.placer, self.claim)
            self._heap, self._least, self._now, self._looked_at = [], {}, {}, {}
            self._weigh(self._rows)
            self._heap = list(self._now.values())
            heapify(self._heap)
        else:
            rows = np.array(changed, np.intp)
            for row in changed:
                self._least.pop(row, None)
                self._now.pop(row, None)
                self._looked_at.pop(row, None)
            self._weigh(rows[np.isin(rows, self._rows)])
        if self._trial is not whole:
            self._trial = whole
            for row in self._looked_at:
                if row in self._least:
                    self._put(self._least[row])
            self._looked_at = {}

    def _weigh(self, rows: Rows) -> None:
        for entry in _least_costs(self.scope, self.placer, self.claim, rows):
            self._least[entry[2]] = entry
            self._put(entry)

    def _put(self, entry: Entry) -> None:
        self._now[entry[2]] = entry
        heappush(self._heap, entry)


def _least_costs(scope: Scope, placer: Placer, claim: Claim, rows: Rows) -> Iterable[Entry]:
    """Return what room costs at least, for rows where there may be some."""
    occupants = placer.occupants
    asked = _asked(scope, placer, claim.task, rows)
    rows, asked = rows[asked.any(axis=1)], asked[asked.any(axis=1)]
    if not len(rows):
        return ()
    ranks, enough = occupants.ranks[rows], np.ones(len(rows), bool)
    reached, fewest = asked.argmax(axis=1), np.ones(len(rows), np.int64)
    missing = [] if claim.short_queue else [
        (short, np.where(asked, held, 0)) for short, held in _missing(placer, claim.task, rows)
    ]  # fmt: skip
    for short, given in missing:  # how far along the row, from the least important pod on, pods must go, and how many at least
        sums = given.cumsum(axis=1)
        enough &= sums[:, -1] >= short
        reached = np.maximum(reached, (sums >= short[:, None]).argmax(axis=1))
        fewest = np.maximum(fewest, -(-short // np.maximum(given.max(axis=1), 1)))
    highest = ranks[np.arange(len(rows)), reached]
    alone = asked & (ranks == highest[:, None])  # somebody has to be as important as that
    for short, given in missing:
        alone &= given >= short[:, None]
    fewest = np.where(alone.any(axis=1), fewest, np.maximum(fewest, 2))
    one = fewest == 1
    useful = np.where(one[:, None], alone, asked & (ranks <= highest[:, None]))
    for short, given in missing:  # where so few go, each gives what the others cannot
        useful &= given >= (short - (fewest - 1) * given.max(axis=1))[:, None]
    more = useful.sum(axis=1) < fewest  # one more at least, and then any
    fewest, useful = fewest + more, np.where(more[:, None], asked, useful)
    least_freed = np.where(more, 0, _least(np.where(useful, occupants.freed[rows], MUCH), fewest))
    lowest = ranks[np.arange(len(rows)), asked.argmax(axis=1)]
    others = np.where(more, (fewest - 1) * lowest, _least(np.where(useful, ranks, MUCH), fewest - 1))
    total = np.where(one, highest, highest + others) + fewest * BASE
    unknown = np.zeros(len(rows), np.int64)  # which gangs fall, and which jobs keep none, is known on the node only
    columns = (highest, unknown, total, unknown, least_freed, placer.state.ledger.table.rank()[rows])
    lines = np.stack(columns, axis=1)[enough].tolist()
    return [(Cost(0, *cost), place, row) for (*cost, place), row in zip(lines, rows[enough].tolist(), strict=True)]


def _least(values: Numbers, numbers: Numbers) -> Numbers:
    """Per row the sum of so many of its smallest values."""
    sums = np.sort(values, axis=1).cumsum(axis=1)
    found = np.take_along_axis(sums, np.clip(numbers - 1, 0, sums.shape[1] - 1)[:, None], axis=1)[:, 0]
    return np.asarray(np.where(numbers > 0, found, 0))


def _rows(scope: Scope, placer: Placer, claim: Claim) -> Rows:
    """Where no filter closes the row for good, and it is large enough when it is empty."""
    claimant, table = claim.task, placer.state.ledger.table
    if scope.inside and claimant.job is not None:
        own = {table.row_of[task.node] for task in claimant.job.tasks.values() if task.node in table.row_of}
        rows = np.array(sorted(own), np.intp)
    else:
        rows = table.live_rows()
    may = table.live[rows] if claim.among is None else claim.among.open(table.capacity)[rows]
    return rows[may & large_enough(placer, claimant.cls, rows)]


def large_enough(placer: Placer, cls: PodClass, rows: Rows) -> NDArray[np.bool_]:
    """Whether a node without pods could take one of the class, as far as that is told at once."""
    state = placer.state
    table, may = state.ledger.table, np.ones(len(rows), bool)
    for column, amount in state.ledger.columns(cls.request):
        may &= table.alloc[rows, column] >= amount
    for verdict in placer.framework.verdicts(state, cls, rows):
        if verdict.final:
            may &= ~verdict.failed
    for ask in cls.asks:
        may &= state.ledger.books[ask.family].has_cards(rows, table.capacity)
    return may


def _asked(scope: Scope, placer: Placer, claimant: Task, rows: Rows) -> NDArray[np.bool_]:
    """Which pods may be asked, as far as their queue tells."""
    occupants, job = placer.occupants, claimant.job
    queues = occupants.queues[rows]
    own = occupants.numbers.get(job.queue, -2) if job is not None else -2
    if not scope.others:
        return np.asarray(queues == own)
    closed = [number for queue, number in occupants.numbers.items() if not queue.reclaimable]
    return np.asarray((queues >= 0) & (queues != own) & ~np.isin(queues, closed))


def _missing(placer: Placer, claimant: Task, rows: Rows) -> Iterator[tuple[Numbers, Numbers]]:
    """Of every resource that some row lacks, how much is missing there, and what each pod there has of it."""
    ledger, occupants, cls = placer.state.ledger, placer.occupants, claimant.cls
    table = ledger.table
    for column, amount in ledger.columns(cls.request):
        free = table.alloc[rows, column] - table.used[rows, column]
        free += table.releasing[rows, column] - table.pipelined[rows, column]
        if (short := np.maximum(amount - free, 0)).any():
            yield short, occupants.held(occupants.columns, column)[rows]
    for ask in cls.asks:
        book = ledger.books[ask.family]
        free = book.free_memory(rows, table.capacity)
        for at in np.flatnonzero(np.isin(rows, list(table.releasing_rows))).tolist():
            free[at] = _once_they_are_gone(ledger, ask.family, table.name(int(rows[at])))
        if (short := np.maximum(book.family.least_memory(ask) - free, 0)).any():
            yield short, occupants.held(occupants.memory, ask.family)[rows]


def _once_they_are_gone(ledger: Ledger, family: str, node: str) -> int:
    """What is free of a node's cards when those who leave it have left, and who was promised a place is there."""
    promised, kept = ledger.promised.get(node, {}), ledger.kept_promises(node)
    tentative = [grant for uid, held in promised.items() if uid not in kept for grant in held.grants if grant.family == family]
    return ledger.books[family].nodes[node].memory_left(ledger.going(node), tentative)
