"""Nodes, pods and a tiny ledger for tests of device types: builders hide what does not matter. What the scheduler's own ledger
holds, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pumice.devices.ascend_mindcluster.arguments import CoreArguments
from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.protocol import DeviceRequest, DeviceSharing, Fit, Inventory, NodeCards
from pumice.devices.settings import Settings
from pumice.model.cards import Allocation, Usage
from pumice.model.refusal import FitError, Refusal
from pumice.scheduler.state.ledger import GOING, Ledger
from pumice.wire import names
from pumice.wire.objects import Node, Pod, convert

V100 = "NVIDIA-Tesla V100-SXM2-16GB"
A100 = "NVIDIA-NVIDIA A100-PCIE-40GB"
ALLOCATABLE = {names.VGPU_NUMBER: 80, names.VGPU_MEMORY: "800k", names.VGPU_CORES: 800}


def card(uuid: str, total: int = 16384, shares: int = 10, kind: str = V100, *, healthy: bool = True,
         mode: str = "hami-core", places: bool = False) -> str:  # fmt: skip
    """One entry of the register annotation; with ``places`` the plugin says that it cuts slices anywhere."""
    return f"{uuid},{shares},{total},{kind},{str(healthy).lower()},{mode}{',places' if places else ''}:"


def vgpu_node(name: str, *cards: str, annotations: Mapping[str, str] | None = None,
              allocatable: Mapping[str, Any] | None = None) -> Node:  # fmt: skip
    notes = {names.NODE_VGPU_REGISTER: "".join(cards), **(annotations or {})}
    status = {"allocatable": dict(ALLOCATABLE if allocatable is None else allocatable)}
    return convert(Node, {"metadata": {"name": name, "annotations": notes}, "status": status})


def limits(number: Any = None, memory: Any = None, cores: Any = None, percent: Any = None) -> dict[str, Any]:
    """Container limits; what is None is left out."""
    named = {
        names.VGPU_NUMBER: number,
        names.VGPU_MEMORY: memory,
        names.VGPU_CORES: cores,
        names.VGPU_MEMORY_PERCENTAGE: percent,
    }
    return {name: value for name, value in named.items() if value is not None}


def pod_of(name: str, *containers: Mapping[str, Any], annotations: Mapping[str, str] | None = None,
           labels: Mapping[str, str] | None = None, init: Iterable[Mapping[str, Any]] = (),
           node: str = "", namespace: str = "default") -> Pod:  # fmt: skip
    """A pod whose containers have these limits. An init container is a mapping of limits, or a whole container."""
    early = [item if "resources" in item else {"resources": {"limits": dict(item)}} for item in init]
    return convert(
        Pod,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "annotations": dict(annotations or {}),
                "labels": dict(labels or {}),
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": f"c{i}", "resources": {"limits": dict(c)}} for i, c in enumerate(containers)],
                "initContainers": [{"name": f"i{i}", **item} for i, item in enumerate(early)],
            },
        },
    )


@dataclass
class TinyLedger:
    """The cards of one device type on a few nodes, kept the plain way: every grant is remembered and summed anew."""

    device_type: DeviceSharing
    inventories: dict[str, Inventory] = field(default_factory=dict)
    allocated: dict[str, tuple[Pod, Allocation]] = field(default_factory=dict)
    doubts: dict[str, dict[int, str]] = field(default_factory=dict)

    def add_node(self, node: Node) -> None:
        inventory = self.device_type.inventory(node)
        if inventory is not None:
            self.inventories[node.metadata.name] = inventory

    def usages(self, node: str) -> list[Usage]:
        usages = [Usage() for _ in self.inventories[node].cards]
        for uid, (_, allocation) in self.allocated.items():
            if allocation.node != node:
                continue
            for container_device in allocation.container_devices:
                usage = usages[container_device.card]
                usage.shares += 1
                usage.memory += container_device.memory
                usage.cores += container_device.cores
                usage.holders[uid] = (*usage.holders.get(uid, ()), container_device)
                if container_device.slot is not None and container_device.slot.group:
                    assert container_device.slot.number not in usage.slots, (
                        f"slot {container_device.slot} of {container_device.uuid} is held twice"
                    )
                    assert usage.group in ("", container_device.slot.group), f"two groups on {container_device.uuid}"
                    usage.slots |= {container_device.slot.number}
                    usage.group = container_device.slot.group
        return usages

    def view(self, node: str) -> NodeCards:
        marks = {uid: self.device_type.marks(pod) for uid, (pod, allocation) in self.allocated.items() if allocation.node == node}
        return NodeCards(node, self.inventories[node], self.usages(node), marks, self.doubts.get(node, {}))

    def try_pod(self, pod: Pod, node: str) -> Fit | FitError | Refusal | None:
        device_request = self.device_type.device_request(pod)
        if not isinstance(device_request, DeviceRequest):
            return device_request
        if node not in self.inventories:
            return self.device_type.no_devices(node)
        return self.device_type.fit(device_request, self.view(node))

    def place(self, pod: Pod, node: str) -> Fit | FitError | Refusal | None:
        """Try, and book when it fits."""
        outcome = self.try_pod(pod, node)
        if isinstance(outcome, Fit):
            self.allocated[pod.metadata.uid] = (pod, outcome.allocation)
        return outcome

    def replay(self, pod: Pod, node: str) -> Allocation | Refusal | None:
        """Book what a bound pod claims to hold; doubts quarantine."""
        outcome = self.device_type.replay(pod, node, self.inventories[node])
        doubts = outcome.doubts if isinstance(outcome, Allocation) else (outcome,) if isinstance(outcome, Refusal) else ()
        for doubt in doubts:
            for card in self.inventories[node].cards:
                if doubt.field in ("", card.uuid):
                    self.doubts.setdefault(node, {})[card.index] = doubt.text
        if isinstance(outcome, Allocation):
            self.allocated[pod.metadata.uid] = (pod, outcome)
        return outcome

    def leave(self, pod: Pod) -> None:
        self.allocated.pop(pod.metadata.uid, None)

    def used(self, node: str) -> list[tuple[int, int, int]]:
        return [(u.shares, u.memory, u.cores) for u in self.usages(node)]

    def ids(self, pod: Pod) -> str:
        """The devices annotation of a placed pod."""
        annotations = self.device_type.annotations(self.allocated[pod.metadata.uid][1], 0)
        return annotations.get(names.VGPU_IDS, annotations.get(names.GPU_INDEX, ""))


def fingerprint(ledger: Ledger) -> dict[str, object]:
    """Return everything that a decision looks at, as plain values: two ledgers with equal fingerprints decide alike."""
    columns, row_of = {column: name for name, column in ledger.table.dims.items()}, ledger.table.row_of

    def amounts(row: int, array: str) -> dict[str, int]:
        values = getattr(ledger.table, array)[row]
        return {columns[c]: int(values[c]) for c in range(len(columns)) if values[c]}

    nodes = {
        name: {array: amounts(row, array) for array in ("alloc", "used", "releasing", "pipelined")}
        for name, row in sorted(row_of.items())
    }
    cards = {
        (device_type, name, device_table.inventory.cards[place].uuid): (
            usage.shares, usage.memory, usage.cores, usage.group, frozenset(usage.slots),
            tuple(sorted((uid, container_devices) for uid, container_devices in usage.holders.items())),
        )
        for device_type, device_table_of in sorted(ledger.device_tables.items())
        for name, device_table in sorted(device_table_of.nodes.items())
        for place, usage in enumerate(device_table.usages)
    }  # fmt: skip
    allocated = {
        uid: (h.node, h.request, h.allocations if h.node in nodes else (), h.state in GOING)
        for uid, h in ledger.placements.items()
    }
    name_of = {row: name for name, row in row_of.items()}
    terms = [
        {
            features: {name_of[row]: count for row, count in rows.items() if count and row in name_of}
            for features, rows in table.items()
            if any(count and row in name_of for row, count in rows.items())
        }
        for table in (ledger.terms._where, ledger.terms._going)
    ]
    return {"nodes": nodes, "cards": cards, "held": allocated, "terms": terms}


def device_settings(**told: Any) -> Settings:
    """``npu_policy`` and others that begin so are of the chips that are cut on demand."""
    of_all = {found.name for found in fields(Settings)}
    own = {key: value for key, value in told.items() if key not in of_all}
    cores = {key.removeprefix("npu_"): value for key, value in own.items() if key.startswith("npu_")}
    shares = {key: value for key, value in own.items() if not key.startswith("npu_")}
    sections = (VgpuArguments(**shares), CoreArguments(**cores))
    return Settings(**{key: told[key] for key in told if key in of_all}, sections=sections)
