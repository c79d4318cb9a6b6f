"""MIG geometries at work: which slot of a card a request gets (spec deviceshare-nvidia 5.4 and 8).

A ``Geometry`` is one model's groups, compiled for one memory factor. Used slots are a bit mask: bit i is slot i.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pumice.model.cards import Slot, Usage
from pumice.model.hardware.mig import mig_table_for, normalised
from pumice.wire.device_config import MigGroup, MigInstances, ModelGeometries, NvidiaConfig

Choice = tuple[int, int]
"""(group index, slot number)."""


@dataclass(frozen=True)
class Group:
    """The slots of one group in listed order: ``memory`` in MiB, ``charge`` in memory units, ``profiles`` by name."""

    name: str
    memory: tuple[int, ...]
    charge: tuple[int, ...]
    profiles: tuple[str, ...]

    @cached_property
    def smallest_first(self) -> tuple[int, ...]:
        return tuple(sorted(range(len(self.memory)), key=lambda slot: (self.memory[slot], slot)))

    def first(self, need: int, used: int) -> int:
        """The smallest free slot of at least ``need`` MiB, the earlier of equals; -1 when there is none."""
        memory = self.memory
        for slot in self.smallest_first:
            if memory[slot] >= need and not used >> slot & 1:
                return slot
        return -1

    def room(self, need: int, used: int) -> int:
        """How many free slots have at least ``need`` MiB."""
        return sum(1 for slot, memory in enumerate(self.memory) if memory >= need and not used >> slot & 1)

    def slot(self, number: int) -> Slot:
        return Slot(self.name, number, self.profiles[number], self.charge[number])


@dataclass(frozen=True, eq=False)
class Geometry:
    """The groups of one model in listed order. ``number`` tells geometries of one family apart."""

    number: int
    models: tuple[str, ...]
    groups: tuple[Group, ...]
    factor: int = 1

    @cached_property
    def index(self) -> dict[str, int]:
        return {group.name: i for i, group in enumerate(self.groups)}

    @cached_property
    def largest(self) -> int:
        """MiB of the largest slot of any group: what a whole card means in MIG mode (D-24)."""
        return max(max(group.memory) for group in self.groups)

    def candidates(self, active: int, used: int) -> Sequence[int]:
        """Groups that may be chosen now: a card without used slots is free to change its group (D-22)."""
        return (active,) if used else range(len(self.groups))

    def first_fit(self, active: int, used: int, need: int) -> Choice | None:
        """Upstream's rule: groups in listed order, inside a group the smallest slot that is large enough."""
        for index in self.candidates(active, used):
            slot = self.groups[index].first(need, used)
            if slot >= 0:
                return index, slot
        return None

    def first_with_room(self, need: int, count: int) -> int:
        """The first group with ``count`` slots of ``need`` MiB on an empty card; -1 when there is none."""
        for index, group in enumerate(self.groups):
            if group.room(need, 0) >= count:
                return index
        return -1


    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where the states of each group begin in the numbering of ``state``; 0 is the empty card."""
        starts, at = [], 1
        for group in self.groups:
            starts.append(at)
            at += (1 << len(group.memory)) - 1
        return (*starts, at)

    def state(self, group: str, used: int) -> int:
        """A number below STATES for (group, used slots), 0 for an idle card; -2 where the group is unknown."""
        if not used:
            return 0
        index = self.index.get(group)
        if index is None or used >> len(self.groups[index].memory):
            return -2
        return self.offsets[index] + used - 1


    def states(self) -> Iterator[tuple[int, int]]:
        """(active group, used mask) in the order of their numbers."""
        yield -1, 0
        for index, group in enumerate(self.groups):
            for used in range(1, 1 << len(group.memory)):
                yield index, used


STATES = 1 << 22
"""Above every state number of one geometry: at most 16 slots a group, and few groups."""


def mask_of(slots: Iterable[int]) -> int:
    """Slot numbers as a bit mask."""
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask


def tangled(usage: Usage) -> bool:
    """Whether the pods on a card claim what cannot be true together: one slot twice, or slots of two groups. Only foreign
    annotations can; such a card takes no new pods until one of them has left."""
    slots = [piece.slot for pieces in usage.holders.values() for piece in pieces if piece.slot is not None]
    return len(slots) != len(usage.slots) or any(slot.group != usage.group for slot in slots)


class Catalogue:
    """Finds the geometry of a card type: the ConfigMap's entries first, then NVIDIA's own table (docs/adr)."""

    def __init__(self, config: NvidiaConfig, *, builtin: bool = True) -> None:
        self._entries = config.known_mig_geometries
        self._builtin = builtin
        self._factor = max(1, config.gpu_memory_factor)
        self._found: dict[str, Geometry | None] = {}
        self._compiled: dict[tuple[MigGroup, ...], Geometry] = {}
        self.shapes: dict[Hashable, Any] = {}
        """What nodes with like cards share (inventory.Shape), by their cards."""

    def of(self, card_type: str) -> Geometry | None:
        """The geometry, or None when nobody knows this model. Equal groups give the same object."""
        if card_type not in self._found:
            entry = self._entry(card_type)
            self._found[card_type] = self._compile(entry) if entry and entry.groups else None
        return self._found[card_type]

    def known(self) -> tuple[Geometry, ...]:
        """Every geometry that some card has been found to have."""
        return tuple(self._compiled.values())

    def _entry(self, card_type: str) -> ModelGeometries | None:
        for entry in self._entries:
            if any(model in card_type for model in entry.models):
                return entry
        wanted = normalised(card_type)
        for entry in self._entries:
            if any(_same_model(model, wanted) for model in entry.models):
                return entry
        return builtin_geometries(card_type) if self._builtin else None

    def _compile(self, entry: ModelGeometries) -> Geometry:
        known = self._compiled.get(entry.groups)
        if known is None:
            groups = tuple(_group(group, self._factor) for group in entry.groups)
            known = Geometry(len(self._compiled), entry.models, groups, self._factor)
            self._compiled[entry.groups] = known
        return known


def _group(group: MigGroup, factor: int) -> Group:
    rows = [instance for instance in group.instances for _ in range(instance.count)]
    return Group(
        group.name,
        tuple(row.memory for row in rows),
        tuple(row.memory // factor for row in rows),
        tuple(row.name for row in rows),
    )


def _same_model(model: str, wanted: str) -> bool:
    """Whether a listed model names the same product once words are compared as a set (ADR on model names)."""
    words = normalised(model).split("-")
    return len(words) > 1 and set(words) <= set(wanted.split("-"))


PUBLISHED: tuple[ModelGeometries, ...] = (
    ModelGeometries(
        ("A30",),
        (
            MigGroup("group1", (MigInstances("1g.6gb", 6144, 4),)),
            MigGroup("group2", (MigInstances("2g.12gb", 12288, 2),)),
            MigGroup("group3", (MigInstances("4g.24gb", 24576, 1),)),
        ),
    ),
    ModelGeometries(
        ("A100-SXM4-40GB", "A100-40GB-PCIe", "A100-PCIE-40GB"),
        (
            MigGroup("group1", (MigInstances("1g.5gb", 5120, 7),)),
            MigGroup("group2", (MigInstances("2g.10gb", 10240, 3), MigInstances("1g.5gb", 5120, 1))),
            MigGroup("group3", (MigInstances("3g.20gb", 20480, 2),)),
            MigGroup("group4", (MigInstances("7g.40gb", 40960, 1),)),
        ),
    ),
    ModelGeometries(
        ("A100-SXM4-80GB", "A100-80GB-PCIe", "A100-PCIE-80GB"),
        (
            MigGroup("group1", (MigInstances("1g.10gb", 9728, 7),)),
            MigGroup("group2", (MigInstances("2g.20gb", 19968, 3), MigInstances("1g.10gb", 9728, 1))),
            MigGroup("group3", (MigInstances("3g.40gb", 40192, 2),)),
            MigGroup("group4", (MigInstances("7g.80gb", 80896, 1),)),
        ),
    ),
)
"""The geometries that the node plugin's manifests ship (spec 2.5): the memory figures that users' requests are cut to."""


def builtin_geometries(card_type: str) -> ModelGeometries | None:
    """The published figures where there are some, else what NVIDIA's driver offers on that model."""
    table = mig_table_for(card_type)
    if table is None:
        return None
    for entry in PUBLISHED:
        if set(entry.models) & set(table.models):
            return entry
    groups = tuple(
        MigGroup(f"group{i}", tuple(MigInstances(name, table.profile(name).memory, count) for name, count in group))
        for i, group in enumerate(table.geometries, start=1)
    )
    return ModelGeometries(table.models, groups)
