"""How Ascend chips are cut on demand, by AI cores, AI CPUs and media units (``npu_slices.toml``; Volcano
pkg/scheduler/api/devices/ascend)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from pumice.model.hardware import shipped

GROUPS = 4
"""vGroups of a chip (Huawei ascend-device-plugin)."""


def groups_wanted(cores: Any) -> Any:
    """How many vGroups of a 310P have to be free for a slice of so many AI cores (Volcano
    pkg/scheduler/api/devices/ascend); for numbers and arrays."""
    return (cores >= 2) + (cores >= 4) * 1


class Dvpp(StrEnum):
    """A slice's part of a chip's media units: all, nothing, or its share."""

    YES = "yes"
    NO = "no"
    SHARE = "null"


@dataclass(frozen=True, slots=True)
class SliceTemplate:
    """``word``: what the name of such a slice says of it."""

    name: str
    cores: int
    cpus: int
    dvpp: Dvpp
    word: str


@dataclass(frozen=True, slots=True, eq=False)
class SliceKind:
    """One kind of chip, a row of the table. ``device_type``, the ``label`` of its pods, ``driver`` and ``paired`` are its
    names elsewhere. ``cpus``: AI CPUs by the AI cores of a chip. ``high`` and ``low``: (AI cores, DVPP) to the template of
    such a request, and to the smaller one that it may fall back to. ``worth``: by template what the first, the second, …
    place for such a slice counts in the value of a chip; ``whole`` for the chip itself. ``in_use``: what the vGroups in use
    add to it. ``company``: by template what each of them counts for a slice that is to join them, while no chip of the node
    is idle and while one is."""

    name: str
    device_type: str
    label: str
    driver: str
    paired: str
    cpus: Mapping[int, int]
    templates: Mapping[str, SliceTemplate]
    high: Mapping[tuple[int, Dvpp], tuple[SliceTemplate, ...]]
    low: Mapping[tuple[int, Dvpp], tuple[SliceTemplate, ...]]
    worth: Mapping[str, tuple[float, ...]]
    in_use: tuple[float, ...]
    company: Mapping[str, tuple[float, float]]

    def choices(self, cores: int, dvpp: Dvpp, *, high: bool) -> tuple[SliceTemplate, ...]:
        """The templates that serve a request, the one to be tried first in front; empty where none does."""
        return (self.high if high else self.low).get((cores, dvpp), ())


@cache
def slice_kinds() -> Mapping[str, SliceKind]:
    """All that are known, by name."""
    rows = shipped.table("npu_slices")
    found: dict[str, SliceKind] = {}
    for kind, row in rows.items():
        templates = {
            name: SliceTemplate(name, cores, cpus, Dvpp(dvpp), word) for name, cores, cpus, dvpp, word in row["templates"]
        }
        high, low = (
            {(cores, Dvpp(dvpp)): tuple(templates[name] for name in names if name) for cores, dvpp, *names in row[level]}
            for level in ("high", "low")
        )
        worth = {name: tuple(map(float, counts)) for name, counts in row["worth"].items()}
        cpus_of = {int(cores): cpus for cores, cpus in row["cpus"].items()}
        found[kind] = SliceKind(
            kind, row["device_type"], row["label"], row["driver"], row["paired"], cpus_of, templates, high, low, worth,
            tuple(row["in_use"]), row["company"],
        )  # fmt: skip
    return found
