"""MIG cards as boards (``devices/layout.py``): a need is so many MiB, a slice (group, slot)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pumice.devices.nvidia_vgpu.mig import TANGLED, Choice, Geometry
from pumice.devices.nvidia_vgpu.mig_policy import remaining_value


class MigBoard(Struct, frozen=True):
    geometry: Geometry

    def ways(self, state: tuple[int, int], need: int) -> Iterable[tuple[tuple[int, int], Choice, float]]:
        if state[0] == TANGLED:
            return
        for group, slot in self.geometry.choices(*state, need):
            yield self.geometry.taken(*state, group, slot), (group, slot), self.geometry.memory(group, slot) - need

    def left(self, state: tuple[int, int]) -> float:
        active, used = state
        return remaining_value(self.geometry, active if used else -1, used)
