"""``--query-gpu`` and ``--query-compute-apps``: named fields, printed as csv."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pynvml

from pumice.adapters.nvml.cards import text
from pumice_lab.machine.nvidia_smi.cards import MIB, Card, ask, enabled, process_name

Value = object | None  # None prints as [N/A]


class UnknownField(LookupError):
    """A field that cannot be asked for; ``args[0]`` is its name."""


def _memory(part: int) -> Callable[[Card], Value]:
    def amount(card: Card) -> Value:
        memory = card.memory()
        return memory[part] // MIB if memory else None

    return amount


def _load(part: int) -> Callable[[Card], Value]:
    def percent(card: Card) -> Value:
        rates = card.utilization()
        return rates[part] if rates else None

    return percent


def _clock(kind: int, *, most: bool = False) -> Callable[[Card], Value]:
    return lambda card: card.clock(kind, most=most)


def _mig(part: int) -> Callable[[Card], Value]:
    def mode(card: Card) -> Value:
        modes = card.mig_mode()
        return enabled(modes[part]) if modes else None

    return mode


def _watts(milliwatts: int | None) -> Value:
    return None if milliwatts is None else f"{milliwatts / 1000:.2f}"


def _pci(part: str, digits: int) -> Callable[[Card], Value]:
    return lambda card: f"0x{getattr(pynvml.nvmlDeviceGetPciInfo(card.handle), part):0{digits}X}"


def _compute_capability(card: Card) -> Value:
    pair = ask(pynvml.nvmlDeviceGetCudaComputeCapability, card.handle)
    return f"{pair[0]}.{pair[1]}" if pair else None


def _pstate(card: Card) -> Value:
    state = card.performance_state()
    return None if state is None else f"P{state}"


def _nvml(name: str) -> Callable[[Card], Value]:
    def value(card: Card) -> Value:
        answer: Any = ask(getattr(pynvml, name), card.handle)
        return text(answer) if isinstance(answer, bytes) else answer

    return value


def _timestamp(card: Card) -> Value:
    return datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


# field: (heading's unit, value); the aliases of nvidia-smi stand behind the first name
_CARD_FIELDS: dict[str, tuple[str, Callable[[Card], Value]]] = {
    "timestamp": ("", _timestamp),
    "index": ("", lambda card: card.index),
    "count": ("", lambda card: pynvml.nvmlDeviceGetCount()),
    "name": ("", lambda card: card.name),
    "uuid": ("", lambda card: card.uuid),
    "serial": ("", _nvml("nvmlDeviceGetSerial")),
    "vbios_version": ("", _nvml("nvmlDeviceGetVbiosVersion")),
    "driver_version": ("", lambda card: text(pynvml.nvmlSystemGetDriverVersion())),
    "pci.bus_id": ("", lambda card: card.bus_id),
    "pci.domain": ("", _pci("domain", 4)),
    "pci.bus": ("", _pci("bus", 2)),
    "pci.device": ("", _pci("device", 2)),
    "pci.device_id": ("", _pci("pciDeviceId", 8)),
    "pcie.link.gen.current": ("", _nvml("nvmlDeviceGetCurrPcieLinkGeneration")),
    "pcie.link.gen.max": ("", _nvml("nvmlDeviceGetMaxPcieLinkGeneration")),
    "pcie.link.width.current": ("", _nvml("nvmlDeviceGetCurrPcieLinkWidth")),
    "pcie.link.width.max": ("", _nvml("nvmlDeviceGetMaxPcieLinkWidth")),
    "compute_cap": ("", _compute_capability),
    "compute_mode": ("", lambda card: card.compute_mode()),
    "persistence_mode": ("", lambda card: enabled(card.persistence())),
    "pstate": ("", _pstate),
    "mig.mode.current": ("", _mig(0)),
    "mig.mode.pending": ("", _mig(1)),
    "ecc.mode.current": ("", lambda card: enabled(card.ecc())),
    "ecc.errors.uncorrected.volatile.total": ("", lambda card: card.ecc_errors()),
    "memory.total": ("MiB", _memory(0)),
    "memory.reserved": ("MiB", _memory(1)),
    "memory.used": ("MiB", _memory(2)),
    "memory.free": ("MiB", _memory(3)),
    "utilization.gpu": ("%", _load(0)),
    "utilization.memory": ("%", _load(1)),
    "temperature.gpu": ("", lambda card: card.temperature()),
    "fan.speed": ("%", lambda card: card.fan()),
    "power.draw": ("W", lambda card: _watts(card.power_mw())),
    "power.limit": ("W", lambda card: _watts(card.power_limit_mw())),
    "clocks.current.sm": ("MHz", _clock(pynvml.NVML_CLOCK_SM)),
    "clocks.current.graphics": ("MHz", _clock(pynvml.NVML_CLOCK_GRAPHICS)),
    "clocks.current.memory": ("MHz", _clock(pynvml.NVML_CLOCK_MEM)),
    "clocks.max.sm": ("MHz", _clock(pynvml.NVML_CLOCK_SM, most=True)),
    "clocks.max.graphics": ("MHz", _clock(pynvml.NVML_CLOCK_GRAPHICS, most=True)),
    "clocks.max.memory": ("MHz", _clock(pynvml.NVML_CLOCK_MEM, most=True)),
}
_CARD_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
}

_App = tuple[Card, Any]
_APP_FIELDS: dict[str, tuple[str, Callable[[_App], Value]]] = {
    "timestamp": ("", lambda app: _timestamp(app[0])),
    "gpu_name": ("", lambda app: app[0].name),
    "gpu_bus_id": ("", lambda app: app[0].bus_id),
    "gpu_uuid": ("", lambda app: app[0].uuid),
    "gpu_serial": ("", lambda app: _CARD_FIELDS["serial"][1](app[0])),
    "pid": ("", lambda app: app[1].pid),
    "process_name": ("", lambda app: process_name(app[1].pid)),
    "used_gpu_memory": ("MiB", lambda app: None if app[1].usedGpuMemory is None else app[1].usedGpuMemory // MIB),
}
_APP_ALIASES = {"name": "process_name", "used_memory": "used_gpu_memory"}

FIELDS = (*_CARD_FIELDS, *_CARD_ALIASES)
APP_FIELDS = (*_APP_FIELDS, *_APP_ALIASES)


def query_cards(cards: list[Card], fields: list[str], *, header: bool, units: bool) -> Iterator[str]:
    columns = [_column(field, _CARD_FIELDS, _CARD_ALIASES) for field in fields]
    yield from _csv(fields, columns, cards, header=header, units=units)


def query_apps(cards: list[Card], fields: list[str], *, header: bool, units: bool) -> Iterator[str]:
    columns = [_column(field, _APP_FIELDS, _APP_ALIASES) for field in fields]
    apps = [(card, process) for card in cards for kind, process in card.processes() if kind == "C"]
    yield from _csv(fields, columns, apps, header=header, units=units)


def _column(field: str, known: dict[str, Any], aliases: dict[str, str]) -> tuple[str, Callable[[Any], Value]]:
    column: tuple[str, Callable[[Any], Value]] | None = known.get(aliases.get(field, field))
    if column is None:
        raise UnknownField(field)
    return column


def _csv(
    fields: list[str], columns: list[tuple[str, Callable[[Any], Value]]], rows: list[Any], *, header: bool, units: bool
) -> Iterator[str]:
    if header:
        headings = (f"{field} [{unit}]" if unit else field for field, (unit, _) in zip(fields, columns, strict=True))
        yield ", ".join(headings)
    for row in rows:
        yield ", ".join(_cell(read(row), unit if units else "") for unit, read in columns)


def _cell(value: Value, unit: str) -> str:
    if value is None or value == "":
        return "[N/A]"
    return f"{value} {unit}" if unit else str(value)
