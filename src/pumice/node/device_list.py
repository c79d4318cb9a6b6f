"""The list of devices that a plugin shows the kubelet (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/plugin.go)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

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
