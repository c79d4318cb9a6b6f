"""The cheapest pods of one node whose leaving lets a pod in.

Sets of units are looked at in the order of their cost, so the first one that makes room and that the plugins agree to is the
cheapest. What is missing of a resource, and then of cards, is reckoned on the books as they would be; the plugins' filters are
asked last, on a trial that is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations

from pumice.engine.cycle.letting_in import beside_others
from pumice.engine.cycle.room.scope import Scope, importance
from pumice.engine.cycle.room.victims import Cost, Prices, Unit, coherent, units_of
from pumice.engine.cycle.statement import Statement
from pumice.engine.placing.among import Among
from pumice.engine.placing.evaluation import Choice
from pumice.engine.placing.placer import Placer
from pumice.engine.state.holdings import LEAVING
from pumice.engine.state.jobs import Task
from pumice.families.protocol import NodeCards

TRIALS = 16
"""Sets of pods of one node that make room and are agreed to, on which the filters are asked."""
SETS = 4000
"""Sets of pods that are looked at on one node. A node with more of them is cleared as far as needed, most important pods spared
first: that is minimal too, though another set may be cheaper."""


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
    """One pod and one node."""

    scope: Scope
    placer: Placer
    prices: Prices
    statement: Statement
    claim: Claim
    row: int
    _short: dict[int | str, int] = field(default_factory=dict)
    """How much is missing at least: by column of the table, and by family of the cards' memory."""
    _gives: dict[Unit, tuple[int, ...]] = field(default_factory=dict)
    """What each unit has of that, in the same order."""
    _going: list[str] = field(default_factory=list)
    _known: dict[frozenset[str], bool] = field(default_factory=dict)

    @property
    def claimant(self) -> Task:
        return self.claim.task

    def find(self) -> Room | None:
        """The cheapest room; None where there is none."""
        ledger, table = self.placer.state.ledger, self.placer.state.ledger.table
        node = table.name(self.row)
        held = ledger.by_node.get(node, {})
        tasks = self.placer.state.tasks
        units = units_of(self.scope, self.claimant, (tasks[uid] for uid in held if uid in tasks), self.prices)
        if not units:
            return None
        self._look_at_node(node)
        units = [unit for unit in units if self._helps(unit, node)]
        trials = 0
        for some in self._sets(units):
            if not self.makes_room(some) or not self.agreed(some):
                continue
            if self._try(some, node):
                return Room(self.row, tuple(some), self.prices.cost(some))
            trials += 1
            if trials >= TRIALS:
                break
        return None

    # -- the order in which sets are looked at --------------------------------------------------------------------

    def _sets(self, units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
        looked = 0
        for violations in self._violations(units):
            for number, highest in enumerate(dict.fromkeys(unit.highest for unit in units)):
                among = [unit for unit in units if unit.highest <= highest]
                if not self.makes_room(among):
                    continue
                for size in range(self._fewest(among), len(among) + 1):
                    found = []
                    for some in combinations(among, size):
                        looked += 1
                        new = number == 0 or any(unit.highest == highest for unit in some)
                        if new and self._enough(some) and coherent(some):
                            cost = self.prices.cost(some)
                            if cost.violations == violations:
                                found.append((cost, [unit.pods[0].uid for unit in some], some))
                        if looked > SETS:
                            yield from self._cleared(among)
                            return
                    found.sort(key=lambda entry: entry[:2])
                    yield from (some for _, _, some in found)

    def _violations(self, units: Sequence[Unit]) -> Sequence[int]:
        if not self.prices.minds_budgets:
            return (0,)
        return range(self.prices.violations([pod for unit in units for pod in unit.pods]) + 1)

    def _cleared(self, among: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
        """All of them but those that may stay, the most important asked first."""
        gone = list(among)
        while not coherent(gone) or not self.agreed(gone):
            gone.pop()
            if not gone:
                return
        for unit in reversed(list(gone)):
            fewer = [other for other in gone if other is not unit]
            if fewer and self.makes_room(fewer):
                gone = fewer
        yield gone

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

    def _helps(self, unit: Unit, node: str) -> bool:
        """Whether its leaving can change anything: what a pod has none of it cannot give. Filters may mind any pod."""
        ledger = self.placer.state.ledger
        cls = self.claimant.cls
        helps = self.claim.short_queue or self.placer.framework.constrains(self.placer.state, cls)
        families, gives = {ask.family for ask in cls.asks}, dict[int | str, int]()
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

    def _fewest(self, among: Sequence[Unit]) -> int:
        """So many of them are needed at least."""
        fewest = 1
        for at, short in enumerate(self._short.values()):
            sums = list(accumulate(sorted((self._gives[unit][at] for unit in among), reverse=True)))
            fewest = max(fewest, 1 + sum(total < short for total in sums))
        return fewest

    def makes_room(self, units: Sequence[Unit]) -> bool:
        """Whether the resources and the cards would be there."""
        if not self._enough(units):
            return False
        if not self.claimant.cls.asks:
            return True
        gone = [pod.uid for unit in units for pod in unit.here]
        key = frozenset(gone)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._has_cards(gone)
        return found

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

    def agreed(self, units: Sequence[Unit]) -> bool:
        """Whether the plugins let all of them go together."""
        pods = sorted((pod for unit in units for pod in unit.pods), key=importance)
        return not self.scope.spared(self.claimant, pods)

    def _try(self, units: Sequence[Unit], node: str) -> bool:
        """On the live books, taken back at once: with its queue's room and all filters."""
        mark = self.statement.mark()
        try:
            gone = all(self.statement.evict(pod, "") for unit in units for pod in unit.pods)
            job = self.claimant.job
            amounts = beside_others(self.claimant, self.claimant.amounts)
            if not gone or job is None or not self.placer.framework.allocatable(job.queue, amounts):
                return False
            return self.placer.choose_future(self.claimant.cls, node, self.claim.among, self.claim.accept) is not None
        finally:
            self.statement.rollback(mark)
