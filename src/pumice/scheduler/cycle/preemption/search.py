"""The cheapest room in the whole cluster for one pod, best first.

What room costs at least is known for all nodes at once: how much is missing, and which pods could give it. Nodes are looked
at in that order, until no other can be cheaper. On a node, what is missing of resources and cards is reckoned in the ledger as
it would be; the plugins' filters are asked on a trial that is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pumice.claims.reasons import Unallocated
from pumice.scheduler.cycle.preemption.cheapest import cheapest, everybody_of, minimal
from pumice.scheduler.cycle.preemption.victims import BASE, Cost, Prices, Scope, Unit, coherent, importance, units_of
from pumice.scheduler.cycle.queueing import with_kept_for_others
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.placing.evaluation import Among, Choice
from pumice.scheduler.placing.placer import Placer
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import Ledger
from pumice.scheduler.state.nodes import Rows

# -- room on one node --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """The pods to evict from (mostly) one node, and their cost."""

    row: int
    units: tuple[Unit, ...]
    cost: Cost

    @property
    def pods(self) -> list[Task]:
        return sorted((pod for unit in self.units for pod in unit.pods), key=importance)


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A pod for which others may be evicted. ``among``: nodes that it alone may have."""

    task: Task
    among: Among | None = None
    short_queue: bool = False
    """Its queue has no room: pods of that queue help, wherever they are."""
    accept: Callable[[Choice], bool] | None = None
    """Says whether its queue pays for these cards."""


@dataclass(slots=True)
class NodeSearch:
    """One pod and one node. ``trial``: nothing of it is done yet, nor is afterwards."""

    scope: Scope
    placer: Placer
    prices: Prices
    trial: Statement
    preemptor: Preemptor
    row: int
    _short: dict[int | str, int] = field(default_factory=dict)
    """Amounts that are missing at least: by column of the table, and by device type of the cards' memory."""
    _gives: dict[Unit, tuple[int, ...]] = field(default_factory=dict)
    """The amounts of that in each unit, in the same order."""
    _going: list[str] = field(default_factory=list)
    _known: dict[frozenset[str], bool] = field(default_factory=dict)
    _filtered: bool = False
    """True where more than resources and cards stands in the way."""

    @property
    def task(self) -> Task:
        return self.preemptor.task

    def find(self) -> Candidate | None:
        """The cheapest room; None where there is none."""
        ledger = self.placer.state.ledger
        allocated = ledger.by_node.get(self._node, {})
        tasks = self.placer.state.tasks
        units = units_of(self.scope, self.task, (tasks[uid] for uid in allocated if uid in tasks), self.prices)
        if not units:
            return None
        self._look_at_node(self._node)
        self._filtered = self.preemptor.short_queue or self._refused()
        try:
            found = self._cheapest(units)
            if found is not None and not self._filtered and not self._try(found):
                self._filtered = True  # what goes matters to a filter that has nothing against the node as it is
                found = self._cheapest(units)
        finally:
            self.trial.rollback()
        return None if found is None else Candidate(self.row, tuple(found), self.prices.cost(found))

    def _cheapest(self, units: Sequence[Unit]) -> list[Unit] | None:
        self._known.clear()
        helpful = [unit for unit in units if self._helps(unit)]
        if not helpful:
            return None
        possible = self.fits(everybody_of(helpful))
        if not possible and not self.task.cls.constraints.awaits_pods:
            return None  # fewer that go help no more; but for who wants to be near some of them
        return cheapest(helpful, tuple(self._short.values()), minimal(helpful, self) if possible else None, self)

    @property
    def _node(self) -> str:
        return self.placer.state.ledger.table.name(self.row)

    def _refused(self) -> bool:
        """Return whether a filter refuses the node once those who leave it already are gone."""
        placer, cls = self.placer, self.task.cls
        constrained = placer.framework.constrains(placer.state, cls)
        return constrained and bool(placer.refused_in_future(cls, np.array([self.row], np.intp)).any())

    # -- what is asked about a set of them ------------------------------------------------------------------------

    def gives(self, unit: Unit) -> tuple[int, ...]:
        return self._gives[unit]

    def cost(self, units: Sequence[Unit]) -> Cost:
        self.trial.rollback()
        return self.prices.cost(units)

    def fits(self, units: Sequence[Unit]) -> bool:
        """Return whether the preemptor would fit without them, as far as it matters who goes."""
        if not self._enough(units):
            return False
        if not (self.task.cls.device_requests or self.task.cls.device_claims or self._filtered):
            return True
        gone = [pod.uid for unit in units for pod in unit.here]
        key = frozenset(pod.uid for unit in units for pod in unit.pods)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._has_cards(gone) and (not self._filtered or self._try(units))
        return found

    def coherent(self, units: Sequence[Unit]) -> bool:
        self.trial.rollback()  # gangs, shares and votes are counted as they are in the ledger
        return coherent(units)

    def agreed(self, units: Sequence[Unit]) -> bool:
        return self.coherent(units) and not self.scope.spared(self.task, _in_order(units))

    def spared(self, units: Sequence[Unit]) -> Sequence[Unit]:
        self.trial.rollback()
        spared = self.scope.spared(self.task, _in_order(units)) if units else {}
        return [unit for unit in units if any(pod.uid in spared for pod in unit.pods)]

    def broken(self, units: Sequence[Unit]) -> Sequence[Unit]:
        broken = self.prices.broken(_in_order(units))
        return [unit for unit in units if any(pod.uid in broken for pod in unit.pods)]

    # -- whether a set makes room ---------------------------------------------------------------------------------

    def _look_at_node(self, node: str) -> None:
        ledger = self.placer.state.ledger
        table, row = ledger.table, self.row
        free = table.alloc[row] - table.used[row] + table.releasing[row] - table.pipelined[row]
        needs = ledger.columns(self.task.request)
        self._short.update((column, int(amount - free[column])) for column, amount in needs if amount > free[column])
        self._going = ledger.leaving(node)
        for device_request in self.task.cls.device_requests:
            device_table = ledger.device_tables[device_request.device_type]
            cards = ledger.future_cards(device_request.device_type, node, self._going)
            free = sum(max(0, card.total - use.memory) for card, use in zip(cards.inventory.cards, cards.usages, strict=True))
            if (short := device_table.device_type.least_memory(device_request) - free) > 0:
                self._short[device_request.device_type] = short

    def _helps(self, unit: Unit) -> bool:
        """Return whether its leaving can change anything: what a pod has none of it cannot give. Filters may mind any pod."""
        ledger = self.placer.state.ledger
        cls = self.task.cls
        helps, device_types, gives = (
            self._filtered,
            {device_request.device_type for device_request in cls.device_requests},
            dict[int | str, int](),
        )
        for pod in unit.here:
            helps = helps or (bool(cls.device_claims or device_types) and ledger.device_claims.reserved_for(pod.uid))
            helps = helps or (bool(cls.device_claims) and bool(ledger.placements[pod.uid].allocations))
            for column, amount in ledger.columns(pod.request):
                gives[column] = gives.get(column, 0) + amount
            for allocation in ledger.placements[pod.uid].allocations:
                gives[allocation.device_type] = gives.get(allocation.device_type, 0) + sum(
                    container_device.memory for container_device in allocation.container_devices
                )
                helps = helps or allocation.device_type in device_types
        self._gives[unit] = tuple(gives.get(what, 0) for what in self._short)
        return helps or any(self._gives[unit])

    def _enough(self, units: Sequence[Unit]) -> bool:
        """Return whether they have what is missing, as far as sums tell."""
        return all(sum(self._gives[unit][at] for unit in units) >= short for at, short in enumerate(self._short.values()))

    def _has_cards(self, gone: list[str]) -> bool:
        ledger, gone = self.placer.state.ledger, [*self._going, *gone]
        return all(
            ledger.device_tables[name].device_type.quick(device_request, ledger.future_cards(name, self._node, gone)) is not None
            for device_request in self.task.cls.device_requests
            for name in [device_request.device_type]
        ) and (not self.task.cls.device_claims or self._has_claims(gone))

    def _has_claims(self, gone: list[str]) -> bool:
        cls, promised = self.task.cls, self.placer.state.ledger.nominated_claims(self._node)
        return not isinstance(self.placer.evaluation.claims.in_future(cls, self._node, gone, promised), Unallocated)

    def _try(self, units: Sequence[Unit]) -> bool:
        """On the live books: with its queue's room and all filters. The trial goes on from the last one, for sets that are asked
        about one after the other are much alike."""
        wanted = {pod.uid: pod for unit in units for pod in unit.pods}
        for step in [step for step in self.trial.steps if step.receipt.uid not in wanted]:
            self.trial.take_back(step)
        for step in self.trial.steps:
            del wanted[step.receipt.uid]
        job, framework = self.task.job, self.placer.framework
        if job is None or not all(self.trial.evict(pod, "") for pod in wanted.values()):
            return False
        if not framework.allocatable(job.queue, with_kept_for_others(self.task, self.task.amounts)):
            return False
        return self.placer.choose_future(self.task.cls, self._node, self.preemptor.among, self.preemptor.accept) is not None


def _in_order(units: Sequence[Unit]) -> list[Task]:
    return sorted((pod for unit in units for pod in unit.pods), key=importance)


# -- the order of nodes ------------------------------------------------------------------------------------------------


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
    preemptor: Preemptor
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
        self, prices: Prices, trial: Statement, preemptor: Preemptor, whole: object, enough: Callable[[], bool] | None = None
    ) -> Candidate | None:
        """The cheapest room; of equally cheap ones that of the first node by name. None where there is none, or where it is
        ``unfinished``. ``whole``: the trial of which this search is a part; ``enough``: whether to go on with it later."""
        self._refresh(whole)
        room = self._search(prices, trial, preemptor, enough)
        self.placer.occupants.nothing_new()  # what was tried is taken back
        self._cursor = self.placer.state.ledger.table.changes.end
        return room

    def _search(
        self, prices: Prices, trial: Statement, preemptor: Preemptor, enough: Callable[[], bool] | None
    ) -> Candidate | None:
        heap, found, looked = self._heap, dict[int, Candidate](), 0
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
            room = NodeSearch(self.scope, self.placer, prices, trial, preemptor, row).find()
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
            self._rows = _rows(self.scope, self.placer, self.preemptor)
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
        for entry in _least_costs(self.scope, self.placer, self.preemptor, rows):
            self._least[entry[2]] = entry
            self._put(entry)

    def _put(self, entry: Entry) -> None:
        self._now[entry[2]] = entry
        heappush(self._heap, entry)


def _least_costs(scope: Scope, placer: Placer, preemptor: Preemptor, rows: Rows) -> Iterable[Entry]:
    """Return what room costs at least, for rows where there may be some."""
    occupants = placer.occupants
    requested = _requested(scope, placer, preemptor.task, rows)
    rows, requested = rows[requested.any(axis=1)], requested[requested.any(axis=1)]
    if not len(rows):
        return ()
    ranks, enough = occupants.ranks[rows], np.ones(len(rows), bool)
    reached, fewest = requested.argmax(axis=1), np.ones(len(rows), np.int64)
    missing = [] if preemptor.short_queue else [
        (short, np.where(requested, allocated, 0)) for short, allocated in _missing(placer, preemptor.task, rows)
    ]  # fmt: skip
    for short, given in missing:  # how far along the row, from the least important pod on, pods must go, and how many at least
        sums = given.cumsum(axis=1)
        enough &= sums[:, -1] >= short
        reached = np.maximum(reached, (sums >= short[:, None]).argmax(axis=1))
        fewest = np.maximum(fewest, -(-short // np.maximum(given.max(axis=1), 1)))
    highest = ranks[np.arange(len(rows)), reached]
    alone = requested & (ranks == highest[:, None])  # somebody has to be as important as that
    for short, given in missing:
        alone &= given >= short[:, None]
    fewest = np.where(alone.any(axis=1), fewest, np.maximum(fewest, 2))
    one = fewest == 1
    useful = np.where(one[:, None], alone, requested & (ranks <= highest[:, None]))
    for short, given in missing:  # where so few go, each gives what the others cannot
        useful &= given >= (short - (fewest - 1) * given.max(axis=1))[:, None]
    more = useful.sum(axis=1) < fewest  # one more at least, and then any
    fewest, useful = fewest + more, np.where(more[:, None], requested, useful)
    least_freed = np.where(more, 0, _least(np.where(useful, occupants.freed[rows], MUCH), fewest))
    lowest = ranks[np.arange(len(rows)), requested.argmax(axis=1)]
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


def _rows(scope: Scope, placer: Placer, preemptor: Preemptor) -> Rows:
    """Return where no filter closes the row for good, and it is large enough when it is empty."""
    task, table = preemptor.task, placer.state.ledger.table
    if scope.inside and task.job is not None:
        own = {table.row_of[own.node] for own in task.job.tasks.values() if own.node in table.row_of}
        rows = np.array(sorted(own), np.intp)
    else:
        rows = table.live_rows()
    may = table.live[rows] if preemptor.among is None else preemptor.among.open(table.capacity)[rows]
    return rows[may & large_enough(placer, task.cls, rows)]


def large_enough(placer: Placer, cls: PodClass, rows: Rows) -> NDArray[np.bool_]:
    """Return whether a node without pods could take one of the class, as far as that is told at once."""
    state = placer.state
    table, may = state.ledger.table, np.ones(len(rows), bool)
    for column, amount in state.ledger.columns(cls.request):
        may &= table.alloc[rows, column] >= amount
    for verdict in placer.framework.verdicts(state, cls, rows):
        if verdict.final:
            may &= ~verdict.failed
    for device_request in cls.device_requests:
        may &= state.ledger.device_tables[device_request.device_type].has_cards(rows, table.capacity)
    return may


def _requested(scope: Scope, placer: Placer, task: Task, rows: Rows) -> NDArray[np.bool_]:
    """Return which pods may be asked, as far as their queue tells."""
    occupants, job = placer.occupants, task.job
    queues = occupants.queues[rows]
    own = occupants.numbers.get(job.queue, -2) if job is not None else -2
    if not scope.others:
        return np.asarray(queues == own)
    closed = [number for queue, number in occupants.numbers.items() if not queue.reclaimable]
    return np.asarray((queues >= 0) & (queues != own) & ~np.isin(queues, closed))


def _missing(placer: Placer, task: Task, rows: Rows) -> Iterator[tuple[Numbers, Numbers]]:
    """Of every resource that some row lacks, how much is missing there, and what each pod there has of it."""
    ledger, occupants, cls = placer.state.ledger, placer.occupants, task.cls
    table = ledger.table
    for column, amount in ledger.columns(cls.request):
        free = table.alloc[rows, column] - table.used[rows, column]
        free += table.releasing[rows, column] - table.pipelined[rows, column]
        if (short := np.maximum(amount - free, 0)).any():
            yield short, occupants.allocated(occupants.columns, column)[rows]
    for device_request in cls.device_requests:
        device_table = ledger.device_tables[device_request.device_type]
        free = device_table.free_memory(rows, table.capacity)
        for at in np.flatnonzero(np.isin(rows, list(table.releasing_rows))).tolist():
            free[at] = _once_they_are_gone(ledger, device_request.device_type, table.name(int(rows[at])))
        if (short := np.maximum(device_table.device_type.least_memory(device_request) - free, 0)).any():
            yield short, occupants.allocated(occupants.memory, device_request.device_type)[rows]


def _once_they_are_gone(ledger: Ledger, device_type: str, node: str) -> int:
    """Return what is free of a node's cards when those who leave it have left, and who was nominated is there."""
    nominated, kept = ledger.nominated.get(node, {}), ledger.kept_nominations(node)
    tentative = [
        allocation
        for uid, allocated in nominated.items()
        if uid not in kept
        for allocation in allocated.allocations
        if allocation.device_type == device_type
    ]
    return ledger.device_tables[device_type].nodes[node].memory_left(ledger.going(node), tentative)
