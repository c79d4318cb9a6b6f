"""The geometry of a model of card: the ConfigMap's, the published ones, or what NVIDIA's driver offers.

MIG slices at any place that NVIDIA allows, not only where one geometry group has them (``pumice.MigOffGroup``, ADR 22).

A card is then what it is to the driver: a row of memory slices, some of them under instances. ``used`` is the mask of the
covered slices. A listed group is a set of names for such places: its instances lie in listed order, each at the lowest start
that leaves room for the rest, which is also where the driver puts them when a whole group is cut. So pods with a group's
slot and pods with a place of their own can share a card.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import Struct

from pumice.devices.nvidia_vgpu.mig import TANGLED, Choice, Geometry, Group
from pumice.devices.protocol import SlotView
from pumice.model.cards import Slot, Usage
from pumice.model.hardware.mig import MigProfile, MigTable, mig_table_for, normalised
from pumice.wire.device_config import MigGroup, MigInstances, ModelGeometries, NvidiaConfig


class Place(Struct, frozen=True):
    """An instance of a profile (``memory`` MiB) beginning at memory slice ``start``; ``cover`` is the mask of its slices."""

    profile: str
    start: int
    cover: int
    memory: int


@dataclass(frozen=True, eq=False)
class Places(Geometry):
    """The places of MIG slices on a card. ``places`` are ordered by size, then by the driver's own order; ``homes`` say per
    group where each slot lies.

    In a state (active, used) the active group is the one that names every slice on the card; ``len(groups)`` stands for
    cards where some slice has no group. A new slice is named by the active group where that has it, so that a card leaves the
    groups only when it must."""

    places: tuple[Place, ...] = ()
    homes: tuple[tuple[int, ...], ...] = ()
    width: int = 8
    _rooms: dict[tuple[int, int], int] = field(default_factory=dict)

    anywhere = True

    @cached_property
    def names(self) -> dict[tuple[int, int], int]:
        """(group, place) to the slot's number; the first of a group's slots that lies there."""
        return {(g, place): slot for g, home in reversed([*enumerate(self.homes)])
                for slot, place in reversed([*enumerate(home)])}  # fmt: skip

    @property
    def none(self) -> int:
        """In place of a group's index: the slice has no group, and the slot's number is the number of its place."""
        return len(self.groups)

    def place(self, group: int, number: int) -> Place:
        return self.places[number if group == self.none else self.homes[group][number]]

    # -- what Geometry answers by groups ------------------------------------------------------------------------

    def first_fit(self, active: int, used: int, need: int) -> Choice | None:
        """Upstream's rule as long as a group has room; then the smallest free place, the one that spoils least first."""
        for group in range(len(self.groups)) if not used else (active,) if active < self.none else ():
            slots = [slot for slot in range(len(self.homes[group])) if self._open(group, slot, used, need)]
            if slots:
                return group, min(slots, key=lambda slot: self.memory(group, slot))
        return min(self.choices(active, used, need), key=lambda choice: self._spoils(used, *choice), default=None)

    def choices(self, active: int, used: int, need: int) -> Iterator[Choice]:
        for number, place in enumerate(self.places):
            if place.memory >= need and not place.cover & used:
                yield self._named(active if used else -1, number)

    def slot(self, group: int, number: int) -> Slot:
        if group < self.none:
            return self.groups[group].slot(number)
        place = self.places[number]
        return Slot("", place.start, place.profile, place.memory // self.factor)

    def outside(self, profile: str, start: int) -> Slot | str:
        for number, place in enumerate(self.places):
            if (place.profile, place.start) == (profile, start):
                return self.slot(self.none, number)
        return f"the card has no {profile} that begins at memory slice {start}"

    def memory(self, group: int, number: int) -> int:
        return self.place(group, number).memory

    def taken(self, active: int, used: int, group: int, number: int) -> tuple[int, int]:
        return group if not used or group == active else self.none, used | self.place(group, number).cover

    def allocated(self, usage: Usage) -> tuple[int, int]:
        used = 0
        named = set()
        for container_devices in usage.holders.values():
            for container_device in container_devices:
                if container_device.slot is None:
                    continue
                found = self._find(container_device.slot)
                if found is None or used & self.place(*found).cover:
                    return TANGLED, 1
                used |= self.place(*found).cover
                named.add(found[0])
        if len(named - {self.none}) > 1:
            return TANGLED, used
        return (self.none if self.none in named else named.pop()) if named else -1, used

    def shown(self, usage: Usage) -> tuple[SlotView, ...]:
        """The slices where they lie, and the memory slices between them that nobody has."""
        active, _ = self.allocated(usage)
        if active < 0:
            return ()
        taken: list[tuple[Place, Slot, str]] = []
        for uid, devices in usage.holders.items():
            for device in devices:
                found = self._find(device.slot) if device.slot is not None else None
                if found is not None and device.slot is not None:
                    taken.append((self.place(*found), device.slot, uid))
        shown, at = [], 0
        for place, slot, uid in sorted(taken, key=lambda each: each[0].start):
            shown += [SlotView("", 0, free / self.width, 1 / self.width) for free in range(at, place.start)]
            at = place.start + place.cover.bit_count()
            shown.append(SlotView(slot.profile, slot.memory, place.start / self.width, (at - place.start) / self.width, uid))
        shown += [SlotView("", 0, free / self.width, 1 / self.width) for free in range(at, self.width)]
        return tuple(shown)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({place.memory for place in self.places}))

    @cached_property
    def largest(self) -> int:
        return self.sizes[-1]

    def room(self, active: int, used: int, size: int) -> int:
        """Return how many places of at least ``size`` MiB can be cut side by side."""
        known = self._rooms.get((used, size))
        if known is None:
            best = 0
            for place in self.places:
                if place.memory >= size and not place.cover & used:
                    best = max(best, 1 + self.room(active, used | place.cover, size))
            known = self._rooms[used, size] = best
        return known

    @property
    def states(self) -> int:
        return (len(self.groups) + 2) << self.width

    def number_of(self, active: int, used: int) -> int:
        return -2 if active == TANGLED else (active + 1 << self.width) + used if used else 0

    def state_of(self, number: int) -> tuple[int, int]:
        active, used = divmod(number, 1 << self.width)
        return active - 1, used

    # -- names --------------------------------------------------------------------------------------------------

    def _named(self, active: int, number: int) -> Choice:
        """The place by the active group's name for it; an idle card takes the first group that has one."""
        for group in range(len(self.groups)) if active < 0 else (active,):
            slot = self.names.get((group, number))
            if slot is not None:
                return group, slot
        return self.none, number

    def _find(self, slot: Slot) -> Choice | None:
        if slot.group:
            group = self.index.get(slot.group)
            return (group, slot.number) if group is not None and slot.number < len(self.homes[group]) else None
        for number, place in enumerate(self.places):
            if (place.profile, place.start) == (slot.profile, slot.number):
                return self.none, number
        return None

    def _open(self, group: int, slot: int, used: int, need: int) -> bool:
        place = self.place(group, slot)
        return place.memory >= need and not place.cover & used

    def _spoils(self, used: int, group: int, number: int) -> tuple[int, int, int]:
        """MiB of the place, and how many places of each size would be lost with it (larger sizes weigh as much)."""
        place = self.place(group, number)
        after = used | place.cover
        lost = sum(size * (self.room(-1, used, size) - self.room(-1, after, size)) for size in self.sizes)
        return place.memory, lost, -place.start


def places_of(number: int, models: tuple[str, ...], groups: tuple[Group, ...], factor: int,
              table: MigTable) -> Places | None:  # fmt: skip
    """None where a group holds what NVIDIA does not offer on that model: nothing can then be said about free places."""
    memory = _memory(groups, table)
    listed = {name for group in groups for name in group.profiles}
    chosen: dict[tuple[int, int, str], Place] = {}
    covered: set[tuple[int, int]] = set()
    ranked = sorted((p for p in table.profiles if not p.media), key=lambda p: (p.name not in listed, -p.slices))
    for profile in ranked:
        for start in sorted(profile.starts):
            if profile.name in listed or (start, profile.size) not in covered:
                covered.add((start, profile.size))
                cover = (1 << profile.size) - 1 << start
                chosen[profile.size, start, profile.name] = Place(profile.name, start, cover, memory[profile.name])
    places = tuple(sorted(chosen.values(), key=lambda p: (p.memory, p.start, p.profile)))
    homes = tuple(_homes(group.profiles, places) for group in groups)
    if any(home is None for home in homes):
        return None
    return Places(number, models, groups, factor, None, places, tuple(home or () for home in homes), table.memory_slices)


def _memory(groups: Sequence[Group], table: MigTable) -> dict[str, int]:
    """MiB per profile as requests are cut to them: the groups' figures; for a profile that no group has, those of a listed
    one that the driver gives as much; else the driver's own."""
    listed = {name: memory for group in groups for name, memory in zip(group.profiles, group.memory, strict=True)}
    by_size = {p.memory: listed[p.name] for p in table.profiles if p.name in listed}

    def of(profile: MigProfile) -> int:
        return listed.get(profile.name) or by_size.get(profile.memory) or profile.memory

    return {profile.name: of(profile) for profile in table.profiles}


def _homes(profiles: Sequence[str], places: Sequence[Place], used: int = 0) -> tuple[int, ...] | None:
    """A place for each instance, in listed order, the lowest starts first; None when they do not fit together."""
    if not profiles:
        return ()
    for number, place in enumerate(places):
        if place.profile == profiles[0] and not place.cover & used:
            rest = _homes(profiles[1:], places, used | place.cover)
            if rest is not None:
                return (number, *rest)
    return None


class Catalogue:
    """Finds the geometry of a card type: the ConfigMap's entries first, then NVIDIA's own table (docs/adr).

    ``anywhere`` gives each of NVIDIA's models a simulator whose slices may lie outside the groups (``Geometry.free``)."""

    def __init__(self, config: NvidiaConfig, *, builtin: bool = True, anywhere: bool = False) -> None:
        self._entries = config.known_mig_geometries
        self._builtin = builtin
        self._anywhere = anywhere
        self._factor, self.memory_unit = max(1, config.gpu_memory_factor), config.memory_unit
        self._found: dict[str, Geometry | None] = {}
        self._compiled: dict[tuple[tuple[MigGroup, ...], MigTable | None], Geometry] = {}
        self._known: list[Geometry] = []
        self.shapes: dict[Hashable, Any] = {}
        """The parts that nodes with like cards share (inventory.Shape), by their cards."""

    def of(self, card_type: str) -> Geometry | None:
        """The geometry, or None when nobody knows this model. Equal groups give the same object."""
        if card_type not in self._found:
            entry = self._entry(card_type)
            table = mig_table_for(card_type) if self._anywhere else None
            self._found[card_type] = self._compile(entry, table) if entry and entry.groups else None
        return self._found[card_type]

    def known(self) -> tuple[Geometry, ...]:
        """Every geometry that some card has been found to have."""
        return tuple(self._known)

    def _entry(self, card_type: str) -> ModelGeometries | None:
        for entry in self._entries:
            if any(model in card_type for model in entry.models):
                return entry
        wanted = normalised(card_type)
        for entry in self._entries:
            if any(_same_model(model, wanted) for model in entry.models):
                return entry
        return builtin_geometries(card_type) if self._builtin else None

    def _compile(self, entry: ModelGeometries, table: MigTable | None) -> Geometry:
        known = self._compiled.get((entry.groups, table))
        if known is None:
            groups = tuple(_group(group, self._factor) for group in entry.groups)
            free = None
            if table is not None:
                free = places_of(len(self._known), entry.models, groups, self._factor, table)
                self._known += [free] if free is not None else []
            known = Geometry(len(self._known), entry.models, groups, self._factor, free)
            self._known.append(known)
            self._compiled[entry.groups, table] = known
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
    """Return whether a listed model names the same product once words are compared as a set (ADR on model names)."""
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
"""The geometries that the node plugin's manifests ship (Volcano pkg/scheduler/api/devices/config): the memory figures that
users' requests are cut to."""


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
