"""One region file to what a monitor needs of it, within a budget: a monitor spends its time here, and the file's owner may
have filled it with anything.

A slot is a row of 8-byte words, so a field of all slots is one strided slice that is summed without a look at each slot.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from operator import or_
from pathlib import Path
from typing import Final

from pumice.adapters.region.reader import V0, V11, V12, Header, Layout, opened, read_header
from pumice.ports.region import MAX_SLOTS, BadRegion, DeviceUse, RegionReport, ReportedUse

SETTLED: Final = 128
"""Regions with more processes are read once, whoever is writing meanwhile."""
NAMED: Final = 256
"""Processes of one region that are told by their ids."""
_INT: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Words:
    """The offsets of a slot's fields, in words: of device ``d`` its use from ``1 + d * use``, its SM percentage ``sm + d *
    util``."""

    slot: int
    use: int
    sm: int
    util: int
    status: int
    sequence: int


def _words(layout: Layout) -> _Words:
    return _Words(layout.slot_bytes // 8, layout.use // 8, layout.util_at // 8 + 2, layout.util // 8, layout.status // 8,
                  layout.sequence // 8 if layout.sequence >= 0 else -1)  # fmt: skip


_WORDS: Final = {layout.version: _words(layout) for layout in (V0, V11, V12)}


class ReportReader:
    """Reads one region after the other into the same buffer; for one thread."""

    def __init__(self) -> None:
        self._bytes = memoryview(bytearray(MAX_SLOTS * V12.slot_bytes))
        self._again = memoryview(bytearray(SETTLED * V12.slot_bytes))

    def read(self, path: str | Path, cards: Collection[str]) -> RegionReport:
        """Return the region's figures of these cards. Raises BadRegion on damaged content, and nothing else."""
        with opened(path) as descriptor:
            head = read_header(descriptor, str(path))
            slots = self._slots(descriptor, head, str(path))
        words = _WORDS[head.layout.version]
        live = [word & _INT != 0 for word in slots[words.status :: words.slot].tolist()]
        reported: dict[str, ReportedUse] = {}
        for device in head.devices:
            if device.uuid not in cards or device.uuid in reported:
                continue
            first = 1 + device.index * words.use
            places = (*range(first, first + 5), words.sm + device.index * words.util)
            use = [sum(compress(slots[place :: words.slot].tolist(), live)) for place in places]
            reported[device.uuid] = ReportedUse(device.limit, device.sm_limit, DeviceUse(*use))
        ids = compress(enumerate(slots[: NAMED * words.slot : words.slot].tolist()), live)
        return RegionReport(
            head.layout.version, reported, tuple((slot, both & _INT, both >> 32) for slot, both in ids),
            head.recent_kernel, head.utilization_switch, head.last_kernel,
        )  # fmt: skip

    def _slots(self, descriptor: int, head: Header, path: str) -> memoryview:
        """The words of the slots in use. Read anew a few times while somebody writes, for a writer may have died."""
        length = head.slots * head.layout.slot_bytes
        words = self._bytes[:length].cast("Q")
        self._fill(descriptor, self._bytes[:length], head, path)
        layout = _WORDS[head.layout.version]
        if layout.sequence < 0 or head.slots > SETTLED:
            return words
        again = self._again[:length].cast("Q")
        for _ in range(2):
            before = words[layout.sequence :: layout.slot].tolist()
            self._fill(descriptor, self._again[:length], head, path)
            # odd while somebody writes (HAMi-core src/multiprocess/multiprocess_memory_limit.c)
            writing = reduce(or_, before, 0) & 1
            if not writing and before == again[layout.sequence :: layout.slot].tolist():
                break
            words[:] = again
        return words

    def _fill(self, descriptor: int, room: memoryview, head: Header, path: str) -> None:
        if len(room) and os.preadv(descriptor, [room], head.layout.slots) != len(room):
            raise BadRegion(f"{path}: cut off among its {head.slots} slots")
