"""The cards of one node as its annotations state them (Volcano pkg/scheduler/api/devices/nvidia/vgpu)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from msgspec.structs import replace

from pumice.devices.nvidia_vgpu.mig import Geometry
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.protocol import Inventory, offers
from pumice.model.cards import Allocation, Card, Mode
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import parse_list, parse_register, parse_topology
from pumice.wire.objects import Node

SHAPES_KEPT = 4096
"""Kinds of nodes remembered; a node annotation that changes without end must not fill our memory."""


@dataclass(slots=True, eq=False)
class Shape:
    """The part that nodes with like cards share: per ask which cards can ever serve it (rows.py). Interned by
    ``Catalogue.shape``, so that a thousand like nodes remember an ask once."""

    memo: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Facts:
    """The part of a node that the device type remembers. ``memo`` caches per ask which cards can ever serve it (fit.py)."""

    geometries: tuple[Geometry | None, ...]
    by_uuid: Mapping[str, int]
    types: tuple[str, ...]  # lower case
    total: int
    shares: int
    links: bool  # whether the node says how its cards are connected
    shape: Shape = field(compare=False)
    unit: str = "MiB"
    """The unit of a card's memory."""
    read: dict[str, tuple[Any, Allocation]] = field(default_factory=dict, compare=False)
    """Assignments by their text: what a pod's containers said when it was compared, and what it holds (replay.py). The shares of
    one card are most often written alike."""


def inventory_of(node: Node, config: NvidiaConfig, catalogue: Catalogue, *, short_entries: bool,
                 unadvertised: bool) -> Inventory | None:  # fmt: skip
    """Return the node's cards: None without a register annotation, no cards but a problem where the node is not usable."""
    notes = node.metadata.annotations
    text = notes.get(names.NODE_VGPU_REGISTER)
    if not text:
        return None
    name = node.metadata.name
    missing = _not_allocatable(node, config, unadvertised)
    if missing:
        return inventory(catalogue, (), (f"node {name} offers no {' and no '.join(missing)} (status.allocatable)",))
    register = parse_register(text, short_entries=short_entries)
    problems = [f"node {name}: {problem}" for problem in register.problems]
    cards = _placed(register.cards, notes.get(names.CARD_TOPOLOGY, ""))
    cards = _cordoned(cards, parse_list(notes.get(names.CORDONED_CARDS)))
    geometries = tuple(_geometry(catalogue, card) for card in cards)
    usable = []
    for card, geometry in zip(cards, geometries, strict=True):
        if card.mode is Mode.MIG and geometry is None and not card.blocked:
            reason = f"no MIG geometry for model {card.type!r}"
            problems.append(f"node {name}: {reason} (card {card.uuid}); name it under knownMigGeometries")
            card = replace(card, blocked=reason)
        usable.append(card)
    return inventory(catalogue, tuple(usable), tuple(problems), geometries)


def _geometry(catalogue: Catalogue, card: Card) -> Geometry | None:
    """Slices may lie outside the groups only where the node's plugin says that it understands such ids."""
    found = catalogue.of(card.type) if card.mode is Mode.MIG else None
    return found.free if found is not None and card.places and found.free is not None else found


def inventory(catalogue: Catalogue, cards: tuple[Card, ...], problems: tuple[str, ...] = (),
              geometries: tuple[Geometry | None, ...] = ()) -> Inventory:  # fmt: skip
    """An inventory with what fit needs beside the cards."""
    geometries = geometries or (None,) * len(cards)
    alike = tuple(
        (card.total, card.shares, card.type, card.mode, card.healthy, not card.blocked, geometry)
        for card, geometry in zip(cards, geometries, strict=True)
    )
    if len(catalogue.shapes) >= SHAPES_KEPT:
        catalogue.shapes.clear()
    facts = Facts(
        geometries=geometries,
        unit=catalogue.memory_unit,
        by_uuid={card.uuid: card.index for card in cards},
        types=tuple(intern(card.type.lower()) for card in cards),
        total=sum(card.total for card in cards) or 1,
        shares=sum(card.shares for card in cards) or 1,
        links=any(card.links or card.numa >= 0 for card in cards),
        shape=catalogue.shapes.setdefault(alike, Shape()),
    )
    return Inventory(cards, problems, facts)


def _not_allocatable(node: Node, config: NvidiaConfig, unadvertised: bool) -> list[str]:
    """The configured resources that the node does not offer (D-06); by option only the number is required."""
    wanted = [config.resource_count_name]
    if not unadvertised:
        wanted += [config.resource_core_name, config.resource_memory_name]
    return [name for name in wanted if not offers(node, name)]


def _cordoned(cards: tuple[Card, ...], listed: tuple[str, ...]) -> tuple[Card, ...]:
    """``pumice.io/cordoned-cards`` names cards by UUID or index, ``*`` all of them; they keep their pods."""
    if not listed:
        return cards
    marked = set(listed)
    return tuple(
        replace(card, blocked=CORDONED) if not card.blocked and marked & {card.uuid, str(card.index), "*"} else card
        for card in cards
    )


CORDONED = "cordoned"


def _placed(cards: tuple[Card, ...], topology: str) -> tuple[Card, ...]:
    if not topology:
        return cards
    index = {card.uuid: card.index for card in cards}
    places = {place.uuid: place for place in parse_topology(topology)}
    placed = []
    for card in cards:
        place = places.get(card.uuid)
        if place is not None:
            links = tuple((index[peer], width) for peer, width in place.links if peer in index)
            card = replace(card, numa=place.numa, links=links)
        placed.append(card)
    return tuple(placed)
