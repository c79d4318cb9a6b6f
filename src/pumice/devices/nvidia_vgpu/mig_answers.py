"""What each state of a MIG card answers to one ask: columns that ``vector.py`` looks states up in."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.devices.nvidia_vgpu.mig import STATES, Geometry
from pumice.devices.nvidia_vgpu.mig_policy import Chooser


class Answers:
    """Per state of a geometry: whether a slot of ``need`` MiB is free, what it charges, and what it costs. Worked out for
    the states that occur: a card whose slices may lie anywhere has more than a thousand."""

    def __init__(self, geometry: Geometry, need: int, choose: Chooser | None) -> None:
        self.geometry, self.need, self.choose = geometry, need, choose
        self.fits, self.known = np.zeros(geometry.states, bool), np.zeros(geometry.states, bool)
        self.charge, self.cost = np.zeros(geometry.states, np.int64), np.zeros(geometry.states)
        self.after = np.full(geometry.states, -2, np.int32)
        self.room = np.zeros(geometry.states, np.int64)

    def prepare(self, states: NDArray[Any]) -> None:
        """Answer for all of these."""
        seen = np.zeros(len(self.known), bool)
        seen[states] = True
        for number in np.flatnonzero(seen & ~self.known).tolist():
            self.known[number] = True
            active, used = self.geometry.state_of(number)
            self.room[number] = self.geometry.room(active, used, self.need)
            if self.choose is None:
                choice = self.geometry.first_fit(active, used, self.need)
                offer = None if choice is None else (0.0, *choice)
            else:
                offer = self.choose(self.geometry, active, used, self.need)
            if offer is not None:
                self.fits[number], self.cost[number] = True, offer[0]
                self.charge[number] = self.geometry.slot(offer[1], offer[2]).memory
                after = self.geometry.number_of(*self.geometry.taken(active, used, offer[1], offer[2]))
                self.after[number] = self.geometry.number * STATES + after


@lru_cache(maxsize=1024)
def answers_of(geometry: Geometry, need: int, choose: Chooser | None) -> Answers:
    return Answers(geometry, need, choose)
