"""The ways of sharing cards that the checker judges, and whether one more pod may have a share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from pumice.audit.amounts import Json
from pumice.audit.card_rules import (
    CORES,
    HELD,
    MEMORY,
    NUMBER,
    PERCENT,
    Card,
    Want,
    cards_of,
    charge,
    container_devices,
    wants,
)


class Sharing(Protocol):
    """One way of sharing cards. A scheduler is told which one."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Return a pod's request of it."""

    def cards_of(self, node: Json) -> dict[str, Card]: ...

    def wants(self, pod: Json) -> list[Want]: ...

    def assignment(self, pod: Json) -> str: ...


class Vgpu:
    """The sharing by vGPUs, as ``card_rules`` has it."""

    resources = (NUMBER, MEMORY, PERCENT, CORES)

    def cards_of(self, node: Json) -> dict[str, Card]:
        return cards_of(node)

    def wants(self, pod: Json) -> list[Want]:
        return wants(pod)

    def assignment(self, pod: Json) -> str:
        text: str = pod["metadata"].get("annotations", {}).get(HELD, "")
        return text


def may_hold(asked: list[Want], cards: Mapping[str, Card]) -> bool | None:
    """Return whether some choice of shared cards serves all containers; None when only a MIG card might, which is not judged
    here."""
    if not asked:
        return True
    open_ = [card for card in cards.values() if not card.mig]
    if _search(asked, open_):
        return True
    return None if any(card.mig for card in cards.values()) else False


def _search(asked: list[Want], cards: list[Card]) -> bool:
    """Container by container, every set of cards that takes it."""
    if not asked:
        return True
    want, rest = asked[0], asked[1:]
    return any(_search(rest, after) for after in _choices(want, want.number, cards, 0))


def _choices(want: Want, number: int, cards: list[Card], begin: int) -> Iterator[list[Card]]:
    if number == 0:
        yield cards
        return
    for at in range(begin, len(cards)):
        card, need = cards[at], want.of(cards[at])
        if card.takes(need, want.cores):
            charged = Card(card.uuid, card.limit, card.total, card.healthy, card.mig, card.shares + 1, card.memory + need,
                           card.cores + want.cores)  # fmt: skip
            yield from _choices(want, number - 1, [*cards[:at], charged, *cards[at + 1 :]], at + 1)


def books(sharing: Sharing, nodes: Iterable[Json], held: Iterable[tuple[str, str]]) -> dict[str, dict[str, Card]]:
    """The cards of every node with what is held of them; ``held`` gives (node, assignment) of each placed pod."""
    found = {node["metadata"]["name"]: sharing.cards_of(node) for node in nodes}
    by_node: dict[str, list[str]] = defaultdict(list)
    for node, text in held:
        by_node[node].append(text)
    for name, cards in found.items():
        for text in by_node.get(name, ()):
            charge(cards, container_devices(text))
    return found
