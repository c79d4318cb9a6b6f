"""The cheapest pods of one node whose leaving lets a pod in.

What is missing of a resource, and then of cards, is reckoned on the books as they would be; the plugins' filters are asked on a
trial that is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pumice.devices.protocol import NodeCards
from pumice.engine.cycle.letting_in import beside_others
from pumice.engine.cycle.room.cheaper import cheapest
from pumice.engine.cycle.room.reprieve import everybody_of, minimal
from pumice.engine.cycle.room.scope import Scope, importance
from pumice.engine.cycle.room.victims import Cost, Prices, Unit, coherent, units_of
from pumice.engine.cycle.statement import Statement
from pumice.engine.placing.among import Among
from pumice.engine.placing.evaluation import Choice
from pumice.engine.placing.placer import Placer
from pumice.engine.state.jobs import Task
from pumice.engine.state.ledger import LEAVING


@dataclass(frozen=True, slots=True)
class Room:
    """Who goes from (mostly) one node, and what it costs."""

    row: int
    units: tuple[Unit, ...]
    cost: Cost

    @property
    def pods(self) -> list[Task]:
        return sorted((pod for unit in self.units for pod in unit.pods), key=importance)


@dataclass(frozen=True, slots=True)
class Claim:
    """A pod that wants in. ``among``: nodes that it alone may have."""

    task: Task
    among: Among | None = None
    short_queue: bool = False
    """Its queue has no room: pods of that queue help, wherever they are."""
    accept: Callable[[Choice], bool] | None = None
    """Whether its queue pays for these cards."""


@dataclass(slots=True)
class NodeSearch:
    """One pod and one node. ``trial``: nothing of it is done yet, nor is afterwards."""

    scope: Scope
    placer: Placer
    prices: Prices
    trial: Statement
    claim: Claim
    row: int
    _short: dict[int | str, int] = field(default_factory=dict)
    """How much is missing at least: by column of the table, and by family of the cards' memory."""
    _gives: dict[Unit, tuple[int, ...]] = field(default_factory=dict)
    """What each unit has of that, in the same order."""
    _going: list[str] = field(default_factory=list)
    _known: dict[frozenset[str], bool] = field(default_factory=dict)
    _filtered: bool = False
    """True where more than resources and cards stands in the way."""

    @property
    def claimant(self) -> Task:
        return self.claim.task

    def find(self) -> Room | None:
        """The cheapest room; None where there is none."""
        ledger = self.placer.state.ledger
        held = ledger.by_node.get(self._node, {})
        tasks = self.placer.state.tasks
        units = units_of(self.scope, self.claimant, (tasks[uid] for uid in held if uid in tasks), self.prices)
        if not units:
            return None
        self._look_at_node(self._node)
        self._filtered = self.claim.short_queue or self._refused()
        try:
            found = self._cheapest(units)
            if found is not None and not self._filtered and not self._try(found):
                self._filtered = True  # what goes matters to a filter that has nothing against the node as it is
                found = self._cheapest(units)
        finally:
            self.trial.rollback()
        return None if found is None else Room(self.row, tuple(found), self.prices.cost(found))

    def _cheapest(self, units: Sequence[Unit]) -> list[Unit] | None:
        self._known.clear()
        helpful = [unit for unit in units if self._helps(unit)]
        if not helpful:
            return None
        possible = self.fits(everybody_of(helpful))
        if not possible and not self.claimant.cls.constraints.awaits_pods:
            return None  # fewer that go help no more; but for who wants to be near some of them
        return cheapest(helpful, tuple(self._short.values()), minimal(helpful, self) if possible else None, self)

    @property
    def _node(self) -> str:
        return self.placer.state.ledger.table.name(self.row)

    def _refused(self) -> bool:
        """Return whether a filter refuses the node once those who leave it already are gone."""
        placer, cls = self.placer, self.claimant.cls
        constrained = placer.framework.constrains(placer.state, cls)
        return constrained and bool(placer.refused_in_future(cls, np.array([self.row], np.intp)).any())

    # -- what is asked about a set of them ------------------------------------------------------------------------

    def gives(self, unit: Unit) -> tuple[int, ...]:
        return self._gives[unit]

    def cost(self, units: Sequence[Unit]) -> Cost:
        self.trial.rollback()
        return self.prices.cost(units)

    def fits(self, units: Sequence[Unit]) -> bool:
        """Return whether the claimant would fit without them, as far as it matters who goes."""
        if not self._enough(units):
            return False
        if not self.claimant.cls.asks and not self._filtered:
            return True
        gone = [pod.uid for unit in units for pod in unit.here]
        key = frozenset(pod.uid for unit in units for pod in unit.pods)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._has_cards(gone) and (not self._filtered or self._try(units))
        return found

    def coherent(self, units: Sequence[Unit]) -> bool:
        self.trial.rollback()  # gangs, shares and votes are counted on the books as they are
        return coherent(units)

    def agreed(self, units: Sequence[Unit]) -> bool:
        return self.coherent(units) and not self.scope.spared(self.claimant, _in_order(units))

    def spared(self, units: Sequence[Unit]) -> Sequence[Unit]:
        self.trial.rollback()
        spared = self.scope.spared(self.claimant, _in_order(units)) if units else {}
        return [unit for unit in units if any(pod.uid in spared for pod in unit.pods)]

    def broken(self, units: Sequence[Unit]) -> Sequence[Unit]:
        broken = self.prices.broken(_in_order(units))
        return [unit for unit in units if any(pod.uid in broken for pod in unit.pods)]

    # -- whether a set makes room ---------------------------------------------------------------------------------

    def _look_at_node(self, node: str) -> None:
        ledger = self.placer.state.ledger
        table, row = ledger.table, self.row
        free = table.alloc[row] - table.used[row] + table.releasing[row] - table.pipelined[row]
        needs = ledger.columns(self.claimant.request)
        self._short.update((column, int(amount - free[column])) for column, amount in needs if amount > free[column])
        self._going = [uid for uid, held in ledger.by_node[node].items() if held.state in LEAVING]
        self._going += ledger.kept_promises(node)
        for ask in self.claimant.cls.asks:
            book = ledger.books[ask.family]
            cards = self._cards(ask.family, ())
            free = sum(max(0, card.total - use.memory) for card, use in zip(cards.inventory.cards, cards.usages, strict=True))
            if (short := book.family.least_memory(ask) - free) > 0:
                self._short[ask.family] = short

    def _helps(self, unit: Unit) -> bool:
        """Whether its leaving can change anything: what a pod has none of it cannot give. Filters may mind any pod."""
        ledger = self.placer.state.ledger
        cls = self.claimant.cls
        helps, families, gives = self._filtered, {ask.family for ask in cls.asks}, dict[int | str, int]()
        for pod in unit.here:
            for column, amount in ledger.columns(pod.request):
                gives[column] = gives.get(column, 0) + amount
            for grant in ledger.holdings[pod.uid].grants:
                gives[grant.family] = gives.get(grant.family, 0) + sum(piece.memory for piece in grant.pieces)
                helps = helps or grant.family in families
        self._gives[unit] = tuple(gives.get(what, 0) for what in self._short)
        return helps or any(self._gives[unit])

    def _enough(self, units: Sequence[Unit]) -> bool:
        """Whether they have what is missing, as far as sums tell."""
        return all(sum(self._gives[unit][at] for unit in units) >= short for at, short in enumerate(self._short.values()))

    def _has_cards(self, gone: list[str]) -> bool:
        books = self.placer.state.ledger.books
        return all(
            books[ask.family].family.quick(ask, self._cards(ask.family, gone)) is not None for ask in self.claimant.cls.asks
        )

    def _cards(self, family: str, gone: Sequence[str]) -> NodeCards:
        """The node's cards when those who leave it are gone, these too, and who was promised a place is there."""
        ledger = self.placer.state.ledger
        node = ledger.table.name(self.row)
        promised = ledger.promised.get(node, {})
        plus = {uid: grant for uid, held in promised.items() for grant in held.grants if grant.family == family}
        return ledger.books[family].view(node, without=[*self._going, *gone], plus=plus)

    def _try(self, units: Sequence[Unit]) -> bool:
        """On the live books: with its queue's room and all filters. The trial goes on from the last one, for sets that are asked
        about one after the other are much alike."""
        wanted = {pod.uid: pod for unit in units for pod in unit.pods}
        for step in [step for step in self.trial.steps if step.receipt.uid not in wanted]:
            self.trial.take_back(step)
        for step in self.trial.steps:
            del wanted[step.receipt.uid]
        job, framework = self.claimant.job, self.placer.framework
        if job is None or not all(self.trial.evict(pod, "") for pod in wanted.values()):
            return False
        if not framework.allocatable(job.queue, beside_others(self.claimant, self.claimant.amounts)):
            return False
        return self.placer.choose_future(self.claimant.cls, self._node, self.claim.among, self.claim.accept) is not None


def _in_order(units: Sequence[Unit]) -> list[Task]:
    return sorted((pod for unit in units for pod in unit.pods), key=importance)
