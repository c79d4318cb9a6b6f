"""The vGPU annotations of nodes and pods, read and written (Volcano pkg/scheduler/api/devices/nvidia/vgpu).

All of it is written by others, users included: nothing here raises on data. What cannot be true blocks one card or is
returned as a ``Refusal`` whose ``field`` is the UUID concerned, so that the smallest thing is quarantined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pumice.model.cards import Card, ContainerDevice, Mode
from pumice.model.refusal import Refusal
from pumice.wire import names

VENDOR = "NVIDIA"
PLACES = "places"
"""Seventh field of a MIG card's entry, ours: the plugin understands ``UUID[profile@start]``. It stands in the entry itself so
that a plugin which takes the node over and does not know it takes the word away with its first write."""
SERVED = "18446744073709551615"  # vgpu-time of a served pod, so that it sorts last among candidates
FORBIDDEN_IN_GROUP = frozenset("-,:;[] \t\r\n\f\v")
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_UINT32 = 2**32
_PROFILE = re.compile(r"[0-9]{1,2}g\.[0-9]{1,4}gb(\+[a-z]{1,8})?")


class Register(Struct, frozen=True):
    """A decoded register annotation. ``problems`` has one sentence for each thing that is wrong with it."""

    cards: tuple[Card, ...] = ()
    problems: tuple[str, ...] = ()


def parse_register(text: str, *, short_entries: bool = False) -> Register:
    """Decode ``volcano.sh/node-vgpu-register``. Indices are dense whatever separators stray in between (D-09).

    ``short_entries`` accepts the five-field entries of plugins up to 1.9.4 (mode hami-core); without it such a card is
    blocked. The proposed form of seven fields is read too, with the cores after the memory.
    """
    if ":" not in text:
        problem = f"no ':' in the register annotation {text[:80]!r}" if text.strip() else ""
        return Register(problems=(problem,) if problem else ())
    cards: list[Card] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    for token in text.split(":"):
        if "," not in token:
            if token.strip():
                problems.append(f"entry {token[:80]!r} of the register annotation has no fields; skipped")
            continue
        card = _entry(len(cards), token.split(","), short_entries)
        if card.uuid in seen:
            reason = f"card {card.uuid} is registered twice"
            first = seen[card.uuid]
            cards[first] = replace(cards[first], blocked=reason)
            problems.append(reason)
            continue
        seen[card.uuid] = card.index
        if card.blocked:
            problems.append(card.blocked)
        cards.append(card)
    return Register(tuple(cards), tuple(problems))


def _entry(index: int, fields: list[str], short_entries: bool) -> Card:
    if len(fields) >= 7 and fields[3].isdigit() and fields[4].startswith("NVIDIA"):
        del fields[3]
    uuid = fields[0].strip()
    if len(fields) == 5 and short_entries:
        fields.append(Mode.HAMI_CORE)
    if len(fields) < 6:
        reason = f"card {uuid} is registered with {len(fields)} fields instead of 6"
        return Card(index, uuid, fields[3] if len(fields) > 3 else "", 0, 0, blocked=reason)
    shares, total = _number(fields[1], _UINT32), _number(fields[2], 2**53)
    blocked = ""
    if not uuid:
        blocked = f"card {index} is registered without a UUID"
    elif shares is None or total is None:
        blocked = f"card {uuid} is registered with count {fields[1][:20]!r} and memory {fields[2][:20]!r}"
    mode = Mode.MIG if fields[5] == Mode.MIG else Mode.HAMI_CORE
    places = mode is Mode.MIG and PLACES in fields[6:]
    return Card(index, uuid, intern(fields[3]), total or 0, shares or 0, fields[4] in _TRUE, mode, blocked, places=places)


def render_register(cards: Iterable[Card]) -> str:
    """The six-field form that every reader understands; separators inside a type become blanks. A card whose plugin cuts
    slices anywhere says so in a seventh field, which readers that do not know it pass over."""
    return "".join(
        f"{c.uuid},{c.shares},{c.total},{c.type.replace(',', ' ').replace(':', ' ')},"
        f"{'true' if c.healthy else 'false'},{c.mode.value}{f',{PLACES}' if c.places else ''}:"
        for c in cards
    )


class PodDevice(Struct, frozen=True, gc=False):
    """One device of a pod's assignment. ``slot`` is -1 for a whole (HAMi-core) card; ``memory`` is what was asked. With a
    ``profile`` it is a slice outside the geometry groups, and ``slot`` the memory slice at which it begins."""

    uuid: str
    memory: int
    cores: int
    group: str = ""
    slot: int = -1
    profile: str = ""

    @property
    def place(self) -> str:
        """``group-slot`` or ``profile@start``."""
        return f"{self.profile}@{self.slot}" if self.profile else f"{self.group}-{self.slot}"

    @property
    def id(self) -> str:
        return self.uuid if self.slot < 0 else f"{self.uuid}[{self.place}]"


class PodDevices(Struct, frozen=True, gc=False):
    """A decoded assignment, one tuple per part; a served part is empty. ``doubts`` name the UUID in ``field``."""

    containers: tuple[tuple[PodDevice, ...], ...] = ()
    doubts: tuple[Refusal, ...] = ()


def parse_pod_devices(text: str) -> PodDevices:
    """Decode ``vgpu-ids-new`` or ``devices-to-allocate``. Bad tokens are left out one by one."""
    if not text:
        return PodDevices()
    doubts: list[Refusal] = []
    containers = []
    for part in text.split(";"):
        devices = []
        for token in part.split(":"):
            if "," not in token:
                continue
            device = parse_pod_device(token)
            if isinstance(device, Refusal):
                doubts.append(device)
            else:
                devices.append(device)
        containers.append(tuple(devices))
    return PodDevices(tuple(containers), tuple(doubts))


def parse_pod_device(token: str) -> PodDevice | Refusal:
    """One ``id,NVIDIA,memory,cores`` token; the refusal's ``field`` is the UUID, as far as it can be read."""
    fields = token.split(",")
    uuid, bracket, place = fields[0].partition("[")
    if len(fields) < 4:
        return Refusal(uuid, f"device {token[:100]!r} has {len(fields)} fields instead of 4")
    memory, cores = _number(fields[2], _UINT32), _number(fields[3], _UINT32)
    if memory is None or cores is None:
        return Refusal(uuid, f"device {token[:100]!r} has no unsigned memory and cores")
    if not bracket:
        return PodDevice(uuid, memory, cores)
    where = place[:-1]
    group, hyphen, digits = where.rpartition("-")  # a group name may hold hyphens, the slot cannot (D-07)
    profile, at, start = ("", "", "") if hyphen else where.rpartition("@")
    slot = _number(digits if hyphen else start, _UINT32)
    if not place.endswith("]") or slot is None or not (group if hyphen else at and _PROFILE.fullmatch(profile)):
        return Refusal(uuid, f"device {token[:100]!r} is neither UUID[group-slot] nor UUID[profile@start]")
    return PodDevice(uuid, memory, cores, group, slot, profile)


def render_pod_devices(containers: Iterable[Iterable[PodDevice]]) -> str:
    """One part per requesting container, every device closed by ``:``, no separator after the last part."""
    return ";".join("".join(f"{d.id},{VENDOR},{d.memory},{d.cores}:" for d in devices) for devices in containers)


def device_of(container_device: ContainerDevice) -> PodDevice:
    """Return the written form of a granted part: with the memory that was asked, not the slot's (E-30)."""
    if container_device.slot is None:
        return PodDevice(container_device.uuid, container_device.asked, container_device.cores)
    slot = container_device.slot
    return PodDevice(
        container_device.uuid,
        container_device.asked,
        container_device.cores,
        slot.group,
        slot.number,
        "" if slot.group else slot.profile,
    )


def render_binding(node: str, containers: Iterable[Iterable[ContainerDevice]], now_ns: int) -> dict[str, str]:
    """Return the six annotations of a decision, nothing else (D-15)."""
    devices = render_pod_devices(
        tuple(device_of(container_device) for container_device in container_devices) for container_devices in containers
    )
    seconds = str(now_ns // 1_000_000_000)
    return {
        names.VGPU_NODE: node,
        names.VGPU_TIME: seconds,
        names.VGPU_IDS: devices,
        names.DEVICES_TO_ALLOCATE: devices,
        names.BIND_PHASE: "allocating",
        names.BIND_TIME: seconds,
    }


def parse_list(text: str | None) -> tuple[str, ...]:
    """A comma list: items trimmed, empty ones dropped (D-14)."""
    return tuple(item for item in (part.strip() for part in text.split(",")) if item) if text else ()


def group_key(namespace: str, annotations: Mapping[str, str]) -> str:
    """Return the PodGroup of a pod as ``namespace/name``, empty when it has none."""
    group = annotations.get(names.GROUP_NAME) or annotations.get(names.GROUP_NAME_VOLCANO) or ""
    return f"{namespace}/{group}" if group else ""


class CardPlace(Struct, frozen=True):
    """A card's place in its machine: NUMA node (-1 unknown) and NVLink width to peers, by UUID."""

    uuid: str
    numa: int = -1
    links: tuple[tuple[str, int], ...] = ()


def parse_topology(text: str) -> tuple[CardPlace, ...]:
    """Decode our additive ``pumice.io/card-topology``: ``uuid,numa{,peer=width}:`` per card; bad parts are ignored."""
    places = []
    for token in text.split(":"):
        uuid, *rest = token.split(",")
        if not uuid.strip() or not rest:
            continue
        numa = _number(rest[0], 4096)
        widths = ((peer, _number(width, 4096)) for peer, _, width in (item.partition("=") for item in rest[1:]))
        links = tuple((peer, width) for peer, width in widths if peer and width)
        places.append(CardPlace(uuid.strip(), -1 if numa is None else numa, links))
    return tuple(places)


def render_topology(places: Sequence[CardPlace]) -> str:
    """The inverse of ``parse_topology``."""
    return "".join(
        f"{p.uuid},{p.numa if p.numa >= 0 else ''}{''.join(f',{peer}={width}' for peer, width in p.links)}:" for p in places
    )


def _number(text: str, limit: int) -> int | None:
    """An unsigned decimal below ``limit``; None otherwise. ASCII only, and short: ``int`` is slow on long digits."""
    if len(text) > 20 or not text.isascii() or not text.isdigit():
        return None
    value = int(text)
    return value if value < limit else None


# -- `pumice.io/vgpu-handed-out` of a node, ours ---------------------------------------------------------------------

# The devices that the node's plugin has handed out, and the pods that have them. A pod's owner may change the annotations of the
# pod, and not those of the node. One line per pod, ``UID assignment``, the assignment written as in the pod's own annotation
# (Volcano pkg/scheduler/api/devices/nvidia/vgpu).

LIMIT: Final = 64 * 1024
"""Characters of the annotation: some six hundred pods. A node's annotations have 256 KiB together."""

Parts = Sequence[Sequence[PodDevice]]


def render_handed_out(allocated: Mapping[str, Parts]) -> str:
    """Pods in the order of their UIDs, as many as there is room for."""
    lines: list[str] = []
    room = LIMIT
    for uid, parts in sorted(allocated.items()):
        line = f"{uid} {render_pod_devices(parts)}\n"
        if len(line) <= room:
            room -= len(line)
            lines.append(line)
    return "".join(lines)


def parse_handed_out(text: str) -> dict[str, PodDevices]:
    """UID to devices; lines that say nothing are left out."""
    return {uid: parse_pod_devices(devices) for uid, devices in _lines(text.splitlines()) if devices}


def handed_to(text: str, uid: str) -> str:
    """One pod's assignment; empty when it is not named."""
    start = 0 if text.startswith(f"{uid} ") else text.find(f"\n{uid} ") + 1 or -1
    return text[start:].partition("\n")[0].partition(" ")[2] if uid and start >= 0 else ""


def _lines(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        uid, _, devices = line.partition(" ")
        if uid:
            yield uid, devices
