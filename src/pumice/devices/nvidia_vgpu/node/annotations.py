"""The annotations of a node on its cards (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/register.go). `pumice run` reads
the same of its own machine."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.devices.nvidia_vgpu.node.inventory import SharedCard, by_minor
from pumice.model.amount import Mib
from pumice.model.cards import Card, Mode
from pumice.wire.nvidia_vgpu import CardPlace, render_register, render_topology


def register_annotation(cards: Sequence[SharedCard]) -> str:
    """``volcano.sh/node-vgpu-register``; empty when there is no card, which readers take for no vGPU node."""
    return render_register(
        Card(
            index=position,
            uuid=card.uuid,
            type=card.type,
            total=Mib(card.memory),
            shares=card.shares,
            healthy=card.healthy,
            mode=Mode.MIG if card.mode == "mig" else Mode.HAMI_CORE,
            places=card.places,
        )
        for position, card in enumerate(by_minor(cards))
    )


def topology_annotation(cards: Sequence[SharedCard]) -> str:
    """``pumice.io/card-topology``, ours alone: where the cards sit and how they are linked; empty when nothing is known."""
    if all(card.numa < 0 and not card.links for card in cards):
        return ""
    return render_topology([CardPlace(card.uuid, card.numa, card.links) for card in by_minor(cards)])
