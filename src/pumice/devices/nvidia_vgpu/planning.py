"""Pods that want one MIG slice each, laid out together (``devices/layout.py``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pumice.devices.layout import STEPS_IN_A_CYCLE, Board, Want, few_of_a_sort, lay_out
from pumice.devices.nvidia_vgpu.device_request import VgpuRequest
from pumice.devices.nvidia_vgpu.draft import Draft, draft_of, passes
from pumice.devices.nvidia_vgpu.fit import closed_cards, fit_node
from pumice.devices.nvidia_vgpu.inventory import Facts
from pumice.devices.nvidia_vgpu.mig import TANGLED, Choice, Geometry, Offer, remaining_value
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue, Places
from pumice.devices.nvidia_vgpu.rows import rows_of
from pumice.devices.protocol import DeviceRequest, Fit, NodeCards, Planned, Planner
from pumice.model.cards import Mode


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


class Where(Struct, frozen=True):
    """A card by its UUID; of its geometry the kind of slot, or the place (``_name``)."""

    uuid: str
    slice: Hashable


@dataclass(slots=True)
class _Card:
    """A card in MIG mode that has something to give. ``needs``: per ask that may have it, by number, so many MiB."""

    node: int
    uuid: str
    geometry: Geometry
    state: tuple[int, int]
    needs: dict[int, int]

    def sort(self) -> Hashable:
        return self.geometry.number, self.state, tuple(self.needs.items())


@dataclass(frozen=True, slots=True)
class VgpuPlanner(Planner):
    device_type: str
    catalogue: Catalogue

    def plannable(self, device_request: DeviceRequest) -> bool:
        """Nobody is where no card in MIG mode was ever seen."""
        want: VgpuRequest = device_request.detail
        if not self.catalogue.known() or want.mode not in (None, Mode.MIG.value):
            return False
        return want.is_one_share and not (want.containers[0].cores or want.group or want.rules)

    def lay_out(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[tuple[int, Any] | None]:
        device_requests = list(dict.fromkeys((pod.device_request, pod.nodes) for pod in pods))
        every = (card for number, node in enumerate(nodes) for card in _cards(device_requests, number, node))
        cards = few_of_a_sort(every, len(pods), _Card.sort, lambda card: bool(card.state[1]))
        wants, numbers = [], {device_request: number for number, device_request in enumerate(device_requests)}
        for pod in pods:
            number = numbers[pod.device_request, pod.nodes]
            need = next((card.needs[number] for card in cards if number in card.needs), 0)
            may = frozenset(at for at, card in enumerate(cards) if card.needs.get(number) == need)
            wants.append(Want(need, need, may, pod.must))
        boards: list[tuple[Board, Hashable]] = [(MigBoard(card.geometry), card.state) for card in cards]
        found: list[tuple[int, Any] | None] = []
        for spot in lay_out(wants, boards, STEPS_IN_A_CYCLE):
            if spot is None:
                found.append(None)
                continue
            card = cards[spot[0]]
            found.append((card.node, Where(card.uuid, _name(card.geometry, *spot[1]))))
        return found

    def fit(self, device_request: DeviceRequest, cards: NodeCards, where: Where) -> Fit | None:
        want: VgpuRequest = device_request.detail

        def planned(geometry: Geometry, active: int, used: int, need: int) -> Offer | None:
            for group, slot in geometry.choices(active, used, need):
                if _name(geometry, group, slot) == where.slice:
                    return 0.0, group, slot
            return None

        named = replace(want, use_uuids=(where.uuid,))
        if want.use_uuids and where.uuid not in want.use_uuids:
            return None
        found = fit_node(self.device_type, named, cards, planned, explain=False)
        return found if isinstance(found, Fit) else None


def _name(geometry: Geometry, group: int, slot: int) -> Hashable:
    """Return the identity of a slice, whoever of equal ones is cut first: a place on the card, or the profile of a group."""
    if isinstance(geometry, Places):
        return geometry.place(group, slot)
    return group, geometry.groups[group].profiles[slot]


def _cards(device_requests: Sequence[tuple[DeviceRequest, frozenset[int]]], number: int, node: NodeCards) -> list[_Card]:
    """Those of a node on which some of the asks may have a slice. An ask that could have a share of another card there is not
    planned: it takes the share first."""
    facts: Facts = node.inventory.config
    draft: Draft | None = None
    found: dict[int, _Card] = {}
    for at, (device_request, nodes) in enumerate(device_requests):
        if number not in nodes:
            continue
        want: VgpuRequest = device_request.detail
        modes = rows_of(want, node.inventory.cards, facts).modes
        if [mode for mode, _ in modes] != [Mode.MIG]:
            continue
        draft = draft or draft_of(node.usages, facts, Mode.MIG)
        closed = closed_cards(want, node)
        for row in modes[0][1][0]:
            state = draft.group[row.card], draft.used[row.card]
            if row.geometry is None or row.card in closed or state[0] == TANGLED or not passes(row, 0, draft):
                continue
            uuid = node.inventory.cards[row.card].uuid
            card = found.setdefault(row.card, _Card(number, uuid, row.geometry, state, {}))
            card.needs[at] = row.need_mib
    return [card for card in found.values() if any(_gives(card, need) for need in card.needs.values())]


def _gives(card: _Card, need: int) -> bool:
    return next(iter(card.geometry.choices(*card.state, need)), None) is not None
