"""The geometry of a model of card: the ConfigMap's, the published ones, or what NVIDIA's driver offers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from pumice.devices.nvidia_vgpu.mig import Geometry, Group
from pumice.devices.nvidia_vgpu.mig_places import places_of
from pumice.model.hardware.mig import MigTable, mig_table_for, normalised
from pumice.wire.device_config import MigGroup, MigInstances, ModelGeometries, NvidiaConfig


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
