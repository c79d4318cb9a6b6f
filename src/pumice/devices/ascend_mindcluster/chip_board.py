"""Chips that are cut on demand as boards (``devices/layout.py``): a need is the templates of a request in their order, none for
a whole chip; a slice is its template."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pumice.devices.ascend_mindcluster.chips import after, takes, untouched
from pumice.devices.ascend_mindcluster.policy import value
from pumice.model.hardware.npu_slices import SliceKind, SliceTemplate

Left = tuple[int, int, int]
"""Free AI cores, free AI CPUs, and the rest as ``chip_state`` writes it."""


@dataclass(frozen=True, slots=True)
class ChipBoard:
    """Slices are made at once: of chips that wait for one in the making, nothing can be planned."""

    kind: SliceKind
    cores: int
    """Of an empty chip."""

    def ways(self, state: Left, need: tuple[SliceTemplate, ...]) -> Iterable[tuple[Left, SliceTemplate | None, float]]:
        if not need:
            if state[0] == self.cores and untouched(0, state[2]):
                yield (0, 0, state[2]), None, 0.0
            return
        for template in need:
            if takes(template, *state):
                yield after(template, *state), template, 0.0

    def left(self, state: Left) -> float:
        return value(self.kind, *state)
