"""A node's chips, by its labels, its annotation and what is reported of it (Volcano
pkg/scheduler/api/devices/ascend/mindcluster).

The rest of a chip, worked out anew from the pods that are on it, and what it takes yet (Volcano
pkg/scheduler/api/devices/ascend/mindcluster).

A piece's memory counts AI cores, its cores count AI CPUs. Its slot names the template; the slot's number is the vGroup, or
``IN_THE_MAKING`` until the node's plugin has said which one it became. Whole chips have no slot.

The part beyond cores and CPUs is one number, the same for one chip and for arrays of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from pumice.devices.protocol import Inventory
from pumice.model.cards import IN_THE_MAKING, Allocation, Card, ContainerDevice, Slot, Usage
from pumice.model.hardware.npu import Dvpp, SliceKind, SliceTemplate, slice_kinds
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
    """The facts of a node with chips. ``cpus``: AI CPUs of a chip. ``listed``: per card whether it may be used though no pod
    of ours is on it. ``refusal``: why the node takes no pods at all; empty where it does."""

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
    """Return the AI cores of each chip, and what is missing for that in Volcano's words; empty where nothing is."""
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


SHUT = "it is not in the list of free chips that its node's plugin writes"
UNKNOWN_GROUP = -2

_DVPP_BITS, _GROUP_SHIFT, _UNSTABLE, _SHUT, _MADE_SHIFT = 3, 2, 1 << 5, 1 << 6, 7
"""A state's bits: what is left of DVPP (2), vGroups in use (3), whether some slice is in the making, whether nobody may come, and
from there on one bit for each template in the making."""
FREE_DVPP = {Dvpp.YES: 0, Dvpp.SHARE: 1, Dvpp.NO: 2}


def container_device_of(card: Card, template: SliceTemplate | None, cpus: int, group: int = IN_THE_MAKING) -> ContainerDevice:
    """A slice, or without a template all of the chip, which has so many AI CPUs."""
    if template is None:
        return ContainerDevice(card.index, card.uuid, card.total, cpus, card.total)
    slot = Slot("", group, template.name, template.cores)
    return ContainerDevice(card.index, card.uuid, template.cores, template.cpus, template.cores, slot)


def in_the_making(allocation: Allocation) -> bool:
    return any(
        container_device.slot is not None and container_device.slot.number == IN_THE_MAKING
        for container_device in allocation.container_devices
    )


def chip_state(usage: Usage, kind: SliceKind, *, listed: bool) -> int:
    """``listed``: whether it may be used although no pod of ours is on it."""
    if not usage.holders:
        return 0 if listed else _SHUT
    slots = [
        container_device.slot
        for container_devices in usage.holders.values()
        for container_device in container_devices
        if container_device.slot is not None
    ]
    taken = {kind.templates[slot.profile].dvpp for slot in slots}
    dvpp = Dvpp.NO if Dvpp.YES in taken else Dvpp.SHARE if Dvpp.SHARE in taken else Dvpp.YES
    groups = min(kind.groups, len({slot.number for slot in slots if slot.number >= 0}))
    state = FREE_DVPP[dvpp] | groups << _GROUP_SHIFT
    for slot in slots:
        if slot.number == IN_THE_MAKING:
            state |= _UNSTABLE | made_bit(kind, slot.profile)
    return state


def groups_in_use(state: Any) -> Any:
    """Return how many vGroups of the chip have slices in them; for numbers and for arrays."""
    return state >> _GROUP_SHIFT & 7


@cache
def made_bit(kind: SliceKind, template: str) -> int:
    return 1 << _MADE_SHIFT + list(kind.templates).index(template)


@cache
def others_made(kind: SliceKind, template: SliceTemplate) -> int:
    """The bits of all other templates: no slice of another one may be in the making on the node, for the kubelet tells the plugin
    how many cores are wanted and not for whom (Volcano pkg/scheduler/api/devices/ascend/mindcluster)."""
    return sum(made_bit(kind, name) for name in kind.templates if name != template.name)


def takes(template: SliceTemplate, cores: Any, cpus: Any, state: Any) -> Any:
    """Return whether so much free and that state are enough for a slice; for numbers and for arrays."""
    dvpp, groups = state & _DVPP_BITS, groups_in_use(state)
    enough = (cores >= template.cores) & (cpus >= template.cpus) & ((state & (_UNSTABLE | _SHUT)) == 0)
    enough = enough & (groups <= template.groups - template.wanted)
    if template.dvpp is Dvpp.YES:
        return enough & (dvpp == FREE_DVPP[Dvpp.YES])
    return enough & (dvpp != FREE_DVPP[Dvpp.NO]) if template.dvpp is Dvpp.SHARE else enough


def after(template: SliceTemplate, cores: int, cpus: int, state: int) -> tuple[int, int, int]:
    """Return what is left of a chip with that slice on it, in a vGroup of its own as long as there is one."""
    dvpp, groups = state & _DVPP_BITS, groups_in_use(state)
    taken = {Dvpp.YES: FREE_DVPP[Dvpp.NO], Dvpp.SHARE: max(dvpp, FREE_DVPP[Dvpp.SHARE]), Dvpp.NO: dvpp}[template.dvpp]
    return cores - template.cores, cpus - template.cpus, taken | min(template.groups, groups + 1) << _GROUP_SHIFT


def shut(state: int) -> tuple[int, int, int]:
    """Return what is left of a chip that nobody may have."""
    return 0, 0, state | _SHUT


def with_one_made(kind: SliceKind, template: SliceTemplate, cores: int, cpus: int, state: int) -> tuple[int, int, int]:
    """Return what is left of a chip as long as that slice is in the making there."""
    cores, cpus, state = after(template, cores, cpus, state)
    return cores, cpus, state | _UNSTABLE | made_bit(kind, template.name)


def settled(state: int) -> int:
    """The same once everything is made."""
    return state & (_UNSTABLE - 1 | _SHUT)


def untouched(shares: Any, state: Any) -> Any:
    """Return whether the chip can be given whole."""
    return (shares == 0) & ((state & _SHUT) == 0)


def why_not(template: SliceTemplate, cores: int, cpus: int, state: int) -> str:
    """The first thing that ``takes`` misses."""
    groups, dvpp = groups_in_use(state), state & _DVPP_BITS
    if state & _SHUT:
        return SHUT
    if state & _UNSTABLE:
        return "a slice is in the making there"
    if cores < template.cores:
        return f"wants {template.cores} AI cores, {cores} are free"
    if cpus < template.cpus:
        return f"wants {template.cpus} AI CPUs, {cpus} are free"
    if groups > template.groups - template.wanted:
        return f"{groups} of its {template.groups} vGroups are in use, too many for {template.cores} cores"
    return f"wants dvpp {template.dvpp.value}, and {('all', 'a share', 'none')[dvpp]} of it is left"


# -- Values of chips --------------------------------------------------------------------------------------------------

# ``pumice.NpuPolicy: Expected`` takes the chip that loses least of what it can still serve, in place of the fullest one. A chip
# has few states, so their values are tabulated as they come up.


def loss(kind: SliceKind, template: SliceTemplate, cores: int, cpus: int, state: int, *, idle: bool) -> float:
    """Return by how much a chip with so much left is worth less once the slice is there. A small slice rather joins many: one of
    them stays anyway, and a chip with few may soon be idle. ``idle``: whether the node has an idle chip, when two cores need not
    do that."""
    lost = value(kind, cores, cpus, state) - value(kind, *after(template, cores, cpus, state))
    groups: int = groups_in_use(state)
    return lost - kind.company.get(template.name, (0.0, 0.0))[idle] * groups


@lru_cache(maxsize=65536)
def value(kind: SliceKind, cores: int, cpus: int, state: int) -> float:
    """Return what the chip can still serve: places for slices of each template, and the chip as a whole, as the table counts
    them, and what it counts with so many vGroups in use."""
    places = sum(sum(counts[: _room(kind, kind.templates.get(name), cores, cpus, state)]) for name, counts in kind.worth.items())
    groups: int = groups_in_use(state)
    return places + kind.in_use[groups]


@lru_cache(maxsize=65536)
def _room(kind: SliceKind, template: SliceTemplate | None, cores: int, cpus: int, state: int) -> int:
    """Return how many such slices the chip takes yet; None: the chip as a whole."""
    if template is None:
        return int(not state and cores in kind.cpus)
    if not takes(template, cores, cpus, state):
        return 0
    return 1 + _room(kind, template, *after(template, cores, cpus, state))
