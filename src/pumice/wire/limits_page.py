"""The limits page of a container: what it was granted, in a file that it sees read-only (native/vgpu/include/vgpu/limits_page.h).

Made by the node's plugin before the container starts; our library obeys it over environment and region.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

PATH: Final = "/usr/local/vgpu/limits"
"""Where the library looks for it in the container."""
MPS_NOTE: Final = "mps"
"""The file that lies in place of a page where an MPS server holds the container's limits."""
MAGIC: Final = 0x314C5056
VERSION: Final = 1
CARDS: Final = 16
OVERSUBSCRIBE: Final = 1
NO_CORE_LIMIT: Final = 2
LIFTED_AT: Final = 20
"""Where the monitor's word about the core limits stands: the one field that changes."""

HEAD: Final = struct.Struct("<6I256s")
CARD: Final = struct.Struct("<96sQQ")
BYTES: Final = HEAD.size + CARDS * CARD.size


class GrantedCard(Struct, frozen=True):
    """A card, or a slice of one; ``memory`` in bytes and ``cores`` in percent, 0: no limit of ours."""

    uuid: str
    memory: int = 0
    cores: int = 0


class LimitsPage(Struct, frozen=True):
    """``cards`` in the container's NVML order; what else it sees was not granted. ``region``: the container's path of its region.
    ``lifted``: the core limits are off for now."""

    cards: tuple[GrantedCard, ...]
    region: str
    oversubscribe: bool = False
    limit_cores: bool = True
    lifted: bool = False


def render(page: LimitsPage) -> bytes:
    flags = OVERSUBSCRIBE * page.oversubscribe | NO_CORE_LIMIT * (not page.limit_cores)
    cards = page.cards[:CARDS]
    head = HEAD.pack(MAGIC, VERSION, BYTES, flags, len(cards), page.lifted, _text(page.region, 256))
    rows = [CARD.pack(_text(card.uuid, 96), card.memory, card.cores) for card in cards]
    return (head + b"".join(rows)).ljust(BYTES, b"\0")


def parse(content: bytes) -> LimitsPage | None:
    """None: it is no page of a layout that we know."""
    if len(content) < BYTES:
        return None
    magic, version, size, flags, count, lifted, region = HEAD.unpack_from(content)
    if (magic, version, size) != (MAGIC, VERSION, BYTES) or count > CARDS:
        return None
    rows: Sequence[tuple[bytes, int, int]] = list(CARD.iter_unpack(content[HEAD.size : HEAD.size + count * CARD.size]))
    cards = tuple(GrantedCard(_string(uuid), memory, cores) for uuid, memory, cores in rows)
    return LimitsPage(cards, _string(region), bool(flags & OVERSUBSCRIBE), not flags & NO_CORE_LIMIT, lifted != 0)


def _text(value: str, size: int) -> bytes:
    return value.encode()[: size - 1]


def _string(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")
