"""One type of Ascend NPU in HAMi's mode as a device type: each method is one step of the protocol, described in this folder."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from pumice.devices.ascend_hami.device_request import ContainerRequest, NpuRequest, npu_request
from pumice.devices.ascend_hami.fit import (
    REFUSED,
    RING_SCORE,
    allocation_of,
    choose,
    container_device_of,
    explain,
    fit_error,
    in_the_making,
    node_score,
    slices_on,
    unmade_on,
)
from pumice.devices.ascend_hami.inventory import ALL_CORES, MANY, Facts, Units, npu_inventory, units_of
from pumice.devices.card_policies import POLICIES, TIE
from pumice.devices.layout import STEPS_IN_A_CYCLE, Board, Want, few_of_a_sort, lay_out
from pumice.devices.protocol import (
    Columns,
    DeviceRequest,
    DeviceSharing,
    Fit,
    Inventory,
    NodeCards,
    Planned,
    Planner,
    Ranking,
    Series,
    Tunables,
)
from pumice.devices.settings import Settings
from pumice.model.cards import Allocation, Card, ContainerDevice, Usage, remaining
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import FitError, Refusal, Short
from pumice.wire import names
from pumice.wire.ascend_hami import (
    COMMON_KEYS,
    NODE,
    SOFT,
    NpuDevice,
    NpuDevices,
    RuntimeNpu,
    allocated_key,
    nouse_key,
    parse_npu_devices,
    parse_runtime,
    register_key,
    render_npu_binding,
    runtime_key,
    to_allocate_key,
    use_key,
)
from pumice.wire.device_config import DeviceConfig
from pumice.wire.npu_config import shipped
from pumice.wire.objects import Node, Pod, is_admitted, is_mirror

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SOFT_NODE, HOLDS_SOFT, RINGED, FIRST_TEMPLATE = 1, 2, 4, 8
"""Bits of a card's state; from the last on one for each template of which no slice can be made there any more."""
MOST_TEMPLATES = 27


class NpuRanking(Ranking):
    """Pods that want several cards, or name some, are looked at node by node."""

    def __init__(self, chip: NpuChip) -> None:
        self._units = units_of(chip)
        self._bits = {t.name: FIRST_TEMPLATE << at for at, t in enumerate(chip.templates[:MOST_TEMPLATES])}

    def vector(self, device_request: DeviceRequest, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        want: NpuRequest = device_request.detail
        if len(want.filled) != 1 or want.filled[0].count != 1 or columns.state is None or want.use_uuids or want.nouse_uuids:
            return None
        slot, state = want.filled[0], columns.state.clip(0)  # -1: no card
        if slot.template and slot.template not in self._bits:
            return None
        idle = columns.total - columns.memory
        may: Any = columns.flags & (columns.shares < columns.share_limit)
        may &= (columns.shares == 0) & (idle >= columns.total) if slot.whole else idle >= slot.memory
        if want.soft:
            may &= (state & SOFT_NODE) > 0
            may &= slot.cores <= ALL_CORES - columns.cores
            if slot.cores == ALL_CORES:
                may &= columns.shares == 0
            elif not slot.cores:
                may &= columns.cores < ALL_CORES
        elif not slot.whole:
            may &= (state & (SOFT_NODE | HOLDS_SOFT | self._bits[slot.template])) == 0
        ring: Any = RING_SCORE * ((state & RINGED) > 0).any(axis=1)
        known = POLICIES.get(want.policy)
        if known is None:
            return may.any(axis=1), ring
        best = (may * known.score(columns.memory, columns.total.clip(1), columns.shares)).max(axis=1)  # it will be taken
        used, total = columns.memory.sum(axis=1), columns.total.sum(axis=1).clip(1)
        shares, limit = columns.shares.sum(axis=1), columns.share_limit.sum(axis=1).clip(1)
        return may.any(axis=1), best + ring + TIE * known.tie(used, total, shares, limit)

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        allocated = slices_on(usage)
        unmade = unmade_on(usage)
        full = sum(bit for name, bit in self._bits.items() if allocated and self._units.missing(name, allocated, unmade))
        return SOFT_NODE * facts.soft + HOLDS_SOFT * (SOFT in allocated) + RINGED * (facts.rings is not None) + full


class AscendHami(DeviceSharing):
    """One chip of the device configuration; ``soft``: what nodes do that do not say how they share their cards."""

    lock = names.NODE_LOCK_HAMI
    series = Series("pumice_vnpu_card", "pumice_vnpu")

    def __init__(self, chip: NpuChip, settings: Settings, *, soft: bool = False) -> None:
        self.chip, self.settings, self.soft = chip, settings, soft
        self.name = chip.word
        self.ranking = NpuRanking(chip)
        self.planner = NpuPlanner(chip.word, chip)
        self.served_elsewhere = frozenset((chip.resource,))
        self.register = register_key(chip.word)
        self.allocation_keys = (
            to_allocate_key(chip.word), allocated_key(chip.word), runtime_key(chip.word), *COMMON_KEYS,
        )  # fmt: skip

    @classmethod
    def of_config(cls, config: DeviceConfig | None, settings: Settings) -> list[DeviceSharing]:
        """A device type for each chip; those that are known without a configuration where it says nothing of NPUs."""
        found = (None if config is None else config.vnpus) or shipped()
        return [cls(chip, settings, soft=found.soft) for chip in found.chips]

    @property
    def tunables(self) -> Tunables:
        chip = self.chip
        return Tunables(
            chip.resource, chip.memory_resource, chip.core_resource,
            mode=names.VNPU_MODE, modes=(SOFT,), forbids=(use_key(chip.word), nouse_key(chip.word)),
        )  # fmt: skip

    @property
    def steering(self) -> Mapping[str, tuple[str, ...]]:
        return {names.VNPU_MODE: (SOFT,), use_key(self.chip.word): (), nouse_key(self.chip.word): ()}

    def remarks(self, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if self.chip.memory_resource in limits and self.chip.resource not in limits:
            yield self.chip.memory_resource, f"memory without a card gets nothing; add {self.chip.resource}: 1"

    def resources(self) -> frozenset[str]:
        return frozenset((self.chip.resource, self.chip.memory_resource, self.chip.core_resource))

    def parameters(self) -> frozenset[str]:
        """Resources that no node offers: they say what of a card is wanted."""
        return frozenset((self.chip.memory_resource, self.chip.core_resource))

    def resources_only(self, pod: Pod) -> bool:
        return self.steering.keys().isdisjoint(pod.metadata.annotations)

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        want = npu_request(pod, self.chip, self.settings.policy)
        return DeviceRequest(self.name, (self.name, want), want) if isinstance(want, NpuRequest) else want

    def least_memory(self, device_request: DeviceRequest) -> int:
        """Of whole cards that is not known: they differ."""
        want: NpuRequest = device_request.detail
        return sum(slot.count * slot.memory for slot in want.filled) if all(slot.memory for slot in want.filled) else 0

    def inventory(self, node: Node) -> Inventory | None:
        return npu_inventory(node, self.chip, self.soft)

    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        if not cards.inventory.cards:
            return self.no_devices(cards.node)
        found = choose(device_request.detail, cards, self.chip.pairs)
        if isinstance(found, int):
            return explain(device_request.detail, found, cards)
        allocation = allocation_of(self.name, device_request.detail, found, cards)
        return Fit(allocation, node_score(device_request.detail, found, cards))

    def quick(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | None:
        found = choose(device_request.detail, cards, self.chip.pairs) if cards.inventory.cards else 0
        if isinstance(found, int):
            return None
        allocation = allocation_of(self.name, device_request.detail, found, cards)
        return Fit(allocation, node_score(device_request.detail, found, cards))

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        devices = [[self._device(container_device) for container_device in slot] for slot in allocation.containers]
        return render_npu_binding(self.chip.word, allocation.node, devices, map(_reported, allocation.container_devices), now_ns)

    def _device(self, container_device: ContainerDevice) -> NpuDevice:
        return NpuDevice(container_device.uuid, self.chip.word, container_device.asked, container_device.cores)

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        want = npu_request(pod, self.chip, "")
        return replay_pod(self.name, pod, node, inventory, self.chip, want if isinstance(want, NpuRequest) else None, handed)

    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        """Cards alone count for queues; the memory of a whole card depends on the card."""
        return {self.chip.resource: sum(slot.count for slot in device_request.detail.filled)}

    def no_devices(self, node: str) -> FitError:
        return FitError(node, Short.NO_DEVICES, f"{REFUSED}: no {self.chip.word} on the node")


def _reported(container_device: ContainerDevice) -> RuntimeNpu:
    """Whole cards are told by their UUID alone."""
    if container_device.slot is None:
        return RuntimeNpu(container_device.uuid)
    if container_device.slot.profile == SOFT:
        return RuntimeNpu(container_device.uuid, memory=container_device.asked, cores=container_device.cores)
    return RuntimeNpu(container_device.uuid, container_device.slot.profile)


# -- The allocation that a bound pod already holds, by its annotations (Volcano pkg/scheduler/api/devices/ascend/hami)
# ----------------------


def replay_pod(
    device_type: str, pod: Pod, node: str, inventory: Inventory, chip: NpuChip, want: NpuRequest | None, handed: str = ""
) -> Allocation | Refusal | None:
    """``want``: what its containers ask for, which nobody can change afterwards. A pod that the kubelet has admitted holds cards:
    where its annotation cannot name them, they may be any of the node's, and all are closed as long as it is there."""
    if pod.spec.node_name != node or is_mirror(pod):
        return None
    notes = pod.metadata.annotations
    written = notes.get(allocated_key(chip.word), "") if notes.get(NODE, node) == node else ""
    text = handed or written
    decoded = parse_npu_devices(text) if text else NpuDevices()
    if handed and written:  # containers that the plugin has not served yet may start at any moment
        pairs = zip_longest(decoded.slots, parse_npu_devices(written).slots, fillvalue=())
        decoded = NpuDevices(tuple(by_plugin or told for by_plugin, told in pairs), decoded.doubts)
    reason = ""
    if want is not None and not handed and is_admitted(pod):
        reason = _contradiction(want, decoded, inventory.config)
    elif not text:
        return None
    doubts = [Refusal(d.field, f"pod {pod.key}: {d.text}") for d in decoded.doubts if d.field in inventory.config.by_uuid]
    if reason:
        doubts.append(Refusal("", f"pod {pod.key} holds NPUs and nothing says for certain which: {reason}"))
    soft = want is not None and want.soft
    reported = {entry.uuid: entry.template for entry in parse_runtime(notes.get(runtime_key(chip.word), "")) or ()}
    slots, unregistered = [], []
    for devices in decoded.slots:
        allocated = []
        for device in devices:
            place = inventory.config.by_uuid.get(device.uuid)
            if place is None:
                unregistered.append(device.uuid)
                continue
            card = inventory.cards[place]
            kind = SOFT if soft else _template(device, card, chip, reported)
            made = pod.status.phase == "Running"  # all its containers have started: the runtime has made their slices
            allocated.append(container_device_of(card, device.memory, device.cores, kind, inventory.config.units, made=made))
        slots.append(tuple(allocated))
    if not (any(slots) or unregistered):
        return Allocation(device_type, node, (), tuple(doubts)) if doubts else None
    given, starting = tuple(slots) if any(slots) else (), in_the_making(slots)
    return Allocation(device_type, node, given, tuple(doubts), starting=starting, unregistered=tuple(unregistered))


def _template(device: NpuDevice, card: Card, chip: NpuChip, reported: Mapping[str, str]) -> str:
    """The configuration may have changed since: then what the runtime was told counts."""
    if device.memory >= card.total:
        return ""
    if name := chip.slice_of(device.memory) or reported.get(device.uuid, ""):
        return name
    size = chip.cut(device.memory)
    return "" if size is None else size.name


def _contradiction(want: NpuRequest, decoded: NpuDevices, facts: Facts) -> str:
    """Return why these cannot be the pod's cards; empty where they can. Volcano writes no slots for containers without a
    request, and none for init containers; HAMi and we do."""
    if decoded.doubts:
        return decoded.doubts[0].text
    filled, wanted = decoded.filled, want.filled
    if len(filled) != len(wanted):
        return f"{len(filled)} containers are given cards and {len(wanted)} ask for some"
    for slot, devices in zip(wanted, filled, strict=True):
        if len(devices) != slot.count:
            return f"{len(devices)} cards are named where {slot.count} were asked for"
        if len({device.uuid for device in devices}) < len(devices):
            return f"card {devices[0].uuid[:100]} is named more than once"
        for device in devices:
            if device.uuid not in facts.by_uuid:
                return f"{device.uuid[:100]!r} is no card of the node"
            if device.memory < slot.memory or (want.soft and device.cores != slot.cores):
                named, requested = f"{device.memory} MB and cores {device.cores}", f"{slot.memory} MB and cores {slot.cores}"
                return f"{named} are named where {requested} were asked for"
    return ""


# -- Pods that want one NPU or a part of one each, laid out together (``devices/layout.py``) --------------------------


class Left(NamedTuple):
    """The rest of a chip: memory in MB and places for slices; the templates of those that are there, sorted; and how many may
    come to be there for the sake of those that are planned."""

    idle: int
    places: int
    allocated: tuple[str, ...] = ()
    most: int = MANY


@dataclass(frozen=True, slots=True, eq=False)
class ChipBoard:
    """A chip as a plan sees it. ``memory``: of the chip as its node registers it. In which order slices are made is not for a
    plan to say: none takes the vGroups that another one of them wants."""

    chip: NpuChip
    units: Units
    memory: int

    def ways(self, state: Left, need: ContainerRequest) -> Iterable[tuple[Left, str, float]]:
        if need.whole:
            if not state.allocated and state.idle >= self.memory:
                yield Left(0, 0), "", 0.0
            return
        most = min(state.most, self.units.most_with(need.template))
        if need.memory > state.idle or not state.places or len(state.allocated) >= most:
            return
        if self.units.missing(need.template, state.allocated) is None:
            allocated = tuple(sorted((*state.allocated, need.template)))
            yield Left(state.idle - need.memory, state.places - 1, allocated, most), need.template, 0.0

    def left(self, state: Left) -> float:
        """In MB, over all templates and whole chips, each as frequent as the others."""
        device_requests = (
            ContainerRequest(1),
            *(ContainerRequest(1, template.memory, template.name) for template in self.chip.templates),
        )
        return remaining(
            ((device_request, device_request.memory or self.memory, 1.0) for device_request in device_requests),
            lambda device_request: _room(self, state, device_request),
        )


@lru_cache(maxsize=256)
def board_of(chip: NpuChip, memory: int) -> ChipBoard:
    """The same one for cards that are alike: what is tabulated is found by it without comparing configurations."""
    return ChipBoard(chip, units_of(chip), memory)


@lru_cache(maxsize=65536)
def _room(board: ChipBoard, state: Left, device_request: ContainerRequest) -> int:
    """Return how many of them the chip takes yet."""
    after = next(iter(board.ways(state, device_request)), None)
    return 0 if after is None else 1 + _room(board, after[0], device_request)


class _Chip(NamedTuple):
    """A chip in a plan. ``may``: numbers of the pods that may have it or a part of it."""

    node: int
    uuid: str
    board: ChipBoard
    state: Left
    may: frozenset[int]

    def sort(self) -> Hashable:
        return self.board, self.state, self.may


@dataclass(frozen=True, slots=True)
class NpuPlanner(Planner):
    device_type: str
    chip: NpuChip

    def plannable(self, device_request: DeviceRequest) -> bool:
        want: NpuRequest = device_request.detail
        return bool(self.chip.templates) and not want.soft and len(want.filled) == 1 and want.filled[0].count == 1

    def lay_out(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[tuple[int, str] | None]:
        chips = few_of_a_sort(self._chips(pods, nodes), len(pods), _Chip.sort, lambda chip: bool(chip.state.allocated))
        wants = []
        for number, pod in enumerate(pods):
            slot = _slot(pod.device_request)
            may = frozenset(at for at, chip in enumerate(chips) if number in chip.may)
            wants.append(Want(slot, slot.memory or self.chip.memory, may, pod.must))
        boards: list[tuple[Board, Hashable]] = [(chip.board, chip.state) for chip in chips]
        spots = lay_out(wants, boards, STEPS_IN_A_CYCLE)
        return [None if spot is None else (chips[spot[0]].node, chips[spot[0]].uuid) for spot in spots]

    def _chips(self, pods: Sequence[Planned], nodes: Sequence[NodeCards]) -> list[_Chip]:
        """Those of which some pod may have something."""
        alike: dict[DeviceRequest, set[int]] = {}
        for number, pod in enumerate(pods):
            alike.setdefault(pod.device_request, set()).add(number)
        found = []
        for at, node in enumerate(nodes):
            here = {number for number, pod in enumerate(pods) if at in pod.nodes}
            open_to = [(device_request, numbers & here) for device_request, numbers in alike.items() if numbers & here]
            for card in node.inventory.cards:
                takes = [
                    numbers
                    for device_request, numbers in open_to
                    if fit_error(device_request.detail, _slot(device_request), card, node) is None
                ]
                if takes:
                    board = board_of(self.chip, card.total)
                    found.append(_Chip(at, card.uuid, board, _left(card, node), frozenset().union(*takes)))
        return found

    def fit(self, device_request: DeviceRequest, cards: NodeCards, where: str) -> Fit | None:
        want: NpuRequest = device_request.detail
        if want.use_uuids and where not in want.use_uuids:
            return None
        chosen = choose(replace(want, use_uuids=(where,)), cards, self.chip.pairs)
        if isinstance(chosen, int):
            return None
        return Fit(allocation_of(self.device_type, want, chosen, cards), node_score(want, chosen, cards))


def _slot(device_request: DeviceRequest) -> ContainerRequest:
    want: NpuRequest = device_request.detail
    return want.filled[0]


def _left(card: Card, node: NodeCards) -> Left:
    usage = node.usages[card.index]
    most = node.inventory.config.units.most_beside(unmade_on(usage))
    return Left(card.total - usage.memory, card.shares - usage.shares, tuple(sorted(slices_on(usage))), most)
