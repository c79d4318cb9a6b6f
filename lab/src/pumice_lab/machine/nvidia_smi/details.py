"""``nvidia-smi -q``: the common sections of the long report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import pynvml

from pumice.adapters.nvml.cards import SWITCH, link_ends, text
from pumice_lab.machine.nvidia_smi.cards import MIB, Card, ask, cuda_version, enabled, process_name
from pumice_lab.machine.nvidia_smi.table import NOTICE

_Section = tuple[str, list[tuple[str, object | None]]]
_ARCHITECTURES = {4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}
_BRANDS = {2: "Tesla", 5: "GeForce", 14: "NVIDIA"}


SECTIONS: dict[str, frozenset[str]] = {
    "MEMORY": frozenset({"FB Memory Usage", "BAR1 Memory Usage"}),
    "UTILIZATION": frozenset({"Utilization"}),
    "ECC": frozenset({"ECC Mode"}),
    "TEMPERATURE": frozenset({"Temperature"}),
    "POWER": frozenset({"GPU Power Readings"}),
    "CLOCK": frozenset({"Clocks", "Max Clocks"}),
    "COMPUTE": frozenset({"Compute Mode"}),
    "PERFORMANCE": frozenset({"Performance State"}),
    "PIDS": frozenset({"Processes"}),
}
"""Choices of ``-d``: titles of sections, or facts that stand by themselves."""


def report(cards: list[Card], now: datetime, chosen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The whole report, or the ``chosen`` titles of it."""
    yield ""
    yield "==============NVSMI LOG=============="
    yield NOTICE
    yield ""
    yield _line(0, "Timestamp", now.strftime("%a %b %e %H:%M:%S %Y"))
    yield _line(0, "Driver Version", text(pynvml.nvmlSystemGetDriverVersion()))
    yield _line(0, "CUDA Version", cuda_version())
    yield ""
    yield _line(0, "Attached GPUs", pynvml.nvmlDeviceGetCount())
    for card in cards:
        yield f"GPU {card.bus_id}"
        for title, facts in _sections(card):
            reported = [(name, value) for name, value in facts if not chosen or (title or name) in chosen]
            if title and reported:
                yield f"    {title}"
            yield from (_line(8 if title else 4, name, value) for name, value in reported)
        if not chosen or "Processes" in chosen:
            yield from _processes(card)
        yield ""


def _sections(card: Card) -> Iterator[_Section]:
    handle, pci, load = card.handle, pynvml.nvmlDeviceGetPciInfo(card.handle), card.utilization()
    mode, state = card.mig_mode(), card.performance_state()
    yield "", [
        ("Product Name", card.name), ("Product Brand", _BRANDS.get(ask(pynvml.nvmlDeviceGetBrand, handle) or 0)),
        ("Product Architecture", _ARCHITECTURES.get(ask(pynvml.nvmlDeviceGetArchitecture, handle) or 0)),
        ("Persistence Mode", enabled(card.persistence())),
    ]  # fmt: skip
    yield "MIG Mode", [("Current", enabled(mode and mode[0])), ("Pending", enabled(mode and mode[1]))]
    yield "", [
        ("Serial Number", _text(ask(pynvml.nvmlDeviceGetSerial, handle))), ("GPU UUID", card.uuid),
        ("Minor Number", ask(pynvml.nvmlDeviceGetMinorNumber, handle)),
        ("VBIOS Version", _text(ask(pynvml.nvmlDeviceGetVbiosVersion, handle))),
    ]  # fmt: skip
    yield "PCI", [
        ("Bus", f"0x{pci.bus:02X}"), ("Device", f"0x{pci.device:02X}"), ("Domain", f"0x{pci.domain:04X}"),
        ("Device Id", f"0x{pci.pciDeviceId:08X}"), ("Bus Id", card.bus_id),
    ]  # fmt: skip
    yield "", [("Fan Speed", _unit(card.fan(), "%")), ("Performance State", None if state is None else f"P{state}")]
    if memory := card.memory():
        names = ("Total", "Reserved", "Used", "Free")
        yield "FB Memory Usage", [(name, f"{size // MIB} MiB") for name, size in zip(names, memory, strict=True)]
    if bar1 := card.bar1():
        sizes = (("Total", bar1.bar1Total), ("Used", bar1.bar1Used), ("Free", bar1.bar1Free))
        yield "BAR1 Memory Usage", [(name, f"{size // MIB} MiB") for name, size in sizes]
    yield "", [("Compute Mode", card.compute_mode())]
    yield "Utilization", [("Gpu", _unit(load and load[0], "%")), ("Memory", _unit(load and load[1], "%"))]
    yield "ECC Mode", [("Current", enabled(card.ecc()))]
    yield "Temperature", [("GPU Current Temp", _unit(card.temperature(), "C"))]
    yield "GPU Power Readings", [
        ("Power Draw", _watts(card.power_mw())), ("Current Power Limit", _watts(card.power_limit_mw())),
    ]  # fmt: skip
    kinds = (("Graphics", pynvml.NVML_CLOCK_GRAPHICS), ("SM", pynvml.NVML_CLOCK_SM), ("Memory", pynvml.NVML_CLOCK_MEM))
    yield "Clocks", [(name, _unit(card.clock(kind), "MHz")) for name, kind in kinds]
    yield "Max Clocks", [(name, _unit(card.clock(kind, most=True), "MHz")) for name, kind in kinds]


def _processes(card: Card) -> Iterator[str]:
    processes = card.processes()
    if not processes:
        yield _line(4, "Processes", "None")
        return
    yield "    Processes"
    for kind, process in processes:
        yield _line(8, "Process ID", process.pid)
        yield _line(12, "Type", kind)
        yield _line(12, "Name", process_name(process.pid))
        used = process.usedGpuMemory
        yield _line(12, "Used GPU Memory", None if used is None else f"{used // MIB} MiB")


def _line(indent: int, name: str, value: object | None) -> str:
    return f"{' ' * indent + name:<50}: {'N/A' if value is None else value}"


def _text(value: object | None) -> str | None:
    return text(value) or None if value is not None else None


def _unit(value: int | None, unit: str) -> str | None:
    return None if value is None else f"{value} {unit}"


def _watts(milliwatts: int | None) -> str | None:
    return None if milliwatts is None else f"{milliwatts / 1000:.2f} W"


# -- `nvidia-smi topo -m`: how the cards reach each other, and which processors are near -----------------------------

_WAYS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks"""
_WORDS = 64
"""Of 64 processors each, which the affinity is asked for."""


def matrix(cards: list[Card]) -> Iterator[str]:
    names = [f"GPU{card.index}" for card in cards]
    yield "\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    ends = {card.uuid: link_ends(card.handle) for card in cards}
    for name, card in zip(names, cards, strict=True):
        ways = [" X " if other is card else _way(card, other, ends) for other in cards]
        yield "\t".join([name, *ways, _processors(card), _node(card), "N/A"])
    yield from _LEGEND.splitlines()


def _way(card: Card, other: Card, ends: Mapping[str, Mapping[str, int]]) -> str:
    """NVLinks to the other card, or as many as both have to a switch; else the nearest bridge above both."""
    mine, theirs = ends[card.uuid], ends[other.uuid]
    if links := mine.get(other.bus_id.upper(), 0) + min(mine.get(SWITCH, 0), theirs.get(SWITCH, 0)):
        return f"NV{links}"
    level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, card.handle, other.handle)
    return "SYS" if level is None else _WAYS.get(level, "SYS")


def _processors(card: Card) -> str:
    """``0-15,32-47``, as the kernel writes lists of processors."""
    words: list[int] = ask(pynvml.nvmlDeviceGetCpuAffinity, card.handle, _WORDS) or []
    near = [64 * number + bit for number, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1]
    spans: list[list[int]] = []
    for processor in near:
        if spans and spans[-1][1] == processor - 1:
            spans[-1][1] = processor
        else:
            spans.append([processor, processor])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or "N/A"


def _node(card: Card) -> str:
    node = ask(pynvml.nvmlDeviceGetNumaNodeId, card.handle)
    return "N/A" if node is None else str(node)
