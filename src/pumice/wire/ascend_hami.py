"""The NPU annotations of nodes and pods in HAMi's form, read and written (Volcano pkg/scheduler/api/devices/ascend/hami).

Nothing here raises on data: what cannot be read is left out and named in ``problems`` or ``doubts``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode

from pumice.model.amount import INT32_MAX
from pumice.model.refusal import Refusal
from pumice.wire import names

SOFT = "hami-core"
"""The value of ``huawei.com/vnpu-mode`` that asks for a share by interception; anything else means a template."""
SOFT_SHARE_KEYS = "huawei.com/scheduler.softShareDev."
"""Of a pod: shares as MindCluster's newer plugin keeps them (MindCluster ascend-device-plugin)."""
SOFT_SHARE_NOT_SERVED = "is not served: nothing here shares NPUs as vCANN-RT does"
"""Of these keys, and of the option that switches them on."""
NODE = "hami.io/vgpu-node"
TIME = "hami.io/vgpu-time"
BIND_PHASE = "hami.io/bind-phase"
BIND_TIME = "hami.io/bind-time"
PREDICATE_TIME = "predicate-time"
"""Seconds here; MindCluster writes nanoseconds under the same key."""
COMMON_KEYS = (NODE, TIME, BIND_PHASE, BIND_TIME, PREDICATE_TIME)


_HAMI, _ALLOCATED = "hami.io/", "-devices-allocated"


def register_key(word: str) -> str:
    return f"{names.NODE_NPU_REGISTER}{word}"


def handshake_key(word: str) -> str:
    return f"{names.NODE_NPU_HANDSHAKE}{word}"


def to_allocate_key(word: str) -> str:
    return f"{_HAMI}{word}-devices-to-allocate"


def allocated_key(word: str) -> str:
    return f"{_HAMI}{word}{_ALLOCATED}"


def runtime_key(word: str) -> str:
    return f"{names.HUAWEI}{word}"


def use_key(word: str) -> str:
    return f"hami.io/use-{word}-uuid"


def nouse_key(word: str) -> str:
    return f"hami.io/no-use-{word}-uuid"


# -- the node's cards ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisteredNpu:
    """One card of a register annotation. ``ring`` is the NetworkID (None: not said)."""

    id: str
    index: int
    count: int
    memory: int
    cores: int
    type: str
    healthy: bool = False
    numa: int = 0
    ring: int | None = None


@dataclass(frozen=True, slots=True)
class NpuRegister:
    """In the order of their indices. ``problems`` has one sentence for each thing that is wrong."""

    cards: tuple[RegisteredNpu, ...] = ()
    problems: tuple[str, ...] = ()


def parse_npu_register(text: str) -> NpuRegister:
    """Decode ``hami.io/node-register-<word>``: fields that are zero, empty or false are absent."""
    try:
        listed = decode(text.encode())
    except (DecodeError, UnicodeEncodeError, RecursionError):
        listed = None
    if not isinstance(listed, list):
        return NpuRegister(problems=(f"the register annotation {text[:80]!r} is no JSON list",))
    cards: list[RegisteredNpu] = []
    problems: list[str] = []
    for number, entry in enumerate(listed):
        card = _entry(entry)
        if card is None:
            problems.append(f"entry {number} of the register annotation names no card; skipped")
        elif any(other.id == card.id for other in cards):
            problems.append(f"card {card.id} is registered twice; the first entry counts")
        else:
            cards.append(card)
    return NpuRegister(tuple(sorted(cards, key=lambda card: card.index)), tuple(problems))


def _entry(entry: Any) -> RegisteredNpu | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not entry["id"] or _RESERVED & set(entry["id"]):
        return None
    custom = entry.get("custominfo")
    ring = custom.get("NetworkID") if isinstance(custom, dict) else None
    return RegisteredNpu(
        entry["id"], _number(entry.get("index")), _number(entry.get("count")), _number(entry.get("devmem")),
        _number(entry.get("devcore")), str(entry.get("type", "")), entry.get("health") is True, _number(entry.get("numa")),
        ring if type(ring) is int else None,
    )  # fmt: skip


_RESERVED = frozenset(",:; \t\r\n")
"""The separators in a pod's annotation."""


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= INT32_MAX else 0


def render_npu_register(cards: Iterable[RegisteredNpu]) -> str:
    """In the plugin's order of fields, the absent ones left out, ``devicepairscore`` as the plugin emits it."""
    listed = []
    for card in cards:
        entry: dict[str, Any] = {
            "id": card.id, "index": card.index, "count": card.count, "devmem": card.memory, "devcore": card.cores,
            "type": card.type, "numa": card.numa, "health": card.healthy,
        }  # fmt: skip
        entry = {key: value for key, value in entry.items() if value}
        if card.ring is not None:
            entry["custominfo"] = {"NetworkID": card.ring}
        listed.append({**entry, "devicepairscore": {}})
    return json.dumps(listed, separators=(",", ":"))


# -- what a pod holds ---------------------------------------------------------------------------------------------------


class NpuDevice(Struct, frozen=True, gc=False):
    """One card, or a part of one, of a container. Memory in MB; ``cores`` in per cent, 0 for templates."""

    uuid: str
    type: str
    memory: int
    cores: int


class NpuDevices(Struct, frozen=True, gc=False):
    """A slot per container, empty for those without a request. ``doubts`` name the UUID in ``field``."""

    slots: tuple[tuple[NpuDevice, ...], ...] = ()
    doubts: tuple[Refusal, ...] = ()

    @property
    def filled(self) -> tuple[tuple[NpuDevice, ...], ...]:
        return tuple(slot for slot in self.slots if slot)


def parse_npu_devices(text: str) -> NpuDevices:
    """Decode ``hami.io/<word>-devices-allocated``; a missing last separator is accepted."""
    slots, doubts = [], []
    parts = text.split(";")
    for part in parts[:-1] if not parts[-1] else parts:
        devices = []
        for token in part.split(":"):
            if "," not in token:
                continue
            fields = token.split(",")
            if len(fields) < 4:
                doubts.append(Refusal(fields[0], f"device {token[:100]!r} has {len(fields)} fields instead of 4"))
                continue
            devices.append(NpuDevice(fields[0], fields[1], _digits(fields[2]), _digits(fields[3])))
        slots.append(tuple(devices))
    return NpuDevices(tuple(slots), tuple(doubts))


def _digits(text: str) -> int:
    return int(text) if len(text) <= 10 and text.isascii() and text.isdigit() else 0


def cards_given(notes: Mapping[str, str], node: str) -> set[str]:
    """Return the UUIDs of the cards that a pod's annotations give it on that node, whatever their type."""
    mine = notes if notes.get(NODE, node) == node else {}
    texts = [text for key, text in mine.items() if key.startswith(_HAMI) and key.endswith(_ALLOCATED)]
    return {device.uuid for text in texts for slot in parse_npu_devices(text).slots for device in slot}


def render_npu_devices(slots: Iterable[Sequence[NpuDevice]]) -> str:
    """Every device closed by ``:``, every slot by ``;``."""
    return "".join("".join(f"{d.uuid},{d.type},{d.memory},{d.cores}:" for d in slot) + ";" for slot in slots)


@dataclass(frozen=True, slots=True)
class RuntimeNpu:
    """The runtime's parameters of one card: a template, or memory and compute of a soft share, or nothing (all of it)."""

    uuid: str
    template: str = ""
    memory: int = 0
    cores: int = 0

    def fields(self) -> Iterator[tuple[str, str | int]]:
        yield "UUID", self.uuid
        if self.template:
            yield "temp", self.template
        if self.memory:
            yield "memory", self.memory
        if self.cores:
            yield "core", self.cores


def render_runtime(cards: Iterable[RuntimeNpu]) -> str:
    """The JSON of ``huawei.com/<word>``."""
    return json.dumps([dict(card.fields()) for card in cards], separators=(",", ":"))


def parse_runtime(text: str) -> tuple[RuntimeNpu, ...] | None:
    """The cards of ``huawei.com/<word>``, with whatever HAMi's scheduler adds beside a template; None where it is no such
    list."""
    try:
        listed = decode(text.encode())
    except (DecodeError, UnicodeEncodeError, RecursionError):
        return None
    if not isinstance(listed, list):
        return None
    found = []
    for entry in listed:
        if not isinstance(entry, dict) or not isinstance(entry.get("UUID"), str) or not isinstance(entry.get("temp", ""), str):
            return None
        found.append(RuntimeNpu(entry["UUID"], entry.get("temp", ""), _number(entry.get("memory")), _number(entry.get("core"))))
    return tuple(found)


def render_npu_binding(
    word: str, node: str, slots: Sequence[Sequence[NpuDevice]], runtime: Iterable[RuntimeNpu], now_ns: int
) -> dict[str, str]:
    """Return the annotations of a decision."""
    devices, seconds = render_npu_devices(slots), str(now_ns // 1_000_000_000)
    return {
        to_allocate_key(word): devices,
        allocated_key(word): devices,
        runtime_key(word): render_runtime(runtime),
        PREDICATE_TIME: seconds,
        NODE: node,
        TIME: seconds,
        BIND_PHASE: "allocating",
        BIND_TIME: seconds,
    }
