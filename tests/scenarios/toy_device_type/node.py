"""The node's half of the toy device type: its allocator, and cards that need no driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.scenarios.toy_device_type.words import ASSIGNED, CARDS, LOCK, NAME, RESOURCE, SERVED, parse, render

from pumice.apps.node.device_type import ServedDevices
from pumice.effects.vocabulary import NodeEffect, PatchNode, PatchPod
from pumice.node.device_list import Unit
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Allocator, Answer, Refuse, Serve
from pumice.ports.cards import LOST, CardEvent, CardFacts, CardReading
from pumice.wire.objects import Node

SLICE = 1 << 30
"""Bytes of one slice."""


class ToyAllocator(Allocator):
    """Pods in the order in which they came; each has one container that asks."""

    resource = RESOURCE
    lock = LOCK

    def __init__(self) -> None:
        self._served: set[str] = set()

    def show(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str] = MappingProxyType({})) -> None:
        self._slices = {card.uuid: card.memory // SLICE for card in cards}
        self._unhealthy = unhealthy

    def units(self, resource: str) -> list[Unit]:
        return [Unit(f"{uuid}-{i}", uuid not in self._unhealthy) for uuid, count in self._slices.items() for i in range(count)]

    def missing(self, node: Node) -> list[NodeEffect]:
        text = render({uuid: count for uuid, count in self._slices.items() if uuid not in self._unhealthy})
        return [PatchNode({CARDS: text})] if node.metadata.annotations.get(CARDS) != text else []

    def allocate(
        self, pods: Sequence[NodePod], ids: Sequence[str], held: AllocatedIds | None = None, number: str = ""
    ) -> Serve | Refuse | None:
        for pod in sorted(pods, key=lambda pod: pod.arrival):
            if ASSIGNED not in pod.annotations or SERVED in pod.annotations or pod.uid in self._served:
                continue
            container = next((c for c in pod.spec.containers if c.requested(RESOURCE) == len(ids)), None)
            if container is None:
                continue
            assigned = parse(pod.annotations[ASSIGNED])
            return self._serve(pod, container, assigned)
        return None

    def owned(self, pods: Sequence[NodePod], pod: NodePod, container: str, held: AllocatedIds, seed: str) -> Serve | Refuse:
        if ASSIGNED not in pod.annotations:
            return self.refuse(pod, "no scheduler gave it cards")
        return self._serve(pod, next(c for c in pod.containers if c.name == container), parse(pod.annotations[ASSIGNED]))

    def _serve(self, pod: NodePod, container: Container, assigned: Mapping[str, int]) -> Serve | Refuse:
        if gone := [uuid for uuid in assigned if uuid not in self._slices]:
            return self.refuse(pod, f"this node has no card {gone[0]}")
        patch = None if SERVED in pod.annotations else PatchPod.of(pod.metadata, {SERVED: "true"})
        return Serve(pod, container, Answer(env={"TOY_CARDS": ",".join(assigned)}), patch, summary=render(assigned))

    def committed(self, served: Serve) -> None:
        self._served.add(served.pod.uid)

    def kubelet_restarted(self) -> None:
        self._served.clear()

    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        self._served &= {pod.uid for pod in pods}
        return []


@dataclass
class ToyCards:
    """Cards (``ports.cards.Cards``) by UUID and size in bytes; those in ``broken`` are unhealthy for good."""

    sizes: Mapping[str, int]
    broken: set[str] = field(default_factory=set)

    def facts(self) -> tuple[CardFacts, ...]:
        return tuple(CardFacts(i, uuid, "Toy", size, minor=i) for i, (uuid, size) in enumerate(self.sizes.items()))

    def readings(self) -> tuple[CardReading, ...]:
        return ()

    def subscribe(self, uuids: Sequence[str]) -> dict[str, str]:
        return {}

    def events(self) -> tuple[CardEvent, ...]:
        return tuple(CardEvent(uuid, LOST) for uuid in sorted(self.broken))

    def answers(self, uuid: str) -> bool:
        return uuid not in self.broken

    def close(self) -> None:
        return


def toy(cards: ToyCards) -> ServedDevices:
    """The toy device type as the plugin server takes it."""

    async def allocator() -> ToyAllocator:
        return ToyAllocator()

    return ServedDevices(f"{NAME}-plugin", allocator, lambda: cards)
