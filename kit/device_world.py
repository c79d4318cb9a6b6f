"""Nodes, pods and a tiny ledger for tests of device families: builders hide what does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice.devices.protocol import Ask, Family, Fit, Inventory, NodeCards
from pumice.model.cards import Grant, Usage
from pumice.model.refusal import Misfit, Refusal
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
    """The books of one family on a few nodes, kept the plain way: every grant is remembered and summed anew."""

    family: Family
    inventories: dict[str, Inventory] = field(default_factory=dict)
    held: dict[str, tuple[Pod, Grant]] = field(default_factory=dict)
    doubts: dict[str, dict[int, str]] = field(default_factory=dict)

    def add_node(self, node: Node) -> None:
        inventory = self.family.inventory(node)
        if inventory is not None:
            self.inventories[node.metadata.name] = inventory

    def usages(self, node: str) -> list[Usage]:
        usages = [Usage() for _ in self.inventories[node].cards]
        for uid, (_, grant) in self.held.items():
            if grant.node != node:
                continue
            for piece in grant.pieces:
                usage = usages[piece.card]
                usage.shares += 1
                usage.memory += piece.memory
                usage.cores += piece.cores
                usage.holders[uid] = (*usage.holders.get(uid, ()), piece)
                if piece.slot is not None and piece.slot.group:
                    assert piece.slot.number not in usage.slots, f"slot {piece.slot} of {piece.uuid} is held twice"
                    assert usage.group in ("", piece.slot.group), f"two groups on {piece.uuid}"
                    usage.slots |= {piece.slot.number}
                    usage.group = piece.slot.group
        return usages

    def view(self, node: str) -> NodeCards:
        marks = {uid: self.family.marks(pod) for uid, (pod, grant) in self.held.items() if grant.node == node}
        return NodeCards(node, self.inventories[node], self.usages(node), marks, self.doubts.get(node, {}))

    def try_pod(self, pod: Pod, node: str) -> Fit | Misfit | Refusal | None:
        ask = self.family.ask(pod)
        if not isinstance(ask, Ask):
            return ask
        if node not in self.inventories:
            return self.family.no_devices(node)
        return self.family.fit(ask, self.view(node))

    def place(self, pod: Pod, node: str) -> Fit | Misfit | Refusal | None:
        """Try, and book when it fits."""
        outcome = self.try_pod(pod, node)
        if isinstance(outcome, Fit):
            self.held[pod.metadata.uid] = (pod, outcome.grant)
        return outcome

    def replay(self, pod: Pod, node: str) -> Grant | Refusal | None:
        """Book what a bound pod claims to hold; doubts quarantine."""
        outcome = self.family.replay(pod, node, self.inventories[node])
        doubts = outcome.doubts if isinstance(outcome, Grant) else (outcome,) if isinstance(outcome, Refusal) else ()
        for doubt in doubts:
            for card in self.inventories[node].cards:
                if doubt.field in ("", card.uuid):
                    self.doubts.setdefault(node, {})[card.index] = doubt.text
        if isinstance(outcome, Grant):
            self.held[pod.metadata.uid] = (pod, outcome)
        return outcome

    def leave(self, pod: Pod) -> None:
        self.held.pop(pod.metadata.uid, None)

    def used(self, node: str) -> list[tuple[int, int, int]]:
        return [(u.shares, u.memory, u.cores) for u in self.usages(node)]

    def ids(self, pod: Pod) -> str:
        """The devices annotation of a placed pod."""
        annotations = self.family.annotations(self.held[pod.metadata.uid][1], 0)
        return annotations.get(names.VGPU_IDS, annotations.get(names.GPU_INDEX, ""))
