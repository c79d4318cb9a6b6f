"""What queues hold of each type of cards, and which types their waiting pods could take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from pumice.devices.protocol import Ask, NodeCards
from pumice.engine.state.device_table import NodeDevices
from pumice.engine.state.jobs import ALLOCATED_STATUSES, QueueState, Status, Task
from pumice.engine.state.state import State


@dataclass(frozen=True, slots=True)
class CardUse:
    """One queue's part of the cards of one type, with all that is below it. ``used`` counts cards by their memory."""

    type: str
    total: int
    used: float
    shares: int
    waiting: int
    """Pods that wait and could have such a card if it were free; one that could have several types counts at each."""


@dataclass(slots=True)
class CardTypes:
    """The cards of the cluster by type."""

    state: State
    totals: dict[str, int] = field(default_factory=dict)
    _empty: dict[tuple[str, str], dict[Hashable, NodeCards]] = field(default_factory=dict)
    """By family and type the nodes that have such cards, alike ones once, with nothing on them and all other types closed."""
    _takes: dict[Ask, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for family, book in self.state.ledger.books.items():
            for node in book.nodes.values():
                for type_ in {card.type for card in node.inventory.cards}:
                    self._read(family, type_, node)

    def _read(self, family: str, type_: str, node: NodeDevices) -> None:
        mine = [card for card in node.inventory.cards if card.type == type_]
        self.totals[type_] = self.totals.get(type_, 0) + len(mine)
        others = {card.index: "another type" for card in node.inventory.cards if card.type != type_}
        view = NodeDevices.empty(node.name, node.inventory).view()
        alike = tuple(sorted((card.mode.name, card.total, card.shares) for card in mine))
        self._empty.setdefault((family, type_), {}).setdefault(alike, replace(view, quarantined=others))

    def of(self, queues: Iterable[QueueState]) -> tuple[CardUse, ...]:
        """Types of which they hold anything, or for which pods of theirs wait."""
        used, shares, waiting = Counter[str](), Counter[str](), Counter[str]()
        for task in (task for queue in queues for job in queue.jobs for task in job.tasks.values()):
            if task.status in ALLOCATED_STATUSES:
                for type_, millis in self._held(task):
                    used[type_] += millis
                    shares[type_] += 1
            elif task.status is Status.PENDING:
                waiting.update({type_ for ask in task.cls.asks for type_ in self._may_take(ask)})
        return tuple(
            CardUse(type_, self.totals[type_], used[type_] / 1000, shares[type_], waiting[type_])
            for type_ in sorted(shares.keys() | waiting.keys())
        )

    def _held(self, task: Task) -> Iterator[tuple[str, int]]:
        """Its pieces: of which type, and what part of a card, in thousandths."""
        ledger = self.state.ledger
        holding = ledger.holdings.get(task.uid)
        for grant in holding.grants if holding is not None else ():
            node = ledger.books[grant.family].nodes.get(task.node)
            for piece in grant.pieces if node is not None else ():
                if node is not None and (place := node.by_uuid.get(piece.uuid)) is not None:
                    card = node.inventory.cards[place]
                    yield card.type, round(1000 * piece.memory / card.total) if card.total else 0

    def _may_take(self, ask: Ask) -> tuple[str, ...]:
        found = self._takes.get(ask)
        if found is None:
            takes = self.state.ledger.books[ask.family].family.quick
            found = self._takes[ask] = tuple(
                type_ for (family, type_), nodes in self._empty.items()
                if family == ask.family and any(takes(ask, cards) is not None for cards in nodes.values())
            )  # fmt: skip
        return found
