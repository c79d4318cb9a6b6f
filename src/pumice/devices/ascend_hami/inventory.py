"""A node's cards of one type, as its plugin registers them (Volcano pkg/scheduler/api/devices/ascend/hami)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pumice.devices.ascend_hami.units import Units, units_of
from pumice.devices.protocol import Inventory
from pumice.model.cards import Card
from pumice.model.hardware.npu import NpuChip
from pumice.wire import names
from pumice.wire.ascend_hami import RegisteredNpu, parse_npu_register, register_key
from pumice.wire.nvidia_vgpu import parse_list
from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity

ALL_CORES = 100
"""The whole of which a soft share's cores are parts."""
RINGED = "Ascend910"
"""Types whose cards hang together in rings, four by four (section 10.3)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """``cores`` per card: what its node registered, or 100 on a node of soft shares; ``rings`` per card, None where not all of
    them say theirs; ``units`` as every chip of this type has them."""

    soft: bool
    cores: tuple[int, ...]
    rings: tuple[int, ...] | None
    by_uuid: Mapping[str, int]
    units: Units


def npu_inventory(node: Node, chip: NpuChip, soft: bool) -> Inventory | None:
    """None without a register annotation. ``soft`` is the cluster's default, which the node's annotation overrules."""
    notes, name = node.metadata.annotations, node.metadata.name
    text = notes.get(register_key(chip.word))
    if not text:
        return None
    if not _offers(node, chip):
        return Inventory(problems=(f"node {name} offers no {chip.resource} (status.allocatable)",))
    register = parse_npu_register(text)
    own = notes.get(names.NODE_NPU_SOFT)
    soft = soft if own is None else own == "true"
    registered = register.cards
    cordoned = parse_list(notes.get(names.CORDONED_CARDS))
    cards = tuple(_card(place, entry, chip, cordoned) for place, entry in enumerate(registered))
    rings = tuple(entry.ring for entry in registered if entry.ring is not None)
    facts = Facts(
        soft,
        tuple(ALL_CORES if soft else entry.cores for entry in registered),
        rings if chip.word.startswith(RINGED) and len(rings) == len(cards) else None,
        {card.uuid: card.index for card in cards},
        units_of(chip),
    )
    return Inventory(cards, tuple(f"node {name}: {problem}" for problem in register.problems), facts)


def _card(place: int, entry: RegisteredNpu, chip: NpuChip, cordoned: tuple[str, ...]) -> Card:
    blocked = "cordoned" if entry.id in cordoned else ""
    if entry.type and entry.type != chip.word:
        blocked = f"registered as {entry.type}"
    return Card(place, entry.id, chip.word, entry.memory, entry.count, entry.healthy, blocked=blocked, numa=entry.numa)


def _offers(node: Node, chip: NpuChip) -> bool:
    """The kubelet drops it to 0 when the plugin dies."""
    try:
        return parse_quantity(node.status.allocatable.get(chip.resource, 0)) > 0
    except ValueError:
        return False
