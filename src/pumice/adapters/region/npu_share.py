"""The file that the library of soft NPU shares writes for one container (HAMi ascend-device-plugin): a file of 6200 bytes,
little-endian."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SIZE: Final = 6200
_SLOTS, _FIRST, _SLOT = 64, 1080, 80
_CARDS: Final = 8


@dataclass(frozen=True, slots=True)
class NpuShare:
    """Bytes: what the container may use, and what its active processes use of each card that it sees."""

    limit: int
    used: tuple[int, ...]


def read_npu_share(path: Path) -> NpuShare | None:
    """None where nobody has opened one yet, or it is none."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < SIZE:
        return None
    (limit,) = struct.unpack_from("<Q", content, 0)
    used = [0] * _CARDS
    for at in range(_FIRST, _FIRST + _SLOTS * _SLOT, _SLOT):
        pid, active = struct.unpack_from("<i", content, at)[0], struct.unpack_from("<I", content, at + 72)[0]
        if pid and active:
            for card, amount in enumerate(struct.unpack_from(f"<{_CARDS}Q", content, at + 8)):
                used[card] += amount
    return NpuShare(limit, tuple(used))
