"""The device series of ``/metrics`` (Volcano pkg/scheduler/api/devices/nvidia/vgpu/metrics.go), kept as rendered lines.

A card's lines are made again only when what is booked on that card has changed. ``prepare`` does it node by node, so that who
asks has a turn for other things in between; ``section`` does what is left and joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import add

from pumice.devices.protocol import Series
from pumice.metrics.text import alike, also, escape, head, labels_text, last, line
from pumice.model.cards import Usage
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.node_devices import NodeDevices

ENDINGS = (
    ("_memory_limit", "Registered memory of a card"),
    ("_shared_number", "Shares of a card in use"),
    ("_allocated_memory", "Memory of a card charged to pods"),
    ("_allocated_cores", "Cores of a card charged to pods"),
    ("_memory_allocation_for_a_certain_pod", "Memory of a card charged to one pod"),
    ("_core_allocation_for_a_certain_pod", "Cores of a card charged to one pod"),
    ("_pod_memory", "Memory of a card charged to one pod, told apart by namespace"),
    ("_pod_cores", "Cores of a card charged to one pod, told apart by namespace"),
    ("_slices", "Slices of a card that pods hold, by template or profile"),
)
"""Endings of the names of a device type's series, and what they tell; the last three are ours."""

Lines = tuple[str, ...]
"""Text per series, each with its line ends."""
CardStamp = tuple[int, int, int, tuple[str, ...]]
"""Total, charged memory and cores, and who holds them: what a pod holds of a card changes with one of these."""


@dataclass(slots=True)
class _Node:
    """The cached lines of one node. ``devices`` and ``version`` say their state; ``cards`` has per card its stamp and lines."""

    devices: NodeDevices
    version: int = -1
    cards: list[tuple[CardStamp, Lines]] = field(default_factory=list)


@dataclass(slots=True)
class DeviceSeries:
    """The device lines of one engine. ``rendered`` counts the cards whose lines were made."""

    engine: Engine
    rendered: int = 0
    _nodes: dict[tuple[str, str], _Node] = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)
    _fresh: bool = False

    def prepare(self) -> Iterator[None]:
        """Render what has changed, a node at each step."""
        for stale in list(self._stale()):
            self._render(*stale)
            yield

    def section(self) -> list[str]:
        """All series, in pieces to be joined."""
        for stale in list(self._stale()):
            self._render(*stale)
        alive = {(name, node) for name, _, nodes in self._tables() for node in nodes}
        if self._fresh and len(alive) == len(self._nodes):
            return self._parts
        for key in self._nodes.keys() - alive:
            del self._nodes[key]
        self._parts = []
        sharing: dict[Series, set[str]] = {}  # several families may have the same names: each is told once
        for family, series, _ in self._tables():
            sharing.setdefault(series, set()).add(family)
        for series, families in sharing.items():
            mine = [kept for (name, _), kept in self._nodes.items() if name in families]
            for place, (name, (_, text)) in enumerate(zip(series_names(series), ENDINGS, strict=True)):
                self._parts.append(head(name, "gauge", text))
                self._parts += [lines[place] for kept in mine for _, lines in kept.cards]
        self._fresh = True
        return self._parts

    def _tables(self) -> Iterator[tuple[str, Series, Mapping[str, NodeDevices]]]:
        """Of the families that have series."""
        for name, devices in self.engine.state.ledger.device_tables.items():
            if devices.device_type.series is not None:
                yield name, devices.device_type.series, devices.nodes

    def _stale(self) -> Iterator[tuple[tuple[str, str], Series, NodeDevices]]:
        for name, series, nodes in self._tables():
            for node, devices in nodes.items():
                kept = self._nodes.get((name, node))
                if kept is None or kept.devices is not devices or kept.version != devices.version:
                    yield (name, node), series, devices

    def _render(self, key: tuple[str, str], series: Series, devices: NodeDevices) -> None:
        kept = self._nodes.get(key)
        if kept is None or kept.devices is not devices:
            kept = self._nodes[key] = _Node(devices)
        tasks, cards, names = self.engine.state.tasks, [], series_names(series)
        (on_node,) = also("NodeName", [escape(devices.name)])
        for place, (card, usage) in enumerate(zip(devices.inventory.cards, devices.usages, strict=True)):
            stamp = (card.total, usage.memory, usage.cores, tuple(usage.holders))
            if place < len(kept.cards) and kept.cards[place][0] == stamp:
                cards.append(kept.cards[place])
                continue
            where = labels_text((("devID", card.uuid),)) + on_node
            cards.append((stamp, _card_lines(names, where, card.total, usage, tasks)))
            self.rendered += 1
        kept.cards, kept.version = cards, devices.version
        self._fresh = False


@cache
def series_names(series: Series) -> tuple[str, ...]:
    """Of a family's series, in the order of ``ENDINGS``."""
    *cards, memory, cores, slices = (
        ending.replace("_cores", f"_{series.cores}").replace("_core_", f"_{series.cores.removesuffix('s')}_")
        .replace("_memory", f"_{series.memory}") for ending, _ in ENDINGS
    )  # fmt: skip
    return (*(series.cards + ending for ending in cards), series.pods + memory, series.pods + cores, series.pods + slices)


def _card_lines(series: tuple[str, ...], where: str, total: int, usage: Usage, tasks: Mapping[str, Task]) -> Lines:
    """The lines of one card. Names of pods and namespaces need no escaping: Kubernetes lets nothing in that would."""
    of_limit, of_shares, of_memory, of_cores, of_pod_memory, of_pod_cores, of_own_memory, of_own_cores, of_slices = series
    cards = (line(of_limit, where, str(total)), line(of_shares, where, str(usage.shares)),
             line(of_memory, where, str(usage.memory)), line(of_cores, where, str(usage.cores)))  # fmt: skip
    if not usage.holders:
        return *cards, "", "", "", "", ""
    namespaces, names, mibs, percents = zip(*_by_pod(usage, tasks), strict=True)
    memory, cores, spaces = last("podName", names, mibs), last("podName", names, percents), also("podNamespace", namespaces)
    own_memory, own_cores = [*map(add, spaces, memory)], [*map(add, spaces, cores)]
    if len(set(names)) < len(names):  # upstream's labels lack the namespace: equal names share a series (D-43)
        memory, cores = (last("podName", *zip(*_summed(names, amounts).items(), strict=True)) for amounts in (mibs, percents))
    return (
        *cards,
        alike(of_pod_memory, where, memory), alike(of_pod_cores, where, cores),
        alike(of_own_memory, where, own_memory), alike(of_own_cores, where, own_cores),
        alike(of_slices, where, _slices(usage)),
    )  # fmt: skip


def _slices(usage: Usage) -> list[str]:
    """Ends of lines: how many of each template."""
    found: dict[str, int] = {}
    for container_devices in usage.holders.values():
        for container_device in container_devices:
            if container_device.slot is not None:
                found[container_device.slot.profile] = found.get(container_device.slot.profile, 0) + 1
    return last("template", map(escape, found), found.values()) if found else []


def _summed(names: Iterable[str], amounts: Iterable[int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for name, amount in zip(names, amounts, strict=True):
        total[name] = total.get(name, 0) + amount
    return total


def _by_pod(usage: Usage, tasks: Mapping[str, Task]) -> list[tuple[str, str, int, int]]:
    """Namespace, name, memory and cores of each pod on a card."""
    found = []
    for uid, container_devices in usage.holders.items():
        task = tasks.get(uid)
        first = container_devices[0]
        memory, cores = first.asked, first.cores
        for container_device in container_devices[1:]:
            memory += container_device.asked
            cores += container_device.cores
        found.append((task.namespace, task.name, memory, cores) if task is not None else ("", escape(uid), memory, cores))
    return found
