"""Nodes whose chips are cut on demand as boards (``devices/layout.py``), as they are within one cycle: one template at a time is
in the making on a node, and a chip takes one slice until that is made. A need is a ``CoreAsk``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pumice.devices.ascend_mindcluster.ask import CoreAsk
from pumice.devices.ascend_mindcluster.chip_board import Left
from pumice.devices.ascend_mindcluster.chips import others_made, settled, shut, takes, untouched, with_one_made
from pumice.devices.ascend_mindcluster.policy import loss, value
from pumice.model.hardware.npu_slices import SliceKind, SliceTemplate

Chips = tuple[Left, ...]
"""What is left of each, sorted; of those that nobody may have, nothing."""


class Cut(NamedTuple):
    """A slice of a chip of which so much is left. Without a template: as many whole chips as are asked for."""

    template: SliceTemplate | None = None
    chip: Left = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class NodeBoard:
    """``cores``: of an empty chip."""

    kind: SliceKind
    cores: int
    policy: str

    def ways(self, state: Chips, need: CoreAsk) -> Iterable[tuple[Chips, Cut, float]]:
        """A smaller template than the first one is a greater waste than a chip: whoever can have what he asks for has it."""
        if need.whole:
            yield from self._whole(state, need.cores)
        for number, template in enumerate(need.templates):
            if (chip := _chip(self, state, template)) is not None:
                yield _without(self, state, template, chip), Cut(template, chip), number * self.left(self._empty_chip)

    def _whole(self, state: Chips, cores: int) -> Iterable[tuple[Chips, Cut, float]]:
        wanted, rest = divmod(cores, self.cores)
        free = [chip for chip in state if self.is_empty(chip)][:wanted]
        if not rest and len(free) == wanted:
            others = list(state)
            for chip in free:
                others.remove(chip)
            yield tuple(sorted((*others, *(shut(chip[2]) for chip in free)))), Cut(), 0.0

    def is_empty(self, chip: Left) -> bool:
        return chip[0] == self.cores and bool(untouched(0, chip[2]))

    @property
    def _empty_chip(self) -> Chips:
        return ((self.cores, self.kind.cpus[self.cores], 0),)

    def left(self, state: Chips) -> float:
        return _left(self, state)


@lru_cache(maxsize=16384)
def _chip(board: NodeBoard, state: Chips, template: SliceTemplate) -> Left | None:
    """Where a slice is cut: on an empty chip last, so that as much is served as by any other choice; then as the policy says."""
    if any(rest & others_made(board.kind, template) for _, _, rest in state):
        return None
    fitting = [chip for chip in set(state) if takes(template, *chip)]
    idle = any(map(board.is_empty, fitting))

    def order(chip: Left) -> tuple[float, ...]:
        lost = loss(board.kind, template, *chip, idle=idle) if board.policy == "expected" else 0.0
        return board.is_empty(chip), lost, *chip

    return min(fitting, key=order, default=None)


@lru_cache(maxsize=16384)
def _without(board: NodeBoard, state: Chips, template: SliceTemplate, chip: Left) -> Chips:
    others = list(state)
    others.remove(chip)
    return tuple(sorted((*others, with_one_made(board.kind, template, *chip))))


@lru_cache(maxsize=16384)
def _left(board: NodeBoard, state: Chips) -> float:
    return sum(value(board.kind, cores, cpus, settled(rest)) for cores, cpus, rest in state)
