"""The list of devices that a plugin shows the kubelet (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/plugin.go), and the
node object.

What stands there is not written twice, and what a replaced plugin left there goes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity

MESSAGE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one list that the kubelet still accepts (gRPC's default)."""


class Unit(Struct, frozen=True):
    """One entry of a device list."""

    id: str
    healthy: bool
    numa: int = -1
    """Its NUMA node, where the kubelet is told; else -1."""


def worst_size(units: Sequence[Unit]) -> int:
    """Bytes of the list message when every unit is unhealthy, exactly (HAMi volcano-vgpu-device-plugin
    pkg/plugin/vgpu/plugin.go): the longest that can be sent."""
    return sum(_entry_size(len(unit.id), unit.numa) for unit in units)


def _entry_size(id_length: int, numa: int) -> int:
    # two strings with tag and length inside one length-delimited entry; ids stay below 128 bytes
    body = 2 + id_length + 2 + len("Unhealthy")
    if numa >= 0:  # TopologyInfo of one NUMANode, whose id 0 is left out
        body += 4 + (1 + max(1, -(-numa.bit_length() // 7)) if numa else 0)
    return 1 + (1 if body < 128 else 2) + body


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Return what another plugin of the same cards leaves on a node when this one takes its place.

    It is taken away only while the kubelet has none of ``alive``, the resource that the other plugin registers.
    """

    alive: str
    resources: tuple[str, ...]
    annotations: tuple[str, ...]

    def of(self, node: Node) -> tuple[dict[str, None], dict[str, None]]:
        """(resources, annotations) to remove."""
        alive = node.status.allocatable.get(self.alive)
        if alive is not None and not _is(alive, 0):
            return {}, {}
        tables = (node.status.capacity, node.status.allocatable)
        return (
            {name: None for name in self.resources if any(name in table for table in tables)},
            {name: None for name in self.annotations if name in node.metadata.annotations},
        )


def holds(node: Node, resource: str, count: int) -> bool:
    """Return whether capacity and allocatable of the node say this much of a resource."""
    return all(_is(table.get(resource), count) for table in (node.status.capacity, node.status.allocatable))


def _is(value: str | int | float | None, count: int) -> bool:
    try:
        return value is not None and parse_quantity(value) == count
    except ValueError:
        return False
