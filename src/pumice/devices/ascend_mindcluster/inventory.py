"""A node's chips, by its labels, its annotation and what is reported of it (Volcano
pkg/scheduler/api/devices/ascend/mindcluster)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pumice.devices.protocol import Inventory
from pumice.model.cards import Card
from pumice.model.hardware.npu import SliceKind, slice_kinds
from pumice.wire import names
from pumice.wire.device_reports import DEVICES, DOUBT, HOST, NOT_ENABLED, ChipLists, parse_chip_lists
from pumice.wire.mindcluster import (
    ACCELERATOR,
    BASE_DEVICES,
    CHIP_NAME,
    NPU_CORE,
    SERVER_TYPE,
    chip_name,
    chip_number,
    parse_base_devices,
)
from pumice.wire.nvidia_vgpu import parse_list
from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity

INVALID = "checkNodeNPUByDyTask invalid VNode"
EARLY = "preCheckNodePredicate failure"


@dataclass(frozen=True, slots=True)
class Facts:
    """``cpus``: AI CPUs of a chip. ``listed``: per card whether it may be used though no pod of ours is on it. ``refusal``: why
    the node takes no pods at all; empty where it does."""

    cpus: int
    listed: tuple[bool, ...]
    by_uuid: Mapping[str, int]
    refusal: str = ""


def chip_inventory(node: Node, kind: SliceKind, *, self_maintained: bool, avoid_unhealthy: bool) -> Inventory | None:
    """None for a node that has nothing to do with these chips. Where something is missing, its chips stay known as far as they
    are, so that what runs there stays booked, and none of them takes a pod."""
    labels, name = node.metadata.labels, node.metadata.name
    said = labels.get(ACCELERATOR, "").partition("-")[2]
    if said != kind.name and (said in slice_kinds() or NPU_CORE not in node.status.capacity):
        return None
    problems: list[str] = []
    per_chip, cause = _per_chip(node, kind)
    base, wrong = parse_base_devices(kind.name, node.metadata.annotations.get(BASE_DEVICES, ""))
    problems += wrong
    lists = parse_chip_lists(node.reports.get(DEVICES, ""))
    doubt = node.reports.get(DOUBT, "")
    if lists is None:
        cause = cause or f"node {name} {NOT_ENABLED}" + (f" ({doubt})" if doubt else "")
    elif doubt:
        problems.append(f"what was said before counts: {doubt}")
    free, unhealthy = _chips(kind.name, lists or ChipLists(), problems)
    if self_maintained:
        if not base:
            cause = cause or f"annotation {BASE_DEVICES} names no chip"
        free = set(base) - unhealthy
    refusal = f"{INVALID}: {cause}" if cause else _host(node.reports.get(HOST, ""), avoid_unhealthy=avoid_unhealthy)
    cordoned = parse_list(node.metadata.annotations.get(names.CORDONED_CARDS))
    cards = tuple(
        Card(place, chip_name(kind.name, chip), kind.name, per_chip, per_chip, chip not in unhealthy,
             blocked=refusal or ("cordoned" if chip_name(kind.name, chip) in cordoned else ""))
        for place, chip in enumerate(sorted({*base, *free, *unhealthy}))
    )  # fmt: skip
    numbers = [chip_number(kind.name, card.uuid) for card in cards]
    facts = Facts(
        kind.cpus.get(per_chip, 0), tuple(number in free for number in numbers),
        {card.uuid: card.index for card in cards}, refusal,
    )  # fmt: skip
    problems += [refusal] if cause else []
    return Inventory(cards, tuple(f"node {name}: {problem}" for problem in problems), facts)


def _per_chip(node: Node, kind: SliceKind) -> tuple[int, str]:
    """AI cores of each chip, and what is missing for that (the texts of section 28)."""
    labels = node.metadata.labels
    usual = next(iter(kind.cpus))
    if ACCELERATOR not in labels:
        return usual, f"getChipKindFromNpuNode label {ACCELERATOR} absent"
    if (found := labels[ACCELERATOR].partition("-")[2]) != kind.name:
        return usual, f"label {ACCELERATOR} says {found[:60]!r}; only {kind.name} is cut on demand"
    for label in (SERVER_TYPE, CHIP_NAME):
        if not labels.get(label):
            return usual, f"no node label <{label}>"
    size = labels[SERVER_TYPE].partition("-")[2]
    if size not in map(str, kind.cpus):
        return usual, f"label {SERVER_TYPE} {labels[SERVER_TYPE][:60]!r} names no known number of AI cores"
    try:
        total = parse_quantity(node.status.capacity.get(NPU_CORE, 0))
    except ValueError:
        return int(size), f"status.capacity {NPU_CORE} is no number"
    if total <= 0:
        return int(size), f"not have {NPU_CORE}"
    if total % int(size):
        return int(size), f"status.capacity {NPU_CORE} {total} is no multiple of {size}, the AI cores of a chip"
    return int(size), ""


def _chips(kind: str, lists: ChipLists, problems: list[str]) -> tuple[set[int], set[int]]:
    """The free ones and those that are unhealthy; a chip in both lists is unhealthy."""
    listed = (*lists.unhealthy, *lists.recovering)
    free, unhealthy = set(_numbers(kind, lists.free, problems)), set(_numbers(kind, listed, problems))
    for chip in sorted(free & unhealthy):
        problems.append(f"chip {chip_name(kind, chip)} is listed both as free and as unhealthy; it counts as unhealthy")
    return free - unhealthy, unhealthy


def _numbers(kind: str, listed: tuple[str, ...], problems: list[str]) -> Iterator[int]:
    seen = set()
    for name in listed:
        number = chip_number(kind, name)
        if number is not None:
            if number in seen:
                problems.append(f"chip {name} is listed twice")
            seen.add(number)
            yield number
        elif name.count("-") <= 1:  # the rest are vNPUs
            problems.append(f"{name[:80]!r} in the reported lists is no chip; skipped")


def _host(state: str, *, avoid_unhealthy: bool) -> str:
    if state == "PreSeparate" or (avoid_unhealthy and state == "UnHealthy"):
        return f"{EARLY}: node is {state}, due to nodeD reported node status"
    return ""
