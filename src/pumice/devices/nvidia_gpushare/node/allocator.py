"""Answers to Allocate calls for the legacy resources (volcano-sh/devices pkg/plugin/nvidia).

Pure accounting, no limits. Unlike upstream's it serves pods with several containers, and tells why it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pumice.effects.vocabulary import NodeEffect, PatchPod, PatchStatus
from pumice.model.amount import MIB
from pumice.node.device_list import MESSAGE_LIMIT, Leftovers, Unit, holds, worst_size
from pumice.node.matching import InLine, time_in
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Answer, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.wire import names, variables
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.objects import Node

STRATEGIES: Final = ("share", "number")
OF_VGPU: Final = Leftovers(
    names.VGPU_NUMBER,
    (names.VGPU_MEMORY, names.VGPU_CORES),
    (names.NODE_VGPU_REGISTER, names.NODE_VGPU_HANDSHAKE, names.CARD_TOPOLOGY),
)


@dataclass(frozen=True, slots=True)
class Legacy:
    """The sharing of this node: ``strategy`` share (by memory) or number (whole cards), ``factor`` MiB per unit."""

    strategy: str = "share"
    factor: int = 1

    @property
    def resource(self) -> str:
        return names.GPU_MEMORY if self.strategy == "share" else names.GPU_NUMBER

    def units(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str]) -> list[Unit]:
        """The device list: ``<index>-<j>`` per memory unit, or the UUIDs."""
        if self.strategy == "number":
            return [Unit(card.uuid, card.uuid not in unhealthy) for card in cards]
        return [
            Unit(f"{card.index}-{j}", card.uuid not in unhealthy)
            for card in cards
            for j in range(card.memory // MIB // self.factor)
        ]

    def status(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str], node: Node) -> PatchStatus | None:
        """The write that keeps the card count and the unhealthy cards in the node's status; None when it stands.

        What a vGPU plugin left there goes with it: installing one replaces the other.
        """
        indices = ",".join(str(card.index) for card in cards if card.uuid in unhealthy)
        noted = node.metadata.annotations.get(names.NODE_GPU_UNHEALTHY_IDS)
        wanted = {names.GPU_NUMBER: len(cards)} if self.strategy == "share" and cards else {}
        old_resources, old_notes = OF_VGPU.of(node)
        stands = not old_resources and not old_notes and all(holds(node, name, count) for name, count in wanted.items())
        if stands and (noted or "") == indices:
            return None
        changed = {names.NODE_GPU_UNHEALTHY_IDS: indices or None} if (noted or "") != indices else {}
        kept = {name: str(count) for name, count in wanted.items()}
        return PatchStatus({**kept, **old_resources}, {**changed, **old_notes})


ASSIGNED: Final = names.GPU_ASSIGNED


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod's container whose turn it is; ``last``: with it the pod is served."""

    pod: NodePod
    container: Container
    last: bool
    begun: bool


class ShareAllocator(InLine):
    """One node's legacy shares. Containers that were served are counted until the pod is marked."""

    lock = names.NODE_LOCK_GPUSHARE
    event = "GPUAllocationFailed"
    without = MappingProxyType({variables.NVIDIA_VISIBLE_DEVICES: "void"})

    def __init__(self, node: str, legacy: Legacy, cards: Sequence[CardFacts] = ()) -> None:
        super().__init__(node)
        self._legacy = legacy
        self.resource = legacy.resource
        self.show(cards)

    def show(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str] = MappingProxyType({})) -> None:
        self._cards, self._unhealthy = tuple(cards), unhealthy

    def units(self, resource: str) -> list[Unit]:
        return self._legacy.units(self._cards, self._unhealthy)

    def socket(self, resource: str) -> str:
        return "volcano.sock"

    def shorter(self, resource: str, units: Sequence[Unit]) -> str:
        return f"set --gpu-memory-factor to at least {-(-self._legacy.factor * worst_size(units) // MESSAGE_LIMIT)}"

    def missing(self, node: Node) -> list[NodeEffect]:
        patch = self._legacy.status(self._cards, self._unhealthy, node)
        return [patch] if patch else []

    def owned(
        self, pods: Sequence[NodePod], pod: NodePod, container: str, allocated: AllocatedIds, seed: str
    ) -> Serve | Refuse:
        asking = self._asking(pod)
        found = next((one for one in asking if one.name == container), None)
        if found is None or names.GPU_INDEX not in pod.annotations:
            return self.refuse(pod, f"container {container} was given no card by a scheduler")
        last = not _assigned(pod) and all((pod.uid, one.name) in allocated for one in asking)
        return self.answer(Waiting(pod, found, last, begun=True), pods, ())

    def placed(self, pod: NodePod) -> tuple[int, ...]:
        return (time_in(pod.annotations.get(names.PREDICATE_TIME, "")),)

    def next_work(self, pod: NodePod, count: int, allocated: AllocatedIds | None) -> Waiting | None:
        waiting = self._waiting(pod, allocated) if names.GPU_INDEX in pod.annotations else []
        if not waiting or waiting[0].requested(self.resource) != count:
            return None
        begun = any((pod.uid, one.name) in self._served for one in pod.containers)
        return Waiting(pod, waiting[0], last=len(waiting) == 1 and not _assigned(pod), begun=begun)

    def _waiting(self, pod: NodePod, allocated: AllocatedIds | None) -> list[Container]:
        """The containers that still wait, in the kubelet's order. Those of an assigned pod wait only when the kubelet lost
        their answer: it was killed before it wrote it down."""
        if _assigned(pod) and (allocated is None or pod.admitted):
            return []
        asking = ((pod.uid, one.name, one) for one in self._asking(pod))
        return [one for uid, name, one in asking if (uid, name) not in self._served and (uid, name) not in (allocated or ())]

    def _asking(self, pod: NodePod) -> list[Container]:
        return [container for container in pod.containers if container.requested(self.resource)]

    def answer(self, work: Waiting, pods: Sequence[NodePod], ids: Sequence[str]) -> Serve | Refuse:
        pod, count = work.pod, work.container.requested(self.resource)
        text = pod.annotations[names.GPU_INDEX]
        indices = parse_index(text)
        by_index = {card.index: card for card in self._cards}
        if not indices:
            return self.refuse(pod, f"{names.GPU_INDEX} is {text!r}, not a list of card indices")
        if missing := [index for index in indices if index not in by_index]:
            return self.refuse(pod, f"{names.GPU_INDEX} names card {missing[0]}; this node has {len(by_index)}")
        env = {
            variables.NVIDIA_VISIBLE_DEVICES: ",".join(map(str, indices)),
            variables.GPU_ALLOCATED: str(count * self._legacy.factor if self._legacy.strategy == "share" else count),
        }
        if self._legacy.strategy == "share":
            env[variables.GPU_MEMORY_TOTAL] = str(by_index[indices[0]].memory // MIB)
        patch = PatchPod.of(pod.metadata, {ASSIGNED: "true"}) if work.last else None
        return Serve(pod, work.container, Answer(env=env), patch, summary=f"units={count}")


def _assigned(pod: NodePod) -> bool:
    return pod.annotations.get(ASSIGNED, "false") != "false"
