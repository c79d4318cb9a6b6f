"""Ascend chips cut on demand as a device type: each method is one step of the protocol, described in this folder.

Pods that want AI cores, laid out together over the nodes (``devices/layout.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from pumice.devices.ascend_mindcluster.arguments import CoreArguments
from pumice.devices.ascend_mindcluster.device_request import STATIC_ONLY, CoreRequest, core_request
from pumice.devices.ascend_mindcluster.fit import (
    AS_REQUESTED,
    MOST_IDLE,
    TIE_ALONE,
    as_planned,
    chips_of,
    choose,
    explain,
    fit_of,
)
from pumice.devices.ascend_mindcluster.inventory import (
    EARLY,
    UNKNOWN_GROUP,
    Facts,
    chip_inventory,
    chip_state,
    container_device_of,
    in_the_making,
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
    ReportSource,
    Series,
    Tunables,
)
from pumice.devices.settings import Settings
from pumice.model.cards import IN_THE_MAKING, Allocation, ContainerDevice, Usage
from pumice.model.hardware.npu import SliceKind, SliceTemplate
from pumice.model.refusal import FitError, Refusal, Short
from pumice.wire.ascend_hami import PREDICATE_TIME
from pumice.wire.device_reports import GATHERED_LABEL, GATHERED_NAMESPACE, OWN_LABEL, read_gathered, read_own
from pumice.wire.mindcluster import (
    NPU_CORE,
    REAL,
    Assignment,
    chip_name,
    chip_number,
    parse_assignment,
    parse_real_slice,
    parse_whole_chips,
    render_mindcluster_binding,
    whole_chips,
)
from pumice.wire.objects import Node, Pod, is_admitted, is_mirror

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
                yield _less(self, state, template, chip), Partition(template, chip), number * self.left(self._empty_chip)

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
def _less(board: NodeBoard, state: Chips, template: SliceTemplate, chip: Left) -> Chips:
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


class CoreRanking(Ranking):
    """The score of nodes for AI cores. ``scale``: what the score is multiplied with."""

    def __init__(self, kind: SliceKind, scale: float) -> None:
        self.kind, self.scale = kind, scale

    def vector(self, device_request: DeviceRequest, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        want: CoreRequest = device_request.detail
        if columns.state is None:
            return None
        present = columns.total > 0
        state: Any = columns.state.clip(0)
        cores: Any = (columns.total - columns.memory) * columns.flags
        idle = (MOST_IDLE - cores.sum(axis=1)).clip(0)
        if want.whole:
            free = columns.flags & present & untouched(columns.shares, state)
            size = columns.total.max(axis=1)
            may = (free.sum(axis=1) * size >= want.cores) & (want.cores % size.clip(1) == 0)
            return may, self.scale * (AS_REQUESTED + idle) * may
        cpus, may, score = self._cpus(columns) - columns.cores, idle < 0, 0.0 * idle
        for template in reversed(want.templates):  # the first that fits decides
            fits = (columns.flags & takes(template, cores, cpus, state)).any(axis=1)
            settled = ((state & others_made(self.kind, template)) == 0).all(axis=1)
            may = may & (fits == 0) | fits & settled
            score = score * (fits == 0) + fits * (AS_REQUESTED * (template is want.templates[0]) + idle)
        return may, self.scale * score * may

    def _cpus(self, columns: Columns) -> Any:
        """AI CPUs of each chip, by its AI cores; one number where all kinds of them have as many."""
        first, *others = self.kind.cpus.items()
        found: Any = first[1]
        for cores, cpus in others:
            if cpus != first[1]:
                found = found + (cpus - first[1]) * (columns.total == cores)
        return found

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        return chip_state(usage, self.kind, listed=facts.listed[card])


GATHERED = ReportSource(GATHERED_NAMESPACE, GATHERED_LABEL, read_gathered)
OWN = ReportSource("", OWN_LABEL, read_own)


class AscendMindCluster(DeviceSharing):
    """One kind of chip that is cut by AI cores."""

    series = Series("pumice_npu_chip", "pumice_npu", "ai_cores", "ai_cpus")
    allocation_keys = (NPU_CORE, PREDICATE_TIME)

    def __init__(self, settings: Settings, kind: SliceKind) -> None:
        self.arguments, self.kind, self.name = settings.of(CoreArguments), kind, kind.device_type
        self._scale = TIE_ALONE if settings.weight is None else 1.0
        self.ranking = CoreRanking(self.kind, self._scale)
        self.planner = CorePlanner(self.name, self.kind, self.arguments.policy, self._scale)
        self.reports = (GATHERED if self.arguments.gathered else OWN,)

    @property
    def tunables(self) -> Tunables:
        return Tunables(NPU_CORE)

    def resources(self) -> frozenset[str]:
        return frozenset((NPU_CORE,))

    def resources_only(self, pod: Pod) -> bool:
        return True

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        want = core_request(pod, self.kind)
        if isinstance(want, CoreRequest):
            return Refusal(NPU_CORE, STATIC_ONLY) if self.arguments.preset else DeviceRequest(self.name, (self.name, want), want)
        return want

    def least_memory(self, device_request: DeviceRequest) -> int:
        want: CoreRequest = device_request.detail
        return want.cores

    def inventory(self, node: Node) -> Inventory | None:
        return chip_inventory(
            node, self.kind, self_maintained=self.arguments.self_maintained, avoid_unhealthy=self.arguments.avoid_unhealthy
        )

    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        found = choose(device_request.detail, cards, self.kind, self.arguments.policy)
        return explain(device_request.detail, cards, self.kind) if found is None else fit_of(self.name, found, cards, self._scale)

    def quick(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | None:
        found = choose(device_request.detail, cards, self.kind, self.arguments.policy)
        return None if found is None else fit_of(self.name, found, cards, self._scale)

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        chips = [chip_number(self.kind.name, container_device.uuid) for container_device in allocation.container_devices]
        slot = allocation.container_devices[0].slot
        assignment = Assignment(tuple(chip for chip in chips if chip is not None), "" if slot is None else slot.profile)
        return render_mindcluster_binding(assignment, now_ns)

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        want = core_request(pod, self.kind)
        return replay_pod(self.name, pod, node, inventory, self.kind, want if isinstance(want, CoreRequest) else None)

    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        want: CoreRequest = device_request.detail
        return {NPU_CORE: want.cores}

    def no_devices(self, node: str) -> FitError:
        return FitError(node, Short.NO_DEVICES, f"{EARLY}: not have {NPU_CORE}", final=True)


# -- replay -----------------------------------------------------------------------------------------------------------

# The allocation that a bound pod already holds, by the scheduler's annotation and by what the node's plugin made of it.

def replay_pod(
    device_type: str, pod: Pod, node: str, inventory: Inventory, kind: SliceKind, want: CoreRequest | None
) -> Allocation | None:
    """``want``: what the pod asks for; None for one of another scheme. The pieces on chips that are not there (any more) are left
    out. A pod that the kubelet has admitted holds chips: where nothing says which, they may be any, and all are closed as long as
    it is there."""
    if pod.spec.node_name != node or is_mirror(pod):
        return None
    notes = pod.metadata.annotations
    if NPU_CORE not in notes:
        return _without(device_type, pod, node, inventory, kind, want)
    assignment = parse_assignment(notes[NPU_CORE])
    real = notes.get(REAL, "")
    template = kind.templates.get(assignment.template) if assignment else None
    if assignment is None:
        doubts = [_doubt(pod, "", f"annotation {NPU_CORE} {notes[NPU_CORE][:80]!r} names no chip")]
    elif assignment.template and template is None:
        named = chip_name(kind.name, assignment.chips[0])
        doubts = [_doubt(pod, named, f"annotation {NPU_CORE} names a template that {kind.name} does not have")]
    else:
        return _granted(device_type, pod, node, inventory, kind, want, assignment, template, real)
    return Allocation(device_type, node, (), tuple(doubts))


def _granted(
    device_type: str, pod: Pod, node: str, inventory: Inventory, kind: SliceKind, want: CoreRequest | None,
    assignment: Assignment, template: SliceTemplate | None, real: str,
) -> Allocation:  # fmt: skip
    doubts, group = [], IN_THE_MAKING
    if template is not None and real:
        made = parse_real_slice(kind.name, real)
        group = made.group if made is not None else UNKNOWN_GROUP
        if made is None or (made.chip, made.word) != (assignment.chips[0], template.word):
            what = f"annotation {REAL} {real[:80]!r} is not what annotation {NPU_CORE} asked the plugin for"
            where = {assignment.chips[0], *([made.chip] if made is not None else ())}
            doubts += [_doubt(pod, chip_name(kind.name, chip), what) for chip in sorted(where)]
    if want is not None and (reason := _contradiction(want, assignment, template)):
        doubts += [_doubt(pod, chip_name(kind.name, chip), reason) for chip in assignment.chips]
    container_devices = _container_devices(inventory, kind, assignment.chips, template, group)
    given, missing = (container_devices,) if container_devices else (), _unregistered(inventory, kind, assignment.chips)
    return _settled(Allocation(device_type, node, given, tuple(doubts), unregistered=missing))


def _container_devices(
    inventory: Inventory, kind: SliceKind, chips: tuple[int, ...], template: SliceTemplate | None, group: int
) -> tuple[ContainerDevice, ...]:
    facts: Facts = inventory.config
    names = dict.fromkeys(chip_name(kind.name, chip) for chip in chips)
    named = [facts.by_uuid[name] for name in names if name in facts.by_uuid]
    return tuple(container_device_of(inventory.cards[place], template, facts.cpus, group) for place in named)


def _unregistered(inventory: Inventory, kind: SliceKind, chips: tuple[int, ...]) -> tuple[str, ...]:
    names = dict.fromkeys(chip_name(kind.name, chip) for chip in chips)
    return tuple(name for name in names if name not in inventory.config.by_uuid)


def _settled(allocation: Allocation) -> Allocation:
    """Read again with every change of the pod while its slice is in the making."""
    if not in_the_making(allocation):
        return allocation
    return replace(allocation, pending=True)


def _contradiction(want: CoreRequest, assignment: Assignment, template: SliceTemplate | None) -> str:
    if len(set(assignment.chips)) < len(assignment.chips):
        return f"annotation {NPU_CORE} names a chip twice"
    if template is not None and template.cores != want.cores:
        return f"annotation {NPU_CORE} names {template.name} where {want.cores} AI cores were asked for"
    if template is None and not want.whole:
        return f"annotation {NPU_CORE} names whole chips where {want.cores} AI cores were asked for"
    return ""


def _without(
    device_type: str, pod: Pod, node: str, inventory: Inventory, kind: SliceKind, want: CoreRequest | None
) -> Allocation | None:
    """A pod that this scheduler gave nothing: one with whole chips of the other scheme, or one of which nothing is known."""
    chips = parse_whole_chips(kind.name, pod.metadata.annotations.get(whole_chips(kind.name), ""))
    if want is None and chips:
        container_devices = _container_devices(inventory, kind, chips, None, IN_THE_MAKING)
        given, missing = (container_devices,) if container_devices else (), _unregistered(inventory, kind, chips)
        return Allocation(device_type, node, given, unregistered=missing)
    if want is None or not is_admitted(pod):
        return None
    return Allocation(
        device_type,
        node,
        (),
        (_doubt(pod, "", f"it runs with {want.cores} AI cores and has no annotation {NPU_CORE}"),),
    )


def _doubt(pod: Pod, card: str, text: str) -> Refusal:
    return Refusal(card, f"pod {pod.key}: {text}")
