"""Chips that are cut by templates of memory as boards (``devices/layout.py``): a need is what one container asks for, a slice
is its template, empty for a whole chip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pumice.devices.ascend_hami.ask import ContainerAsk
from pumice.devices.ascend_hami.units import MANY, Units, units_of
from pumice.devices.remaining import remaining
from pumice.model.hardware.npu import NpuChip


class Left(NamedTuple):
    """What is left of a chip: memory in MB and places for slices; the templates of those that are there, sorted; and how many may
    come to be there for the sake of those that are planned."""

    idle: int
    places: int
    held: tuple[str, ...] = ()
    most: int = MANY


@dataclass(frozen=True, slots=True, eq=False)
class ChipBoard:
    """``memory``: of the chip as its node registers it. In which order slices are made is not for a plan to say: none takes the
    vGroups that another one of them wants."""

    chip: NpuChip
    units: Units
    memory: int

    def ways(self, state: Left, need: ContainerAsk) -> Iterable[tuple[Left, str, float]]:
        if need.whole:
            if not state.held and state.idle >= self.memory:
                yield Left(0, 0), "", 0.0
            return
        most = min(state.most, self.units.most_with(need.template))
        if need.memory > state.idle or not state.places or len(state.held) >= most:
            return
        if self.units.missing(need.template, state.held) is None:
            held = tuple(sorted((*state.held, need.template)))
            yield Left(state.idle - need.memory, state.places - 1, held, most), need.template, 0.0

    def left(self, state: Left) -> float:
        """In MB, over all templates and whole chips, each as frequent as the others."""
        asks = (ContainerAsk(1), *(ContainerAsk(1, template.memory, template.name) for template in self.chip.templates))
        return remaining(((ask, ask.memory or self.memory, 1.0) for ask in asks), lambda ask: _room(self, state, ask))


@lru_cache(maxsize=256)
def board_of(chip: NpuChip, memory: int) -> ChipBoard:
    """The same one for cards that are alike: what is tabulated is found by it without comparing configurations."""
    return ChipBoard(chip, units_of(chip), memory)


@lru_cache(maxsize=65536)
def _room(board: ChipBoard, state: Left, ask: ContainerAsk) -> int:
    """How many of them the chip takes yet."""
    after = next(iter(board.ways(state, ask)), None)
    return 0 if after is None else 1 + _room(board, after[0], ask)
