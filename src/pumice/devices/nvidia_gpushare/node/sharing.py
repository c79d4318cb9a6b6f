"""How a node shares its cards without limits, and what it says of them: ``volcano.sh/gpu-memory`` and ``volcano.sh/gpu-number``
(volcano-sh/devices pkg/plugin/nvidia). Unlike upstream's, it knows each card's own memory and marks unhealthy memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.effects.vocabulary import PatchStatus
from pumice.model.amount import MIB
from pumice.node.device_list import Unit
from pumice.node.node_object import Leftovers, holds
from pumice.ports.cards import CardFacts
from pumice.wire import names
from pumice.wire.objects import Node

STRATEGIES: Final = ("share", "number")
OF_VGPU: Final = Leftovers(
    names.VGPU_NUMBER,
    (names.VGPU_MEMORY, names.VGPU_CORES),
    (names.NODE_VGPU_REGISTER, names.NODE_VGPU_HANDSHAKE, names.CARD_TOPOLOGY),
)


@dataclass(frozen=True, slots=True)
class Legacy:
    """How the node shares: ``strategy`` share (by memory) or number (whole cards), ``factor`` MiB per unit."""

    strategy: str = "share"
    factor: int = 1

    @property
    def resource(self) -> str:
        return names.GPU_MEMORY if self.strategy == "share" else names.GPU_NUMBER

    def units(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str]) -> list[Unit]:
        """The device list: ``<index>-<j>`` per memory unit, or the UUIDs."""
        if self.strategy == "number":
            return [Unit(card.uuid, card.uuid not in unhealthy) for card in cards]
        return [
            Unit(f"{card.index}-{j}", card.uuid not in unhealthy)
            for card in cards
            for j in range(card.memory // MIB // self.factor)
        ]

    def status(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str], node: Node) -> PatchStatus | None:
        """The write that keeps the card count and the unhealthy cards in the node's status; None when it stands.

        What a vGPU plugin left there goes with it: installing one replaces the other.
        """
        indices = ",".join(str(card.index) for card in cards if card.uuid in unhealthy)
        noted = node.metadata.annotations.get(names.NODE_GPU_UNHEALTHY_IDS)
        wanted = {names.GPU_NUMBER: len(cards)} if self.strategy == "share" and cards else {}
        old_resources, old_notes = OF_VGPU.of(node)
        stands = not old_resources and not old_notes and all(holds(node, name, count) for name, count in wanted.items())
        if stands and (noted or "") == indices:
            return None
        changed = {names.NODE_GPU_UNHEALTHY_IDS: indices or None} if (noted or "") != indices else {}
        kept = {name: str(count) for name, count in wanted.items()}
        return PatchStatus({**kept, **old_resources}, {**changed, **old_notes})
