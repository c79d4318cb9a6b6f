"""MIG profiles, placements and geometries (``mig.toml``).

A *profile* is a kind of GPU instance; a *placement* is where one may lie in the card's memory slices; a *geometry* is a
set of instances that deviceshare offers as one partition of a card (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu/mig-strategy.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from pumice.model.hardware import cards

# NVML's numbers for nvmlDeviceGetGpuInstanceProfileInfo; the driver's own profile ids (19, 14, 9, ...) are in the
# table.
NVML_KIND: Mapping[str, int] = {
    "1_SLICE": 0,
    "2_SLICE": 1,
    "3_SLICE": 2,
    "4_SLICE": 3,
    "7_SLICE": 4,
    "1_SLICE_REV1": 7,
    "2_SLICE_REV1": 8,
    "1_SLICE_REV2": 9,
}


class MigProfile(Struct, frozen=True):
    """One kind of GPU instance.

    ``kind`` is NVML's profile number, ``id`` the driver's; ``slices`` counts compute slices, ``size`` memory slices;
    ``count`` is the largest number of such instances on an otherwise empty card; ``starts`` are the legal first memory
    slices in the order in which the driver takes them.
    """

    name: str
    kind: int
    id: int
    slices: int
    count: int
    memory: int
    sms: int
    size: int
    starts: tuple[int, ...]
    ce: int = 0
    dec: int = 0
    enc: int = 0
    jpeg: int = 0
    ofa: int = 0

    @property
    def media(self) -> bool:
        """True if an instance holds the card's media extensions, of which there is one set."""
        return self.name.endswith("+me")


class MigTable(Struct, frozen=True):
    """The MIG profiles of one family of cards. ``geometries``: per group, ``(profile name, count)`` in slot order."""

    name: str
    models: tuple[str, ...]
    memory_slices: int
    compute_slices: int
    profiles: tuple[MigProfile, ...]
    geometries: tuple[tuple[tuple[str, int], ...], ...]

    def profile(self, name: str) -> MigProfile:
        """The profile called ``name``; raises ``KeyError`` when the card has none of that name."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise KeyError(name)


@cache
def mig_tables() -> dict[str, MigTable]:
    """Every table by name, in the file's order."""
    document = cards.table("mig")
    return {name: _table(name, row, document["layout"]) for name, row in document["table"].items()}


def mig_table(name: str) -> MigTable:
    """The table called ``name``; raises ``KeyError`` when there is none."""
    return mig_tables()[name]


def mig_table_for(product: str) -> MigTable | None:
    """The table for a product name as NVML or a node's annotation gives it, or None when MIG is unknown there.

    Both sides are normalised, because drivers write ``A100 80GB PCIe`` where published lists have ``A100-80GB-PCIe``
    (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/mig-strategy.go). A model matches as a whole word, so that an RTX A3000
    is no A30 and a GB200 no
    B200; the longest match wins.
    """
    wanted = normalised(product)
    found: tuple[int, MigTable] | None = None
    for table in mig_tables().values():
        for model in table.models:
            word = rf"(?<![A-Z0-9]){re.escape(normalised(model))}(?![A-Z0-9])"
            if re.search(word, wanted) and (found is None or len(model) > found[0]):
                found = (len(model), table)
    return found[1] if found else None


def normalised(product: str) -> str:
    """Upper case, with each run of spaces, hyphens and underscores as one hyphen."""
    return re.sub(r"[\s_-]+", "-", product.strip()).upper()


def _table(name: str, row: Mapping[str, Any], layouts: Mapping[str, Any]) -> MigTable:
    layout = layouts[row["layout"]]
    return MigTable(
        name=name,
        models=tuple(row["models"]),
        memory_slices=layout["memory_slices"],
        compute_slices=layout["compute_slices"],
        profiles=tuple(_profile(profile, layout["shape"]) for profile in row["profiles"]),
        geometries=tuple(tuple(_counted(part) for part in group) for group in row["geometries"]),
    )


def _profile(row: Mapping[str, Any], shapes: Mapping[str, Any]) -> MigProfile:
    facts = dict(row)
    shape_name = facts.pop("shape")
    shape = shapes[shape_name]
    return MigProfile(
        kind=NVML_KIND[facts.pop("kind")],
        slices=int(shape_name.split("-")[0]),
        size=shape["size"],
        starts=tuple(shape["starts"]),
        **facts,
    )


def _counted(part: str) -> tuple[str, int]:
    name, _, count = part.partition("*")
    return name, int(count)
