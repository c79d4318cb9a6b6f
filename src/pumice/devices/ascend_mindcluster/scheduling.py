"""Ascend chips cut on demand as a device type: each method is one step of the protocol, described in this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pumice.devices.ascend_mindcluster.arguments import CoreArguments
from pumice.devices.ascend_mindcluster.device_request import STATIC_ONLY, CoreRequest, core_request
from pumice.devices.ascend_mindcluster.fit import AS_REQUESTED, MOST_IDLE, TIE_ALONE, choose, explain, fit_of
from pumice.devices.ascend_mindcluster.inventory import (
    EARLY,
    UNKNOWN_GROUP,
    Facts,
    chip_inventory,
    chip_state,
    container_device_of,
    in_the_making,
    others_made,
    takes,
    untouched,
)
from pumice.devices.ascend_mindcluster.planning import CorePlanner
from pumice.devices.protocol import (
    Columns,
    DeviceRequest,
    DeviceSharing,
    Fit,
    Inventory,
    NodeCards,
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
