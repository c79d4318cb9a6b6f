"""Which cards can be shared by MPS, and by how many programs."""

from __future__ import annotations

from typing import Final

from pumice.ports.cards import CardFacts

CAPABILITY: Final = (7, 0)
"""From which on a server holds clients to portions of threads and keeps their memory apart (Multi-Process Service, Volta MPS)."""


def clients(capability: tuple[int, int]) -> int:
    """How many programs a server takes on one card (Volcano pkg/scheduler/api/devices/nvidia/gpushare)."""
    return 48 if capability >= (7, 5) or capability == (0, 0) else 16


def unfit(card: CardFacts) -> str:
    """Why a card cannot be shared by MPS; empty where it can, or where it does not tell."""
    if (0, 0) != card.capability < CAPABILITY:
        had, needed = (".".join(map(str, version)) for version in (card.capability, CAPABILITY))
        return f"this node shares cards by MPS, which bounds nobody below compute capability {needed}, and the card has {had}"
    return ""
