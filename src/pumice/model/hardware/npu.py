"""Ascend chips and the templates by which they are cut (``npu.toml``; Volcano pkg/scheduler/api/devices/config/vnpu.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

from pumice.model.hardware import cards


@dataclass(frozen=True, slots=True)
class Template:
    """One size of slice: memory in MB, AI cores, AI CPUs (0: not stated)."""

    name: str
    memory: int
    cores: int = 0
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class NpuChip:
    """One type of card under one configuration.

    ``word`` is part of every annotation key; ``memory`` (MB) is what a whole card is given, ``capacity`` the largest request that
    still means a whole card; ``templates`` stand in ascending order of memory. ``factor`` multiplies what pods ask for.
    ``pairs``: the dies come two by two (910C as a super pod).
    """

    name: str
    word: str
    memory: int
    capacity: int
    cores: int = 0
    cpus: int = 0
    templates: tuple[Template, ...] = ()
    resource: str = ""
    memory_resource: str = ""
    core_resource: str = ""
    factor: int = 1
    pairs: bool = False
    runtime_class: str = ""
    overwrite_env: bool = False

    @property
    def shares(self) -> int:
        """Return how many pods a card takes: as many as it has smallest slices."""
        return self.memory // self.templates[0].memory if self.templates else 1

    def cut(self, memory: int) -> Template | None:
        """Return the template for a request of so many MB: the smallest template that holds it; the whole card (no name) above
        all of them; None beyond the capacity."""
        for template in self.templates:
            if memory <= template.memory:
                return template
        return self.whole if memory <= self.capacity else None

    def slice_of(self, memory: int) -> str:
        """The template of which a slice has exactly so many MB; empty where there is none."""
        return next((template.name for template in self.templates if template.memory == memory), "")

    @property
    def whole(self) -> Template:
        return Template("", self.memory, self.cores, self.cpus)


@cache
def shipped_chips(prefix: str) -> tuple[NpuChip, ...]:
    """The chips that are known without a configuration, in the file's order; ``prefix`` of the resources by which they are asked
    for."""
    rows = cards.table("npu")
    return tuple(
        NpuChip(
            name, row["word"], row["memory"], row["capacity"], row["cores"], row["cpus"],
            tuple(Template(*template) for template in row["templates"]),
            f"{prefix}{row['word']}", f"{prefix}{row['word']}-memory", f"{prefix}{row['word']}-core",
        )
        for name, row in rows.items()
    )  # fmt: skip


# -- The facts of the driver of an Ascend chip -----------------------------------------------------------------------

# ``npu.toml`` has its units and the templates that it accepts, of which a configuration names those that pods are given (Huawei
# ascend-device-plugin, Huawei's table of 310P templates).

MEDIA: Final = ("JPEGD", "JPEGE", "VPC", "VDEC", "PNGD", "VENC")


@dataclass(frozen=True, slots=True)
class Size:
    """The units of a chip or a slice. Memory in MB; ``media`` by the order of ``MEDIA``; a chip's number of 0 is not counted."""

    memory: int
    cores: int
    cpus: int
    media: tuple[int, ...] = (0,) * len(MEDIA)


@dataclass(frozen=True, slots=True)
class DriverChip:
    """A model of chip as its driver knows it. ``name`` as the driver reports it, ``groups`` its vGroups (``grouped``: slices
    of several cores want some that are free), ``slices`` how many it takes at most."""

    name: str
    product: str
    hbm: bool
    size: Size
    groups: int
    slices: int
    templates: tuple[tuple[str, Size], ...]
    grouped: bool = False


@cache
def driver_chips() -> dict[str, DriverChip]:
    """By the driver's name."""
    rows = cards.table("npu")
    return {name: _chip(name, row) for name, row in rows.items()}


def _chip(name: str, row: dict[str, Any]) -> DriverChip:
    facts = row["driver"]
    return DriverChip(
        name, facts["product"], facts["hbm"], Size(facts["memory"], row["cores"], row["cpus"], _media(facts["media"])),
        facts["groups"], facts["slices"],
        tuple((t, Size(memory, cores, cpus, _media(media))) for t, memory, cores, cpus, media in facts["templates"]),
        facts.get("grouped", False),
    )  # fmt: skip


def _media(numbers: list[int]) -> tuple[int, ...]:
    return tuple(numbers) or (0,) * len(MEDIA)


# -- How Ascend chips are cut on demand, by AI cores, AI CPUs and media units ----------------------------------------

# ``npu_slices.toml`` has them (Volcano pkg/scheduler/api/devices/ascend).


def groups_wanted(cores: int) -> int:
    """Return how many vGroups of a ``grouped`` chip have to be free for a slice of so many AI cores (Volcano
    pkg/scheduler/api/devices/ascend)."""
    return (cores >= 2) + (cores >= 4)


class Dvpp(StrEnum):
    """A slice's part of a chip's media units: all, nothing, or its share."""

    YES = "yes"
    NO = "no"
    SHARE = "null"


@dataclass(frozen=True, slots=True)
class SliceTemplate:
    """A template of slices. ``word``: what the name of such a slice says of it. ``groups``: the vGroups of its chip, of which
    so many are ``wanted`` free."""

    name: str
    cores: int
    cpus: int
    dvpp: Dvpp
    word: str
    groups: int
    wanted: int


@dataclass(frozen=True, slots=True, eq=False)
class SliceKind:
    """One kind of chip, a row of the table. ``device_type``, the ``label`` of its pods, ``driver`` and ``paired`` are its
    names elsewhere. ``groups`` and ``slices`` as its driver has them. ``cpus``: AI CPUs by the AI cores of a chip. ``high`` and
    ``low``: (AI cores, DVPP) to the template of such a request, and to the smaller one that it may fall back to. ``worth``: by
    template what the first, the second, … place for such a slice counts in the value of a chip; ``whole`` for the chip itself.
    ``in_use``: what the vGroups in use add to it. ``company``: by template what each of them counts for a slice that is to join
    them, while no chip of the node is idle and while one is."""

    name: str
    device_type: str
    label: str
    driver: str
    paired: str
    groups: int
    slices: int
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
    rows = cards.table("npu_slices")
    found: dict[str, SliceKind] = {}
    for kind, row in rows.items():
        chip = driver_chips()[row["driver"]]
        templates = {
            name: SliceTemplate(name, cores, cpus, Dvpp(dvpp), word, chip.groups, groups_wanted(cores) if chip.grouped else 0)
            for name, cores, cpus, dvpp, word in row["templates"]
        }
        high, low = (
            {(cores, Dvpp(dvpp)): tuple(templates[name] for name in names if name) for cores, dvpp, *names in row[level]}
            for level in ("high", "low")
        )
        cpus_of = {int(cores): cpus for cores, cpus in row["cpus"].items()}
        counted = row.get("worth") or _by_size(templates.values(), max(cpus_of))
        worth = {name: tuple(map(float, counts)) for name, counts in counted.items()}
        found[kind] = SliceKind(
            kind, row["device_type"], row["label"], row["driver"], row.get("paired", ""), chip.groups, chip.slices, cpus_of,
            templates, high, low, worth, tuple(row.get("in_use") or (0,) * (chip.groups + 1)), row.get("company", {}),
        )  # fmt: skip
    return found


def _by_size(templates: Iterable[SliceTemplate], cores: int) -> dict[str, list[int]]:
    """Return what places count where nobody has searched for better numbers: each the AI cores of its slice."""
    return {"whole": [cores], **{one.name: [one.cores] * (cores // one.cores) for one in templates}}
