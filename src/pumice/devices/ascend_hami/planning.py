"""Pods that want one NPU or a part of one each, laid out together (``devices/layout.py``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from pumice.devices.ascend_hami.ask import ContainerAsk, NpuAsk
from pumice.devices.ascend_hami.fit import choose, misfit, node_score, pieces_of, slices_on
from pumice.devices.ascend_hami.units import MANY, Units, units_of
from pumice.devices.layout import STEPS_IN_A_CYCLE, Board, Want, few_of_a_sort, lay_out
from pumice.devices.protocol import Ask, Fit, NodeCards, Planned, Planner
from pumice.devices.remaining import remaining
from pumice.model.cards import Card, Grant
from pumice.model.hardware.npu import NpuChip


class Left(NamedTuple):
    """The rest of a chip: memory in MB and places for slices; the templates of those that are there, sorted; and how many may
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
