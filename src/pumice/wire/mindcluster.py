"""The annotations and labels of MindCluster's device plugin and scheduler, read and written (Volcano
pkg/scheduler/api/devices/ascend/mindcluster).

Nothing here raises on data: what cannot be read is left out and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
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
KUBELET_DEVICES: Final = f"{names.HUAWEI}kltDev"
"""Annotation with the kubelet's own ids behind what the plugin made."""
TAKEN: Final = str((1 << 64) - 1)
"""``predicate-time`` of a pod whose Allocate call was answered (MindCluster ascend-device-plugin)."""
NO_POD: Final = "not get valid pod"
NO_RESOURCE: Final = "NoNPUResource"
SEGMENT_FAILED: Final = "NPUSegmentFailed"
"""Beginning of the plugin's refusals, by which people look for them (MindCluster ascend-device-plugin)."""

RING_CONTROLLER: Final = "ring-controller.atlas"
"""Label of a pod whose value names the kind of chip of which it wants a part."""
LEVEL: Final = "vnpu-level"
LEVELS: Final = ("low", "high")
DVPP: Final = "vnpu-dvpp"

ACCELERATOR: Final = "accelerator"
SERVER_TYPE: Final = "servertype"
CHIP_NAME: Final = "node.kubernetes.io/npu.chip.name"
BASE_DEVICES: Final = "baseDeviceInfos"
SUPER_POD: Final = "superPodID"
SERVER_INDEX: Final = "serverIndex"

CHIPS: Final = 64
"""Ids of chips lie below: the last vNPU's number is 1123 (MindCluster ascend-device-plugin)."""
FIRST_SLICE: Final = 100
NUMBERS_OF_A_CHIP: Final = 16
"""A vNPU's number is the chip's times 16, plus 100, plus 0 to one less than the chip takes (MindCluster ascend-device-plugin)."""
_TEMPLATE = re.compile(r"vir0*([0-9]{1,3})(?:_|$)")


def whole_chips(kind: str) -> str:
    """Annotation of a pod that holds whole chips by the scheme that cuts none (their names, with commas between), and the list
    of free ones in reports."""
    return f"{names.HUAWEI}{kind}"


def chip_name(kind: str, number: int) -> str:
    return f"{kind}-{number}"


def chip_number(kind: str, name: str) -> int | None:
    """The physical id in a chip's name; None for what is no chip of this kind."""
    return _id(name.removeprefix(f"{kind}-")) if name.startswith(f"{kind}-") else None


# -- the node -----------------------------------------------------------------------------------------------------------


def parse_base_devices(kind: str, text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
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
        number = chip_number(kind, name)
        if number is not None:
            chips.add(number)
        elif name.count("-") <= 1:
            problems.append(f"{name[:80]!r} in annotation {BASE_DEVICES} is no {kind}-<number>; skipped")
    return tuple(sorted(chips)), tuple(problems)


def render_base_devices(kind: str, chips: Iterable[int]) -> str:
    return json.dumps({chip_name(kind, chip): {"IP": "", "SuperDeviceID": 0} for chip in sorted(chips)}, separators=(",", ":"))


def node_labels(kind: str, driver: str, cores: int) -> dict[str, str]:
    """The node labels that the plugin writes (Volcano pkg/scheduler/api/devices/ascend/mindcluster, MindCluster
    ascend-device-plugin); ``driver``: its name of such a chip, ``cores`` of each."""
    return {ACCELERATOR: f"huawei-{kind}", SERVER_TYPE: f"{kind}-{cores}", CHIP_NAME: driver}


# -- a pod's decision -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of chips in an annotation. ``template`` is empty where whole chips are given."""

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


def template_cores(template: str) -> int:
    """The AI cores that a template's name tells (MindCluster ascend-device-plugin); 0 where it tells none."""
    found = _TEMPLATE.match(template)
    return int(found[1]) if found else 0


def placed_at(notes: Mapping[str, str]) -> int:
    """The scheduler's nanoseconds; a missing or bad time counts as the latest (MindCluster ascend-device-plugin)."""
    text = notes.get(PREDICATE_TIME, "")
    latest = 1 << 64
    return min(int(text), latest) if text.isascii() and text.isdigit() and len(text) <= 20 else latest


def parse_whole_chips(kind: str, text: str) -> tuple[int, ...]:
    """The chips in annotation ``whole_chips`` of a pod that holds whole ones; empty where it means something else."""
    found = [chip_number(kind, part.strip()) for part in text.split(",")]
    return tuple(number for number in found if number is not None) if None not in found else ()


def chips_given(notes: Mapping[str, str], kinds: Iterable[str]) -> set[int]:
    """Return the physical ids of the chips that a pod's annotations give it, as a whole or in part."""
    assignment = parse_assignment(notes.get(NPU_CORE, ""))
    whole = (parse_whole_chips(kind, notes.get(whole_chips(kind), "")) for kind in kinds)
    return {*(assignment.chips if assignment is not None else ()), *(chip for chips in whole for chip in chips)}


def render_mindcluster_binding(assignment: Assignment, now_ns: int) -> dict[str, str]:
    """The annotations of a decision (Volcano pkg/scheduler/api/devices/ascend/mindcluster); the time is in nanoseconds."""
    return {NPU_CORE: render_assignment(assignment), PREDICATE_TIME: str(now_ns)}


@dataclass(frozen=True, slots=True)
class RealSlice:
    """A slice as the plugin names it: its kind of chip, what its name says of its template, its number, its chip and its
    vGroup."""

    kind: str
    word: str
    number: int
    chip: int
    group: int


def parse_real_slice(kind: str, text: str) -> RealSlice | None:
    """``Ascend310P-2c.1cpu-100-0_0``; None for what is no such name."""
    parts = text.split("-")
    if len(parts) != 4 or parts[0] != kind:
        return None
    chip, _, group = parts[3].partition("_")
    numbers = _id(parts[2], 4), _id(chip), _id(group, 1)
    if None in numbers:
        return None
    return RealSlice(kind, parts[1], *(number for number in numbers if number is not None))


def render_real_slice(real: RealSlice) -> str:
    return f"{real.kind}-{real.word}-{real.number}-{real.chip}_{real.group}"


def render_real_chips(kind: str, chips: Iterable[int]) -> str:
    """The same for whole chips: ``Ascend310P-0,Ascend310P-1``."""
    return ",".join(chip_name(kind, chip) for chip in chips)


def slice_numbers(chip: int, slices: int) -> range:
    """The numbers that the vNPUs of a chip may have, of which it takes so many."""
    first = FIRST_SLICE + NUMBERS_OF_A_CHIP * chip
    return range(first, first + min(slices, NUMBERS_OF_A_CHIP))


def _id(text: str, digits: int = 2) -> int | None:
    if not (0 < len(text) <= digits and text.isascii() and text.isdigit()):
        return None
    return int(text) if digits != 2 or int(text) < CHIPS else None
