"""The facts that NVML would tell of the cards of a machine model."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.model.amount import MIB
from pumice.ports.cards import CardFacts
from pumice_lab.machine.model import CardModel


def facts(cards: Sequence[CardModel]) -> tuple[CardFacts, ...]:
    """Return what NVML would say about the cards of a model: one minor number per card, in the model's order."""
    return tuple(
        CardFacts(
            index=index,
            uuid=card.uuid,
            name=card.name,
            memory=card.memory * MIB,
            minor=index,
            mig=card.mig_mode,
            numa=card.numa,
            bus_id=card.pci,
            links=_links(index, cards),
        )
        for index, card in enumerate(cards)
    )


def _links(index: int, cards: Sequence[CardModel]) -> tuple[tuple[str, int], ...]:
    """Links by peer; -1 is a switch, over which cards meet with as many links as the lesser of them has."""
    mine = cards[index].nvlinks
    widths = [
        (card.uuid, mine.count(other) + min(mine.count(-1), card.nvlinks.count(-1))) for other, card in enumerate(cards)
    ]
    return tuple((uuid, width) for uuid, width in widths if width and uuid != cards[index].uuid)
