"""``nvidia-smi topo -m``: how the cards reach each other, and which processors are near."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pynvml

from pumice.adapters.nvml.cards import SWITCH, link_ends
from pumice_lab.machine.nvidia_smi.cards import Card, ask

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
