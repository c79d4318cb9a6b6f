"""What MindCluster's device plugin and its scheduler write on nodes and pods, read and written (spec ascend 26 to 28, 35 to 40).

Nothing here raises on data: what cannot be read is left out and named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from msgspec import DecodeError
from msgspec.json import decode

from pumice.wire import names
from pumice.wire.ascend_hami import PREDICATE_TIME

NPU_CORE: Final = f"{names.HUAWEI}npu-core"
"""The resource, AI cores; and the annotation with the scheduler's decision."""
REAL: Final = f"{names.HUAWEI}AscendReal"
"""Annotation in which the plugin says what it made of the decision."""
KIND: Final = "Ascend310P"
WHOLE_CHIPS: Final = f"{names.HUAWEI}{KIND}"
"""Annotation of a pod that holds whole chips by the scheme that cuts none: their names, with commas between."""

RING_CONTROLLER: Final = "ring-controller.atlas"
CUT_ON_DEMAND: Final = "ascend-310P"
"""The value of ``RING_CONTROLLER`` by which a pod takes part."""
LEVEL: Final = "vnpu-level"
LEVELS: Final = ("low", "high")
DVPP: Final = "vnpu-dvpp"

ACCELERATOR: Final = "accelerator"
SERVER_TYPE: Final = "servertype"
CHIP_NAME: Final = "node.kubernetes.io/npu.chip.name"
BASE_DEVICES: Final = "baseDeviceInfos"

CHIPS: Final = 64
"""Ids of chips lie below: a vNPU's number is the chip's times 16, plus 100, and 1123 at most (spec ascend 40)."""
_CHIP = re.compile(r"[A-Za-z0-9]+-([0-9]{1,2})")


def chip_name(number: int) -> str:
    return f"{KIND}-{number}"


def chip_number(name: str) -> int | None:
    """The physical id in a chip's name; None for what is no chip of this kind."""
    found = _CHIP.fullmatch(name)
    if found is None or not name.startswith(f"{KIND}-") or int(found[1]) >= CHIPS:
        return None
    return int(found[1])


# -- the node -----------------------------------------------------------------------------------------------------------


def parse_base_devices(text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ids of all chips in annotation ``baseDeviceInfos``, and a sentence for each thing that is wrong. vNPUs (more than one
    ``-``) are skipped."""
    try:
        found = decode(text.encode())
    except (DecodeError, UnicodeEncodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return (), (f"annotation {BASE_DEVICES} {text[:80]!r} is no JSON map",)
    chips, problems = set(), []
    for name in found:
        number = chip_number(name)
        if number is not None:
            chips.add(number)
        elif name.count("-") <= 1:
            problems.append(f"{name[:80]!r} in annotation {BASE_DEVICES} is no {KIND}-<number>; skipped")
    return tuple(sorted(chips)), tuple(problems)


# -- a pod's decision -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """``template`` is empty where whole chips are given."""

    chips: tuple[int, ...]
    template: str = ""


def parse_assignment(text: str) -> Assignment | None:
    """The annotation ``huawei.com/npu-core``: ``0-vir04_3c``, or ``0,1``. None for what is neither."""
    chip, dash, template = text.partition("-")
    if dash:
        number = _id(chip)
        return Assignment((number,), template) if number is not None and template and "-" not in template else None
    chips = [_id(part) for part in text.split(",")]
    known = tuple(chip for chip in chips if chip is not None)
    return Assignment(known) if known and len(known) == len(chips) else None


def render_assignment(assignment: Assignment) -> str:
    if assignment.template:
        return f"{assignment.chips[0]}-{assignment.template}"
    return ",".join(map(str, assignment.chips))


def parse_whole_chips(text: str) -> tuple[int, ...]:
    """The chips in annotation ``huawei.com/Ascend310P`` of a pod that holds whole ones; empty where it means something else."""
    found = [chip_number(part.strip()) for part in text.split(",")]
    return tuple(number for number in found if number is not None) if None not in found else ()


def render_mindcluster_binding(assignment: Assignment, now_ns: int) -> dict[str, str]:
    """The annotations of a decision (spec ascend 35); the time is in nanoseconds."""
    return {NPU_CORE: render_assignment(assignment), PREDICATE_TIME: str(now_ns)}


@dataclass(frozen=True, slots=True)
class RealSlice:
    """A slice as the plugin names it: what its name says of its template, its number, its chip and its vGroup."""

    word: str
    number: int
    chip: int
    group: int


def parse_real_slice(text: str) -> RealSlice | None:
    """``Ascend310P-2c.1cpu-100-0_0``; None for what is no such name."""
    parts = text.split("-")
    if len(parts) != 4 or parts[0] != KIND:
        return None
    chip, _, group = parts[3].partition("_")
    numbers = _id(parts[2], 4), _id(chip), _id(group, 1)
    if None in numbers:
        return None
    return RealSlice(parts[1], *(number for number in numbers if number is not None))


def render_real_slice(real: RealSlice) -> str:
    return f"{KIND}-{real.word}-{real.number}-{real.chip}_{real.group}"


def _id(text: str, digits: int = 2) -> int | None:
    if not (0 < len(text) <= digits and text.isascii() and text.isdigit()):
        return None
    return int(text) if digits != 2 or int(text) < CHIPS else None
