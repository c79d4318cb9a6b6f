"""From the facts of the cards to what the node says about them: register annotation, device list, advertised resources.

Spec nvidia-device-plugin 5 (ids), 8 (annotation), real-kubelet 2 (why only the shares are a device list).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from pumice.devices.nvidia_vgpu.node.mps_cards import clients, unfit
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.devices.nvidia_vgpu.node.slots import uncut
from pumice.node.device_list import Unit
from pumice.ports.cards import CardFacts


class SharedCard(Struct, frozen=True):
    """One card as this node shares it. ``memory`` is in memory units, ``type`` as registered (``NVIDIA-Tesla T4``), ``closed``
    the reason why it is not healthy."""

    index: int
    uuid: str
    minor: int
    type: str
    memory: int
    cores: int
    shares: int
    healthy: bool
    mode: str
    closed: str = ""
    numa: int = -1
    links: tuple[tuple[str, int], ...] = ()
    places: bool = False
    """True if this plugin announces that it understands slices outside the geometry groups."""
    unfit: bool = False
    """True if it can never be shared as this node shares its cards."""


def share(facts: Sequence[CardFacts], sharing: Sharing,
          unhealthy: Mapping[str, str] = MappingProxyType({})) -> tuple[SharedCard, ...]:  # fmt: skip
    """The cards that this node offers, in NVML order; what the administrator left out appears nowhere.

    A card whose MIG mode is on says ``mig`` whatever the node's operating mode is: it cannot be shared otherwise. One that cannot
    be cut takes no pods: what is advertised is what an Allocate call will be answered with.
    """
    left = (card for card in facts if not sharing.leaves_out(card.index, card.uuid) and not (sharing.static_mig and card.mig))
    return tuple(_shared(card, sharing, unhealthy) for card in left)


def type_of(name: str) -> str:
    """Return the name of a card of this product in annotations."""
    return "NVIDIA-" + name.replace(",", " ").replace(":", " ")


def _shared(card: CardFacts, sharing: Sharing, unhealthy: Mapping[str, str]) -> SharedCard:
    mode = "mig" if card.mig else sharing.mode
    type_ = type_of(card.name)
    unshared = unfit(card) if sharing.mps and not card.mig else ""
    closed = unshared or unhealthy.get(card.uuid) or (uncut(sharing.config, type_, card.mig) if mode == "mig" else "")
    return SharedCard(
        index=card.index,
        uuid=card.uuid,
        minor=card.minor,
        type=type_,
        memory=sharing.units(card.memory),
        cores=sharing.cores_per_card,
        shares=min(sharing.split, clients(card.capability)) if sharing.mps and mode != "mig" else sharing.split,
        healthy=not closed,
        closed=closed,
        mode=mode,
        numa=card.numa,
        links=card.links,
        places=card.mig and sharing.mig_placements,
        unfit=bool(unshared),
    )


def by_minor(cards: Sequence[SharedCard]) -> list[SharedCard]:
    """The order of the register annotation: the position of a record is the card's index for the scheduler."""
    return sorted(cards, key=lambda card: (card.minor, card.index))


def share_list(cards: Sequence[SharedCard], numa: bool = False) -> list[Unit]:
    """Device list of the number resource: ``<UUID>-<i>``, one per share; with ``numa`` where each lies."""
    return [Unit(f"{card.uuid}-{i}", card.healthy, card.numa if numa else -1) for card in cards for i in range(card.shares)]


def memory_list(cards: Sequence[SharedCard]) -> list[Unit]:
    """Device list of the memory resource, one id per memory unit (``--advertise=devices`` only)."""
    return [Unit(f"{card.uuid}-memory-{i}", card.healthy) for card in cards for i in range(card.memory)]


def core_list(cards: Sequence[SharedCard]) -> list[Unit]:
    """Device list of the cores resource, one id per percent (``--advertise=devices`` only)."""
    return [Unit(f"{card.uuid}-core-{i}", card.healthy) for card in cards for i in range(card.cores)]


def capacity(cards: Sequence[SharedCard], sharing: Sharing) -> dict[str, int]:
    """Return what the status of the node promises beside the shares: memory units and percents of the healthy cards.

    Only healthy cards count: the kubelet takes allocatable from capacity for resources that it does not manage.
    """
    healthy = [card for card in cards if card.healthy]
    return {
        sharing.memory: sum(card.memory for card in healthy),
        sharing.cores: sum(card.cores for card in healthy),
    }
