"""The facts of the driver of an Ascend chip (``npu.toml``; Huawei ascend-device-plugin, Huawei's table of 310P
templates): its units and the templates that
it accepts, of which a configuration names those that pods are given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pumice.model.hardware import shipped

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
    """``name`` as the driver reports it, ``groups`` its vGroups (``grouped``: slices of several cores want some that are free),
    ``slices`` how many it takes at most."""

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
    rows = shipped.table("npu")
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
