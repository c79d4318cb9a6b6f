"""Pods that want AI cores, laid out together over the nodes (``devices/layout.py``)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pumice.devices.ascend_mindcluster.ask import CoreAsk
from pumice.devices.ascend_mindcluster.chips import shut
from pumice.devices.ascend_mindcluster.fit import as_planned, chips_of, fit_of
from pumice.devices.ascend_mindcluster.node_board import Chips, Cut, NodeBoard
from pumice.devices.layout import STEPS_IN_A_CYCLE, Board, Want, few_of_a_sort, lay_out
from pumice.devices.protocol import Ask, Fit, NodeCards, Planned, Planner
from pumice.model.hardware.npu_slices import SliceKind

MOST_NODES = 8
"""That are open to the same pods: two nodes are hardly ever alike, and what fits one is found in 2 ms."""


class _Node(NamedTuple):
    """``may``: numbers of the pods that may have it."""

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
    family: str
    kind: SliceKind
    policy: str
    scale: float

    def plannable(self, ask: Ask) -> bool:
        return True

    def lay_out(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[tuple[int, Cut] | None]:
        known = (self._node(pods, number, node) for number, node in enumerate(nodes) if node.inventory.cards)
        chosen = few_of_a_sort(known, len(pods), _Node.sort, _Node.in_use)
        chosen = few_of_a_sort(chosen, MOST_NODES, lambda node: node.may, _Node.in_use)
        wants = []
        for number, pod in enumerate(pods):
            want: CoreAsk = pod.ask.detail
            wants.append(Want(want, want.cores, frozenset(at for at, node in enumerate(chosen) if number in node.may), pod.must))
        boards: list[tuple[Board, Hashable]] = [(node.board, node.state) for node in chosen]
        return [None if spot is None else (chosen[spot[0]].number, spot[1]) for spot in lay_out(wants, boards, STEPS_IN_A_CYCLE)]

    def _node(self, pods: Sequence[Planned], number: int, node: NodeCards) -> _Node:
        known = chips_of(node, self.kind)
        state = sorted(shut(chip.state) if chip.closed else (chip.cores, chip.cpus, chip.state) for chip in known)
        may = frozenset(at for at, pod in enumerate(pods) if number in pod.nodes)
        return _Node(number, NodeBoard(self.kind, node.inventory.cards[0].total, self.policy), tuple(state), may)

    def fit(self, ask: Ask, cards: NodeCards, where: Cut) -> Fit | None:
        found = as_planned(ask.detail, cards, self.kind, where.template, where.chip)
        return None if found is None else fit_of(self.family, found, cards, self.scale)
