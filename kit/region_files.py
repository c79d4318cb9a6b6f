"""Builds region files of every layout, byte by byte, as the libraries write them (HAMi-core
src/multiprocess/multiprocess_memory_limit.h)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAGIC = 19920718
GPU = "GPU-0a0a0a0a-0000-4000-8000-00000000000{}"


@dataclass
class Proc:
    pid: int = 1
    used: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)  # device -> context, module, data, total
    sm: dict[int, int] = field(default_factory=dict)
    status: int = 1
    sequence: int = 0


def region_bytes(version: str = "1.2", devices: int = 2, procs: tuple[Proc, ...] = (), **fields: Any) -> bytearray:
    """A whole file. ``fields``: device_num, proc_num, recent, priority, last, limits, magic, uuids."""
    old = version == "0"
    size = 1197897 if old else 2008953
    data = bytearray(size)
    uuids, limits, slots, slot_bytes = (56, 1592, 1848, 1168) if old else (64, 1600, 1856, 1960)
    struct.pack_into("<i", data, 0, fields.get("magic", MAGIC))
    if not old:
        struct.pack_into("<II", data, 4, 1, int(version[-1]))
    struct.pack_into("<Q", data, 48 if old else 56, fields.get("device_num", devices))
    for index in range(devices):
        text = fields.get("uuids", {}).get(index, GPU.format(index).encode())
        data[uuids + 96 * index : uuids + 96 * index + len(text)] = text
        struct.pack_into("<Q", data, limits + 8 * index, fields.get("limits", 3000 << 20))
        struct.pack_into("<Q", data, limits + 128 + 8 * index, 50)
    for number, proc in enumerate(procs):
        base = slots + number * slot_bytes
        struct.pack_into("<ii", data, base, proc.pid, 0)
        for device, (context, module, used, total) in proc.used.items():
            struct.pack_into("<5Q", data, base + 8 + device * (40 if old else 64), context, module, used, 0, total)
        for device, percent in proc.sm.items():
            where = 776 + device * 24 if old else 1160 + device * 48
            struct.pack_into("<Q", data, base + where + 16, percent)
        struct.pack_into("<i", data, base + (1160 if old else 1928), proc.status)
        if not old:
            struct.pack_into("<Q", data, base + 1936, proc.sequence)
    tail = (fields.get("proc_num", len(procs)), 1, fields.get("recent", 2), fields.get("priority", 1))
    struct.pack_into("<4i", data, 1197880 if old else 2008896, *tail)
    if not old:
        struct.pack_into("<Q", data, 2008912, fields.get("last", 0))
    return data


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
