"""Pods that want one NPU or a part of one each, laid out together (``devices/layout.py``)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pumice.devices.ascend_hami.ask import ContainerAsk, NpuAsk
from pumice.devices.ascend_hami.chip_board import ChipBoard, Left, board_of
from pumice.devices.ascend_hami.fit import choose, misfit, node_score, pieces_of, slices_on
from pumice.devices.layout import STEPS_IN_A_CYCLE, Board, Want, few_of_a_sort, lay_out
from pumice.devices.protocol import Ask, Fit, NodeCards, Planned, Planner
from pumice.model.cards import Card, Grant
from pumice.model.hardware.npu import NpuChip


class _Chip(NamedTuple):
    """``may``: numbers of the pods that may have it or a part of it."""

    node: int
    uuid: str
    board: ChipBoard
    state: Left
    may: frozenset[int]

    def sort(self) -> Hashable:
        return self.board, self.state, self.may


@dataclass(frozen=True, slots=True)
class NpuPlanner(Planner):
    family: str
    chip: NpuChip

    def plannable(self, ask: Ask) -> bool:
        want: NpuAsk = ask.detail
        return bool(self.chip.templates) and not want.soft and len(want.filled) == 1 and want.filled[0].count == 1

    def lay_out(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[tuple[int, str] | None]:
        chips = few_of_a_sort(self._chips(pods, nodes), len(pods), _Chip.sort, lambda chip: bool(chip.state.held))
        wants = []
        for number, pod in enumerate(pods):
            slot = _slot(pod.ask)
            may = frozenset(at for at, chip in enumerate(chips) if number in chip.may)
            wants.append(Want(slot, slot.memory or self.chip.memory, may, pod.must))
        boards: list[tuple[Board, Hashable]] = [(chip.board, chip.state) for chip in chips]
        spots = lay_out(wants, boards, STEPS_IN_A_CYCLE)
        return [None if spot is None else (chips[spot[0]].node, chips[spot[0]].uuid) for spot in spots]

    def _chips(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[_Chip]:
        """Those of which some pod may have something."""
        alike: dict[Ask, set[int]] = {}
        for number, pod in enumerate(pods):
            alike.setdefault(pod.ask, set()).add(number)
        found = []
        for at, node in enumerate(nodes):
            here = {number for number, pod in enumerate(pods) if at in pod.nodes}
            open_to = [(ask, numbers & here) for ask, numbers in alike.items() if numbers & here]
            for card in node.inventory.cards:
                takes = [numbers for ask, numbers in open_to if misfit(ask.detail, _slot(ask), card, node) is None]
                if takes:
                    board = board_of(self.chip, card.total)
                    found.append(_Chip(at, card.uuid, board, _left(card, node), frozenset().union(*takes)))
        return found

    def fit(self, ask: Ask, cards: NodeCards, where: str) -> Fit | None:
        want: NpuAsk = ask.detail
        if want.use_uuids and where not in want.use_uuids:
            return None
        chosen = choose(replace(want, use_uuids=(where,)), cards, self.chip.pairs)
        if isinstance(chosen, int):
            return None
        pieces = pieces_of(want, chosen, cards.inventory.cards)
        return Fit(Grant(self.family, cards.node, pieces), node_score(want, chosen, cards))


def _slot(ask: Ask) -> ContainerAsk:
    want: NpuAsk = ask.detail
    return want.filled[0]


def _left(card: Card, node: NodeCards) -> Left:
    usage = node.usages[card.index]
    return Left(card.total - usage.memory, card.shares - usage.shares, tuple(sorted(slices_on(usage))))
