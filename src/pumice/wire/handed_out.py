"""``pumice.io/vgpu-handed-out`` of a node, ours: which devices the node's plugin has handed out, and to which pods.

A pod's owner may change the annotations of the pod, and not those of the node. One line per pod, ``UID assignment``, the
assignment written as in the pod's own annotation (Volcano pkg/scheduler/api/devices/nvidia/vgpu).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pumice.wire.nvidia_vgpu import PodDevice, PodDevices, parse_pod_devices, render_pod_devices

LIMIT: Final = 64 * 1024
"""Characters of the annotation: some six hundred pods. A node's annotations have 256 KiB together."""

Parts = Sequence[Sequence[PodDevice]]


def render_handed_out(held: Mapping[str, Parts], limit: int = LIMIT) -> str:
    """Pods in the order of their UIDs, as many as there is room for."""
    lines: list[str] = []
    room = limit
    for uid, parts in sorted(held.items()):
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
