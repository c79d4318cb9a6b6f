"""Pods that want AI cores, laid out together over the nodes (``devices/layout.py``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pumice.devices.ascend_mindcluster.device_request import CoreRequest
from pumice.devices.ascend_mindcluster.fit import as_planned, chips_of, fit_of
from pumice.devices.ascend_mindcluster.inventory import (
    loss,
    others_made,
    settled,
    shut,
    takes,
    untouched,
    value,
    with_one_made,
)
from pumice.devices.layout import STEPS_IN_A_CYCLE, Board, Want, few_of_a_sort, lay_out
from pumice.devices.protocol import DeviceRequest, Fit, NodeCards, Planned, Planner
from pumice.model.hardware.npu import SliceKind, SliceTemplate

Left = tuple[int, int, int]
"""Free AI cores, free AI CPUs, and the rest as ``chip_state`` writes it."""
Chips = tuple[Left, ...]
"""Return what is left of each, sorted; of those that nobody may have, nothing."""


class Partition(NamedTuple):
    """A slice of a chip of which so much is left. Without a template: as many whole chips as are asked for."""

    template: SliceTemplate | None = None
    chip: Left = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class NodeBoard:
    """A node as a plan sees it. ``cores``: of an empty chip."""

    kind: SliceKind
    cores: int
    policy: str

    def ways(self, state: Chips, need: CoreRequest) -> Iterable[tuple[Chips, Partition, float]]:
        """A smaller template than the first one is a greater waste than a chip: whoever can have what he asks for has it."""
        if need.whole:
            yield from self._whole(state, need.cores)
        for number, template in enumerate(need.templates):
            if (chip := _chip(self, state, template)) is not None:
                yield _without(self, state, template, chip), Partition(template, chip), number * self.left(self._empty_chip)

    def _whole(self, state: Chips, cores: int) -> Iterable[tuple[Chips, Partition, float]]:
        wanted, rest = divmod(cores, self.cores)
        free = [chip for chip in state if self.is_empty(chip)][:wanted]
        if not rest and len(free) == wanted:
            others = list(state)
            for chip in free:
                others.remove(chip)
            yield tuple(sorted((*others, *(shut(chip[2]) for chip in free)))), Partition(), 0.0

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


MOST_NODES = 8
"""That are open to the same pods: two nodes are hardly ever alike, and what fits one is found in 2 ms."""


class _Node(NamedTuple):
    """A node in a plan. ``may``: numbers of the pods that may have it."""

    number: int
    board: NodeBoard
    state: Chips
    may: frozenset[int]

    def sort(self) -> Hashable:
        return self.board, self.state, self.may

    def in_use(self) -> bool:
        return any(cores < self.board.cores for cores, *_ in self.state)


@dataclass(frozen=True, slots=True)
class CorePlanner(Planner):
    device_type: str
    kind: SliceKind
    policy: str
    scale: float

    def plannable(self, device_request: DeviceRequest) -> bool:
        return True

    def lay_out(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[tuple[int, Partition] | None]:
        known = (self._node(pods, number, node) for number, node in enumerate(nodes) if node.inventory.cards)
        chosen = few_of_a_sort(known, len(pods), _Node.sort, _Node.in_use)
        chosen = few_of_a_sort(chosen, MOST_NODES, lambda node: node.may, _Node.in_use)
        wants = []
        for number, pod in enumerate(pods):
            want: CoreRequest = pod.device_request.detail
            wants.append(Want(want, want.cores, frozenset(at for at, node in enumerate(chosen) if number in node.may), pod.must))
        boards: list[tuple[Board, Hashable]] = [(node.board, node.state) for node in chosen]
        return [None if spot is None else (chosen[spot[0]].number, spot[1]) for spot in lay_out(wants, boards, STEPS_IN_A_CYCLE)]

    def _node(self, pods: Sequence[Planned], number: int, node: NodeCards) -> _Node:
        known = chips_of(node, self.kind)
        state = sorted(shut(chip.state) if chip.closed else (chip.cores, chip.cpus, chip.state) for chip in known)
        may = frozenset(at for at, pod in enumerate(pods) if number in pod.nodes)
        return _Node(number, NodeBoard(self.kind, node.inventory.cards[0].total, self.policy), tuple(state), may)

    def fit(self, device_request: DeviceRequest, cards: NodeCards, where: Partition) -> Fit | None:
        found = as_planned(device_request.detail, cards, self.kind, where.template, where.chip)
        return None if found is None else fit_of(self.device_type, found, cards, self.scale)
