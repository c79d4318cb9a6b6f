"""Hollow nodes: node objects as the plugin would leave them, straight from a machine model. For tests of scale.

The same functions that the plugin advertises with render them; there is no NVML, no socket and no process behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pumice.devices.nvidia_vgpu.node.annotations import register_annotation, topology_annotation
from pumice.devices.nvidia_vgpu.node.inventory import capacity, share, share_list
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.model.amount import MIB
from pumice.ports.cards import CardFacts
from pumice.wire import kubernetes, names


class ModelCard(Protocol):
    """The part of a machine model's card that is read; ``memory`` is in MiB."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> int: ...
    @property
    def uuid(self) -> str: ...
    @property
    def pci(self) -> str: ...
    @property
    def numa(self) -> int: ...
    @property
    def mig_mode(self) -> bool: ...
    @property
    def nvlinks(self) -> tuple[int, ...]: ...


def facts(cards: Sequence[ModelCard]) -> tuple[CardFacts, ...]:
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


def _links(index: int, cards: Sequence[ModelCard]) -> tuple[tuple[str, int], ...]:
    """Links by peer; -1 is a switch, over which cards meet with as many links as the lesser of them has."""
    mine = cards[index].nvlinks
    widths = [
        (card.uuid, mine.count(other) + min(mine.count(-1), card.nvlinks.count(-1))) for other, card in enumerate(cards)
    ]
    return tuple((uuid, width) for uuid, width in widths if width and uuid != cards[index].uuid)


def hollow_node(
    name: str,
    cards: Sequence[CardFacts],
    sharing: Sharing | None = None,
    *,
    resources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A ready node with these cards, as an object to be created. ``resources``: cpu, memory and pods."""
    sharing = sharing or Sharing()
    shared = share(cards, sharing)
    counts = {sharing.number: len(share_list(shared)), **capacity(shared, sharing)} if shared else {}
    annotations = {names.NODE_VGPU_REGISTER: register_annotation(shared)} if shared else {}
    if topology := topology_annotation(shared):
        annotations[names.CARD_TOPOLOGY] = topology
    quantities = {"cpu": "64", "memory": "256Gi", "pods": "500", **(resources or {})}
    quantities |= {resource: str(count) for resource, count in counts.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {kubernetes.HOSTNAME: name, **(labels or {})},
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
