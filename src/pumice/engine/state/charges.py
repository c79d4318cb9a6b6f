"""What queues are charged for cards, where only the cards can tell (``PodClass.quota_known_late``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pumice.engine.state.classes import PodClass
from pumice.engine.state.ledger import Ledger
from pumice.engine.state.queues import QueueRecord
from pumice.engine.state.resources import Vector, shared
from pumice.model.cards import Grant

CLASSES_KEPT = 10_000


@dataclass(slots=True)
class Charges:
    """Amounts by class, family and the cards that there are."""

    ledger: Ledger
    _over: dict[PodClass, tuple[int, Vector]] = field(default_factory=dict)
    _last: tuple[PodClass, Sequence[Grant], Vector | None] | None = None
    """The last answer: what a queue was asked to pay, it is charged next."""

    def of(self, cls: PodClass, grants: Sequence[Grant]) -> Vector | None:
        """What a queue is charged for a pod with these cards; None where that is what the class says, or it holds none."""
        if not cls.quota_known_late:
            return None
        if self._last is None or self._last[0] is not cls or self._last[1] is not grants:
            self._last = cls, grants, self._of(cls, grants)
        return self._last[2]

    def _of(self, cls: PodClass, grants: Sequence[Grant]) -> Vector | None:
        asks = {ask.family: ask for ask in cls.quota_known_late}
        amounts: Vector = {}
        for grant in grants:
            book, ask = self.ledger.books.get(grant.family), asks.get(grant.family)
            late = book.family.late_quota if book is not None else None
            if book is None or late is None or ask is None:
                continue
            if grant.pieces:
                found = late.of_grant(grant)
            elif grant.doubts and grant.node in book.nodes:  # which cards nobody can tell: the dearest of the node
                found = late.bound(ask, late.card_kinds(book.nodes[grant.node].inventory))
            else:
                continue
            for name, value in found.items():
                amounts[name] = value * 1000
        usual = cls.amounts
        if amounts.items() <= usual.items() or all(usual.get(name, 0) == value for name, value in amounts.items()):
            return None
        return shared({**usual, **amounts})

    def expected(self, queue: QueueRecord) -> Vector:
        """The most that the queue's pending pods of such classes may come to, over its ``pending``."""
        version = self.ledger.card_kinds_version
        if queue.expected is None or queue.expected[0] != version:
            queue.expected, queue.news = (version, {}), list(queue.quota_known_late.items())
        total = queue.expected[1]
        for cls, number in queue.news:
            for name, value in self._over_demand(cls, version).items():
                total[name] = total.get(name, 0) + value * number
        queue.news.clear()
        return total

    def _over_demand(self, cls: PodClass, version: int) -> Vector:
        """The most that one pod of such a class may come to, over its ``demand``."""
        known = self._over.get(cls)
        if known is None or known[0] != version:
            more: Vector = {}
            for ask in cls.quota_known_late:
                book = self.ledger.books.get(ask.family)
                late = book.family.late_quota if book is not None else None
                if book is not None and late is not None:
                    most = late.bound(ask, book.card_kinds)
                    over = {name: value * 1000 - cls.amounts.get(name, 0) for name, value in most.items()}
                    more |= {name: value for name, value in over.items() if value > 0}
            if len(self._over) > CLASSES_KEPT:
                self._over.clear()
            known = self._over[cls] = version, more
        return known[1]

    def forget(self) -> None:
        """Other families count otherwise. Queues forget too (``QueueState.recount``)."""
        self._over.clear()
        self._last = None
