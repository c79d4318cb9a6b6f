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

MORE_MAGIC: Final = 0x314D5056

HEAD: Final = struct.Struct("<6I256s")
CARD: Final = struct.Struct("<96sQQ")
MEMORY_AT: Final = 96
"""Where in it the memory stands; the cores follow."""
BYTES: Final = HEAD.size + CARDS * CARD.size
MORE: Final = struct.Struct(f"<6I8x{CARDS}Q")
"""The part behind the cards, since priorities are granted: magic, priority, what the monitor says (``HELD``), and the bytes that
the container may hold of each card. Libraries of before do not look, and pages of before end sooner."""
HELD: Final = struct.Struct("<4I")
"""Percent of the cards' time that the container keeps while more important work runs (0: nobody holds it back), beats,
milliseconds between two of them, and the percent that it may have in place of its cores (0: they hold)."""
HELD_AT: Final = BYTES + 8


class GrantedCard(Struct, frozen=True):
    """A card, or a slice of one; ``memory`` in bytes and ``cores`` in percent, 0: no limit of ours. ``burst``: bytes up to which
    the container may hold memory that gives way to its neighbours, beyond ``memory``; 0: none."""

    uuid: str
    memory: int = 0
    cores: int = 0
    burst: int = 0


class LimitsPage(Struct, frozen=True):
    """The limits page of a container. ``cards`` in the container's NVML order; what else it sees was not granted. ``region``:
    the container's path of its region. ``lifted``: the core limits are off for now. ``priority``: 0 high, 1 low, as granted;
    None on a page of before. ``held``: the percent of its cards' time that it keeps while more important work runs there; 0:
    all of it. ``burst``: the percent that its neighbours leave it beyond its cores; 0: none."""

    cards: tuple[GrantedCard, ...]
    region: str
    oversubscribe: bool = False
    limit_cores: bool = True
    lifted: bool = False
    priority: int | None = None
    held: int = 0
    burst: int = 0


def render(page: LimitsPage) -> bytes:
    flags = OVERSUBSCRIBE * page.oversubscribe | NO_CORE_LIMIT * (not page.limit_cores)
    cards = page.cards[:CARDS]
    head = HEAD.pack(MAGIC, VERSION, BYTES, flags, len(cards), page.lifted, _text(page.region, 256))
    rows = [CARD.pack(_text(card.uuid, 96), card.memory, card.cores) for card in cards]
    bursts = [card.burst for card in cards] + [0] * (CARDS - len(cards))
    more = b"" if page.priority is None else MORE.pack(MORE_MAGIC, page.priority, page.held, 0, 0, page.burst, *bursts)
    return (head + b"".join(rows)).ljust(BYTES, b"\0") + more


def parse(content: bytes) -> LimitsPage | None:
    """None: it is no page of a layout that we know."""
    if len(content) < BYTES:
        return None
    magic, version, size, flags, count, lifted, region = HEAD.unpack_from(content)
    if (magic, version, size) != (MAGIC, VERSION, BYTES) or count > CARDS:
        return None
    rows: Sequence[tuple[bytes, int, int]] = list(CARD.iter_unpack(content[HEAD.size : HEAD.size + count * CARD.size]))
    magic, priority, held, _, _, burst, *bursts = MORE.unpack_from(content[BYTES:].ljust(MORE.size, b"\0"))
    more = magic == MORE_MAGIC
    cards = tuple(
        GrantedCard(_string(uuid), memory, cores, most if more else 0)
        for (uuid, memory, cores), most in zip(rows, bursts, strict=False)
    )
    return LimitsPage(
        cards, _string(region), bool(flags & OVERSUBSCRIBE), not flags & NO_CORE_LIMIT, lifted != 0,
        priority if more else None, held if more else 0, burst if more else 0,
    )  # fmt: skip


def _text(value: str, size: int) -> bytes:
    return value.encode()[: size - 1]


def _string(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")
