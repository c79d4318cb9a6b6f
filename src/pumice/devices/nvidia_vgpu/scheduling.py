"""The scheduler side of vGPU: each method is one step of the contract (``devices/protocol.py``), worked out elsewhere in this
folder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.nvidia_vgpu.assignment import Statement, contradiction, statement
from pumice.devices.nvidia_vgpu.device_request import (
    STEERING,
    UNSET,
    VgpuRequest,
    constraints_of,
    containers_of,
    remarks,
    steering,
    tunables,
)
from pumice.devices.nvidia_vgpu.draft import Draft
from pumice.devices.nvidia_vgpu.fit import fit_node, hopeless
from pumice.devices.nvidia_vgpu.fit_error import explain_node, no_devices
from pumice.devices.nvidia_vgpu.inventory import Facts, inventory_of
from pumice.devices.nvidia_vgpu.mig import STATES, Chooser, chooser
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.nvidia_vgpu.planning import VgpuPlanner
from pumice.devices.nvidia_vgpu.rows import costliest
from pumice.devices.nvidia_vgpu.search import STEPS
from pumice.devices.protocol import (
    Columns,
    DeviceRequest,
    DeviceSharing,
    Fit,
    Inventory,
    Marks,
    NodeCards,
    Ranking,
    Series,
    SlotView,
    Tunables,
    WithoutConstraints,
)
from pumice.devices.settings import Rule, Settings
from pumice.model.cards import Allocation, Card, ContainerDevice, Mode, Usage
from pumice.model.refusal import FitError, Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig, NvidiaConfig
from pumice.wire.nvidia_vgpu import PodDevice, PodDevices, group_key, parse_pod_devices, render_binding
from pumice.wire.objects import Node, Pod, PodSpec, is_admitted, is_mirror

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.devices.fragmentation import CardPart


@dataclass(frozen=True, slots=True)
class VgpuRanking(Ranking):
    """The score of nodes for vGPUs. ``remembered`` gives equal asks one value."""

    catalogue: Catalogue
    choose: Chooser | None
    remembered: Callable[[VgpuRequest], DeviceRequest]

    def vector(self, device_request: DeviceRequest, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        from pumice.devices.nvidia_vgpu.vector import rank_nodes

        return rank_nodes(device_request.detail, columns, self.catalogue, self.choose)

    def without_constraints(self, device_request: DeviceRequest) -> WithoutConstraints | None:
        want: VgpuRequest = device_request.detail
        if not (want.group or want.rules or want.use_uuids or want.nouse_uuids):
            return None
        uuids = frozenset(want.use_uuids or want.nouse_uuids)
        plain = replace(want, use_uuids=(), nouse_uuids=(), group="", rules=frozenset())
        return WithoutConstraints(None if want.use_uuids else self.remembered(plain), uuids, want.group, want.rules)

    def part(self, device_request: DeviceRequest) -> tuple[CardPart | None, str]:
        """Of several containers: as many cards as all together, and of each as much as the largest. A pod that wants slots
        takes no share of a card."""
        from pumice.devices.fragmentation import CardPart

        want: VgpuRequest = device_request.detail
        if want.mode not in (None, Mode.HAMI_CORE.value):
            return None, want.node_policy
        count = sum(container.count for container in want.containers)
        largest = max(want.containers, key=lambda container: (container.percent != UNSET, container.percent, container.memory))
        cores = max(container.cores for container in want.containers)
        return CardPart(count, largest.memory, largest.percent, cores), want.node_policy

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        geometry = facts.geometries[card] if card < len(facts.geometries) else None
        if geometry is None:
            return -1
        state = geometry.number_of(*geometry.allocated(usage))
        return state if state < 0 else geometry.number * STATES + state

    def empty_kind(self, inventory: Inventory) -> Hashable:
        facts: Facts = inventory.config
        return facts.geometries


def quota_of(want: VgpuRequest, config: NvidiaConfig) -> dict[str, int]:
    """The memory of a percentage is known only on a card: see ``VgpuLateQuota``."""
    return {
        config.resource_count_name: sum(x.count for x in want.containers),
        config.resource_memory_name: sum(x.count * x.memory for x in want.containers if x.percent == UNSET),
        config.resource_core_name: sum(x.count * x.cores for x in want.containers),
    }


class VgpuLateQuota(Struct, frozen=True):
    """The memory, where the ask does not say it."""

    config: NvidiaConfig

    def known_late(self, device_request: DeviceRequest) -> bool:
        """Slots are larger than what was asked for, and the mode may be left to the node."""
        want: VgpuRequest = device_request.detail
        return want.mode != Mode.HAMI_CORE or any(container.percent != UNSET for container in want.containers)

    def card_kinds(self, inventory: Inventory) -> frozenset[Hashable]:
        """(memory units, geometry) of its cards."""
        facts: Facts = inventory.config
        return frozenset((card.total, facts.geometries[card.index]) for card in inventory.cards)

    def bound(self, device_request: DeviceRequest, kinds: Iterable[Any]) -> dict[str, int]:
        """Of a card in MIG mode its largest slot: which groups are in use when the pod's turn comes, nobody knows."""
        want: VgpuRequest = device_request.detail
        cards = [(total, geometry) for total, geometry in kinds if geometry is None or want.mode != Mode.HAMI_CORE]
        memory = sum(
            container.count * max((costliest(container, total, geometry) for total, geometry in cards), default=0)
            for container in want.containers
        )
        return {self.config.resource_memory_name: memory}

    def of_allocation(self, allocation: Allocation) -> dict[str, int]:
        """The memory that the cards give: of a slot its size, not what was asked of it (E-30)."""
        return {
            self.config.resource_memory_name: sum(
                container_device.memory for container_device in allocation.container_devices
            )
        }


_NONE: frozenset[int] = frozenset()
"""One for all: empty sets of immutable kind are not shared by Python itself."""


def matching_rules(rules: Sequence[Rule], labels: Mapping[str, str]) -> frozenset[int]:
    """The numbers of the rules whose labels the pod carries, all with equal values."""
    if not rules or not labels:
        return _NONE
    return frozenset(
        number for number, rule in enumerate(rules) if all(labels.get(label) == value for label, value in rule)
    )


ASKS_REMEMBERED = 100_000
STATEMENTS_REMEMBERED = 10_000


class NvidiaVgpu(DeviceSharing):
    """HAMi-core and MIG under one configuration. Stateless but for caches; a new configuration makes a new object."""

    name = "nvidia-vgpu"
    lock = names.NODE_LOCK_VGPU
    register = names.NODE_VGPU_REGISTER
    series = Series("volcano_vgpu_device", "pumice_vgpu_device")
    allocation_keys = (
        names.VGPU_NODE, names.VGPU_TIME, names.VGPU_IDS, names.DEVICES_TO_ALLOCATE, names.BIND_PHASE, names.BIND_TIME,
    )  # fmt: skip

    def __init__(
        self, config: DeviceConfig | None = None, settings: Settings | None = None, *, search_steps: int = STEPS
    ) -> None:
        self.config = (config or DeviceConfig()).nvidia
        self.settings = settings or Settings()
        self.arguments = self.settings.of(VgpuArguments)
        own = self.arguments
        self.catalogue = Catalogue(self.config, builtin=own.mig_catalogue, anywhere=own.mig_off_group)
        self._device_requests: dict[Any, DeviceRequest] = {}
        self._statements: dict[Hashable, Statement] = {}
        self._steps = search_steps
        self._choose = chooser(own.mig_policy)
        self.ranking = VgpuRanking(self.catalogue, self._choose, self._remembered)
        self.late_quota = VgpuLateQuota(self.config)
        self.planner = VgpuPlanner(self.name, self.catalogue)

    @property
    def tunables(self) -> Tunables:
        return tunables(self.config)

    @property
    def steering(self) -> Mapping[str, tuple[str, ...]]:
        return steering()

    def remarks(self, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        return remarks(self.config, limits, notes)

    def resources(self) -> frozenset[str]:
        c = self.config
        return frozenset((c.resource_count_name, c.resource_memory_name, c.resource_core_name))

    def parameters(self) -> frozenset[str]:
        name = self.config.resource_memory_percentage_name
        return frozenset((name,) if name else ())

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        containers = containers_of(pod, self.config, partial=self.arguments.partial_requests)
        if isinstance(containers, Refusal):
            return containers
        if not containers:
            return None
        constraints: dict[str, Any] = constraints_of(pod, self.settings.policy)
        want = VgpuRequest(containers, rules=matching_rules(self.arguments.rules, pod.metadata.labels), **constraints)
        return self._remembered(want)

    def _remembered(self, want: VgpuRequest) -> DeviceRequest:
        key = want.key()
        known = self._device_requests.get(key)
        if known is None:
            if len(self._device_requests) >= ASKS_REMEMBERED:
                self._device_requests.clear()
            known = self._device_requests[key] = DeviceRequest(self.name, key, want)
        return known

    def resources_only(self, pod: Pod) -> bool:
        return STEERING.isdisjoint(pod.metadata.annotations)

    def inventory(self, node: Node) -> Inventory | None:
        s = self.arguments
        return inventory_of(
            node, self.config, self.catalogue, short_entries=s.short_entries, unadvertised=s.unadvertised_nodes
        )

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Allocation | Refusal | None:
        return replay_pod(self.name, pod, node, inventory, self._said, handed)

    def _said(self, spec: PodSpec) -> Statement:
        """After a start tens of thousands of pods are read, most of few kinds."""
        if spec.init_containers:
            return statement(spec, self.config)
        key = tuple([(*c.resources.limits.items(), None, *c.resources.requests.items()) for c in spec.containers])
        known = self._statements.get(key)
        if known is None:
            if len(self._statements) >= STATEMENTS_REMEMBERED:
                self._statements.clear()
            known = self._statements[key] = statement(spec, self.config)
        return known

    def least_memory(self, device_request: DeviceRequest) -> int:
        want: VgpuRequest = device_request.detail
        return sum(each.count * each.memory for each in want.containers if each.percent == UNSET)

    def marks(self, pod: Pod) -> Marks:
        meta = pod.metadata
        return Marks(group_key(meta.namespace, meta.annotations), matching_rules(self.arguments.rules, meta.labels))

    def quick(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | None:
        """``fit`` without the explanation: most refusals are never read."""
        if not cards.inventory.cards:
            return None
        outcome = fit_node(self.name, device_request.detail, cards, self._choose, explain=False, steps=self._steps)
        return outcome if isinstance(outcome, Fit) else None

    def fit(self, device_request: DeviceRequest, cards: NodeCards) -> Fit | FitError:
        want: VgpuRequest = device_request.detail
        if not cards.inventory.cards:
            return no_devices(cards.node)
        outcome = fit_node(self.name, want, cards, self._choose, steps=self._steps)
        if isinstance(outcome, Fit):
            return outcome
        draft = outcome if isinstance(outcome, Draft) else None
        return explain_node(want, cards, draft, hopeless(want, cards, self._choose, self._steps))

    def quota(self, device_request: DeviceRequest) -> dict[str, int]:
        return quota_of(device_request.detail, self.config)

    def annotations(self, allocation: Allocation, now_ns: int) -> dict[str, str]:
        return render_binding(allocation.node, allocation.containers, now_ns)

    def no_devices(self, node: str) -> FitError:
        return no_devices(node)

    def slots(self, place: int, inventory: Inventory, usage: Usage) -> tuple[SlotView, ...]:
        facts: Facts = inventory.config
        geometry = facts.geometries[place] if place < len(facts.geometries) else None
        return () if geometry is None else geometry.shown(usage)


# -- replay -----------------------------------------------------------------------------------------------------------

# The allocation that a bound pod already holds, by its annotations (Volcano pkg/scheduler/api/devices/nvidia/vgpu, Volcano
# pkg/scheduler/api/devices/nvidia/vgpu/mig.go).

TEXTS_KEPT = 128
"""Assignments remembered of a node; pods that come and go must not fill our memory."""


def replay_pod(
    device_type: str, pod: Pod, node: str, inventory: Inventory, said: Callable[[PodSpec], Statement], handed: str = ""
) -> Allocation | Refusal | None:
    """Return what it holds of that node's cards; ``said``: what its containers ask for.

    None when the pod holds nothing here: no annotation, not bound to this node, or a set written for another one
    (D-46). Cards that the node does not register are not charged. Every container counts (D-21).

    ``handed``: what the node's plugin says that it has handed to the pod, which nobody but the plugin can write; it counts
    before the pod's annotation, container by container. Without it, a pod that the kubelet has admitted holds cards, and where
    its annotation cannot name them, they may be any of the node's: all are closed as long as it is there.
    """
    if pod.spec.node_name != node or is_mirror(pod):
        return None
    notes = pod.metadata.annotations
    facts: Facts = inventory.config
    text = notes.get(names.VGPU_IDS, "")
    statement = said(pod.spec) if is_admitted(pod) else None
    if notes.get(names.VGPU_NODE, node) != node and not _names_own(text, statement, facts):
        text = ""
    if handed:
        by_plugin = parse_pod_devices(handed)
        decoded = _completed(by_plugin, parse_pod_devices(text))
        served = [part for part in by_plugin.containers if part]
        reason = ""
        if statement is not None and len(served) < len(statement.containers):
            reason = contradiction(statement, decoded, facts.by_uuid.__contains__)
        return _allocated(device_type, pod, node, inventory, decoded, reason)
    if not text and statement is None:
        return None
    known = facts.read.get(text)
    if known is not None and known[0] is statement:
        return known[1]
    decoded = parse_pod_devices(text)
    reason = contradiction(statement, decoded, facts.by_uuid.__contains__) if statement is not None else ""
    found = _allocated(device_type, pod, node, inventory, decoded, reason)
    if isinstance(found, Allocation) and not found.doubts:  # a doubt names the pod
        if len(facts.read) >= TEXTS_KEPT:
            facts.read.clear()
        facts.read[text] = statement, found
    return found


def _names_own(text: str, statement: Statement | None, facts: Facts) -> bool:
    """Return whether an assignment can be what a container of this node was given although the pod's annotation names another
    node: its owner may write that, and by it close no cards."""
    return statement is not None and statement.sure and not contradiction(
        statement, parse_pod_devices(text), facts.by_uuid.__contains__
    )


def _completed(handed: PodDevices, written: PodDevices) -> PodDevices:
    """Return what the plugin has handed out, and for containers that it has not served yet what the pod's annotation names: they
    may start at any moment, and a plugin that has just died tells no more of them."""
    pairs = zip_longest(handed.containers, written.containers, fillvalue=())
    return PodDevices(tuple(by_plugin or told for by_plugin, told in pairs), handed.doubts)


def _allocated(
    device_type: str, pod: Pod, node: str, inventory: Inventory, decoded: PodDevices, reason: str = ""
) -> Allocation | Refusal | None:
    """``reason``: why the devices may be others than these."""
    facts: Facts = inventory.config
    who = pod.key
    doubts = [
        Refusal(doubt.field, f"pod {who}: {doubt.text}") for doubt in decoded.doubts if doubt.field in facts.by_uuid
    ]
    if reason:
        doubts.append(Refusal("", f"pod {who} holds cards and nothing says for certain which: {reason}"))
    containers, unregistered = [], []
    for devices in decoded.containers:
        container_devices = []
        for device in devices:
            index = facts.by_uuid.get(device.uuid)
            if index is None:
                unregistered.append(device.uuid)
                continue
            container_device, doubt = _container_device(device, inventory.cards[index], facts)
            if doubt:
                doubts.append(Refusal(device.uuid, f"pod {who}: {doubt}"))
            if container_device is not None:
                container_devices.append(container_device)
        containers.append(tuple(container_devices))
    if not any(containers) and not unregistered:
        return doubts[0] if len(doubts) == 1 else Allocation(device_type, node, (), tuple(doubts)) if doubts else None
    given = tuple(containers) if any(containers) else ()
    return Allocation(device_type, node, given, tuple(doubts), unregistered=tuple(unregistered))


def _container_device(device: PodDevice, card: Card, facts: Facts) -> tuple[ContainerDevice | None, str]:
    """(what to charge, what is doubtful about it)."""
    geometry = facts.geometries[card.index]
    as_written = ContainerDevice(card.index, card.uuid, device.memory, device.cores, device.memory)
    if device.slot < 0:
        return as_written, f"holds {card.uuid} as a whole although it is in MIG mode" if card.mode == "mig" else ""
    if geometry is None:
        return as_written, f"holds {device.id} but the card has no MIG geometry"
    if device.profile:
        outside = geometry.outside(device.profile, device.slot)
        if isinstance(outside, str):
            return as_written, f"holds {device.id} but {outside}"
        return ContainerDevice(card.index, card.uuid, outside.memory, device.cores, device.memory, outside), ""
    number = geometry.index.get(device.group)
    if number is None:
        return None, f"holds {device.id} but no group {device.group!r} is configured for {card.type}"
    group = geometry.groups[number]
    if device.slot >= len(group.memory):
        return None, f"holds {device.id} but group {device.group!r} has only the slots 0 to {len(group.memory) - 1}"
    slot = group.slot(device.slot)
    container_device = ContainerDevice(card.index, card.uuid, slot.memory, device.cores, device.memory, slot)
    if device.memory > slot.memory:
        return container_device, f"holds {device.id} with memory {device.memory}, more than the slot's {slot.memory} today"
    return container_device, ""
