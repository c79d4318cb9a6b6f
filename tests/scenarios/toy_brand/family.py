"""The scheduler's half of the toy brand: what every brand must say to the engine, and a few of its words for lint and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.scenarios.toy_brand.words import ASSIGNED, CARD, CARDS, LOCK, NAME, NAMES, RESOURCE, SERVED, parse, render

from pumice.devices.protocol import Ask, Family, Fit, Inventory, NodeCards, Series, Tunables
from pumice.model.cards import Card, Grant, Piece
from pumice.model.refusal import CardMisfit, Misfit, Refusal, Short
from pumice.wire.objects import Node, Pod


class ToyFamily(Family):
    """Takes the first card with enough slices."""

    name = NAME
    lock = LOCK
    register = CARDS
    series = Series("toy_card", "toy_card_own")
    allocation_keys = (ASSIGNED, SERVED)
    tunables = Tunables(count=RESOURCE, rounds_up=True)
    steering: Mapping[str, tuple[str, ...]] = MappingProxyType({CARD: NAMES})

    def resources(self) -> frozenset[str]:
        return frozenset((RESOURCE,))

    def ask(self, pod: Pod) -> Ask | Refusal | None:
        written = [str(c.resources.limits[RESOURCE]) for c in pod.spec.containers if RESOURCE in c.resources.limits]
        if not all(text.isdecimal() for text in written):
            return Refusal(RESOURCE, f"{', '.join(written)}: slices are counted in whole numbers")
        key = sum(map(int, written)), pod.metadata.annotations.get(CARD, "")
        return Ask(self.name, key, key) if key[0] else None

    def inventory(self, node: Node) -> Inventory | None:
        found = parse(node.metadata.annotations.get(CARDS, ""))
        cards = (Card(at, name, "toy", slices, slices) for at, (name, slices) in enumerate(found.items()))
        return Inventory(tuple(cards)) if found else None

    def fit(self, ask: Ask, cards: NodeCards) -> Fit | Misfit:
        slices, wanted = ask.detail
        misfits = []
        for card, usage in zip(cards.inventory.cards, cards.usages, strict=True):
            idle = card.total - usage.memory
            if wanted not in ("", card.uuid):
                misfits.append(CardMisfit(card.uuid, Short.TYPE, detail=f"is not {wanted}"))
            elif idle < slices:
                misfits.append(CardMisfit(card.uuid, Short.MEMORY, slices, idle))
            else:
                return Fit(self._grant(cards.node, card, slices), 0.0)
        best = max((misfit.best for misfit in misfits), default=0)
        return Misfit(cards.node, Short.MEMORY, "toy: too few slices", slices, best, cards=tuple(misfits))

    def annotations(self, grant: Grant, now_ns: int) -> dict[str, str]:
        return {ASSIGNED: render({piece.uuid: piece.memory for piece in grant.pieces})}

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Grant | Refusal | None:
        held = parse(handed or pod.metadata.annotations.get(ASSIGNED, ""))
        found = [self._grant(node, card, held[card.uuid]) for card in inventory.cards if card.uuid in held]
        return found[0] if found and pod.spec.node_name == node else None

    def quota(self, ask: Ask) -> dict[str, int]:
        return {RESOURCE: ask.detail[0]}

    def _grant(self, node: str, card: Card, slices: int) -> Grant:
        return Grant(self.name, node, ((Piece(card.index, card.uuid, slices, 0, slices),),))
