"""From the facts of the cards to what the node says about them: register annotation, device list, advertised resources.

Annotation and ids are those of HAMi's plugin (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue, Places
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.model.amount import Mib
from pumice.model.cards import Card, Mode
from pumice.node.device_list import Unit
from pumice.ports.cards import CardFacts
from pumice.wire import kubernetes, names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import CardPlace, PodDevice, render_register, render_topology

if TYPE_CHECKING:
    from pumice.ports.slices import Place


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


def capacity(cards: Sequence[SharedCard], sharing: Sharing, held: Iterable[PodDevice] = ()) -> dict[str, int]:
    """Return what the status of the node promises beside the shares: memory units and percents of the healthy cards, and what
    pods hold of the others: it is held against the node for as long as they are there.

    Only these count: the kubelet takes allocatable from capacity for resources that it does not manage.
    """
    ill = {card.uuid for card in cards if not card.healthy}
    healthy, lost = [card for card in cards if card.healthy], [device for device in held if device.uuid in ill]
    return {
        sharing.memory: sum(card.memory for card in healthy) + sum(device.memory for device in lost),
        sharing.cores: sum(card.cores for card in healthy) + sum(device.cores for device in lost),
    }


def hollow_node(name: str, cards: Sequence[CardFacts], sharing: Sharing | None = None) -> dict[str, Any]:
    """Return a ready node with these cards, as an object to be created."""
    sharing = sharing or Sharing()
    shared = share(cards, sharing)
    counts = {sharing.number: len(share_list(shared)), **capacity(shared, sharing)} if shared else {}
    annotations = {names.NODE_VGPU_REGISTER: register_annotation(shared)} if shared else {}
    if topology := topology_annotation(shared):
        annotations[names.CARD_TOPOLOGY] = topology
    quantities = {"cpu": "64", "memory": "256Gi", "pods": "500", **{resource: str(count) for resource, count in counts.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {kubernetes.HOSTNAME: name},
            "annotations": annotations,
        },
        "spec": {},
        "status": {
            "capacity": quantities,
            "allocatable": dict(quantities),
            "conditions": [{"type": "Ready", "status": "True", "reason": "Hollow", "message": "no kubelet behind it"}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


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


CAPABILITY: Final = (7, 0)
"""From which on a server holds clients to portions of threads and keeps their memory apart (Multi-Process Service, Volta MPS)."""


def clients(capability: tuple[int, int]) -> int:
    """Return how many programs a server takes on one card (Volcano pkg/scheduler/api/devices/nvidia/gpushare)."""
    return 48 if capability >= (7, 5) or capability == (0, 0) else 16


def unfit(card: CardFacts) -> str:
    """Return why a card cannot be shared by MPS; empty where it can, or where it does not tell."""
    if (0, 0) != card.capability < CAPABILITY:
        had, needed = (".".join(map(str, version)) for version in (card.capability, CAPABILITY))
        return f"this node shares cards by MPS, which bounds nobody below compute capability {needed}, and the card has {had}"
    return ""


def uncut(config: NvidiaConfig, card_type: str, mig: bool) -> str:
    """Return why a card that is to be cut cannot be, as far as its model and the configuration tell; empty where it can."""
    if not mig:
        return "this node is to cut MIG slices, and the card's MIG mode is off; switch it on (nvidia-smi -mig 1)"
    geometry = _catalogue(config).of(card_type)
    if geometry is None:
        return f"it is in MIG mode, and no MIG geometry is known for {card_type}; switch MIG off"
    if geometry.free is None:
        return f"it is in MIG mode, and knownMigGeometries gives {card_type} groups that the hardware cannot be cut into"
    return ""


def place_of(config: NvidiaConfig, card_type: str, device: PodDevice) -> Place | str:
    """The place of a device that is a slice, or why there is none."""
    from pumice.ports.slices import (
        Place,  # here: what a machine without a cluster imports knows no slices that are to be cut
    )

    geometry = _catalogue(config).of(card_type)
    places = geometry.free if geometry is not None else None
    if not isinstance(places, Places):
        return f"no MIG geometry is known for {card_type}"
    if device.profile:
        if isinstance(found := places.outside(device.profile, device.slot), str):
            return found
        return Place(device.uuid, device.profile, device.slot)
    group = places.index.get(device.group)
    if group is None or device.slot >= len(places.homes[group]):
        return f"{card_type} has no slot {device.place}; was the ConfigMap changed since the pod was placed?"
    home = places.place(group, device.slot)
    return Place(device.uuid, home.profile, home.start)


@lru_cache(maxsize=4)
def _catalogue(config: NvidiaConfig) -> Catalogue:
    return Catalogue(config, anywhere=True)
