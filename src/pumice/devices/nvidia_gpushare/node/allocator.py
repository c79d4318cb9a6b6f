"""Where Allocate calls for the legacy resources are answered (spec nvidia-device-plugin 19).

Pure accounting, no limits. Unlike upstream's it serves pods with several containers, and tells why it refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pumice.devices.nvidia_gpushare.node.sharing import Legacy
from pumice.model.amount import MIB
from pumice.node.answer import Answer
from pumice.node.device_list import MESSAGE_LIMIT, Unit, worst_size
from pumice.node.effects import Effect, PatchPod
from pumice.node.pods import Container, Held, NodePod
from pumice.node.protocol import Allocator, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.wire import names, variables
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.objects import Node

ASSIGNED: Final = names.GPU_ASSIGNED


class ShareAllocator(Allocator):
    """One node's legacy shares. Containers that were served are counted until the pod is marked."""

    lock = names.NODE_LOCK_GPUSHARE
    event = "GPUAllocationFailed"
    without = MappingProxyType({variables.NVIDIA_VISIBLE_DEVICES: "void"})

    def __init__(self, node: str, legacy: Legacy, cards: Sequence[CardFacts] = ()) -> None:
        self._node, self._legacy = node, legacy
        self._served: dict[str, int] = {}
        self.resource = legacy.resource
        self.show(cards)

    def show(self, cards: Sequence[CardFacts], sick: Mapping[str, str] = MappingProxyType({})) -> None:
        self._cards, self._sick = tuple(cards), sick

    def units(self, resource: str) -> list[Unit]:
        return self._legacy.units(self._cards, self._sick)

    def socket(self, resource: str) -> str:
        return "volcano.sock"

    def shorter(self, resource: str, units: Sequence[Unit]) -> str:
        return f"set --gpu-memory-factor to at least {-(-self._legacy.factor * worst_size(units) // MESSAGE_LIMIT)}"

    def missing(self, node: Node) -> list[Effect]:
        patch = self._legacy.status(self._cards, self._sick, node)
        return [patch] if patch else []

    def allocate(self, pods: Iterable[NodePod], ids: Sequence[str], held: Held | None = None) -> Serve | Refuse | None:
        for pod in sorted((pod for pod in pods if self._here(pod)), key=_turn):
            waiting = self._waiting(pod, held)
            if waiting and waiting[0].asks(self.resource) == len(ids):
                return self._answer(pod, waiting[0], len(ids), last=len(waiting) == 1 and not _assigned(pod))
        return None

    def owned(self, pods: Sequence[NodePod], pod: NodePod, container: str, held: Held, number: str) -> Serve | Refuse:
        asking = self._asking(pod)
        found = next((one for one in asking if one.name == container), None)
        if found is None or names.GPU_INDEX not in pod.annotations:
            return self.refuse(pod, f"container {container} was given no card by a scheduler")
        last = not _assigned(pod) and all((pod.uid, one.name) in held for one in asking)
        return self._answer(pod, found, found.asks(self.resource), last=last)

    def _waiting(self, pod: NodePod, held: Held | None) -> list[Container]:
        """The containers that still wait, in the kubelet's order. Those of an assigned pod wait only when the kubelet lost
        their answer: it was killed before it wrote it down."""
        if held is None:
            return [] if _assigned(pod) else self._asking(pod)[self._served.get(pod.uid, 0) :]
        if _assigned(pod) and pod.admitted:
            return []
        asking = self._asking(pod)[self._served.get(pod.uid, 0) :]
        return [container for container in asking if (pod.uid, container.name) not in held]

    def kubelet_restarted(self) -> None:
        """It begins anew with the pods that have not started."""
        self._served.clear()

    def settled(self, served: Serve) -> None:
        self._served[served.pod.uid] = self._served.get(served.pod.uid, 0) + 1

    def unserved(self, served: Serve) -> None:
        self._served[served.pod.uid] = max(0, self._served.get(served.pod.uid, 0) - 1)

    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        alive = {pod.uid for pod in pods if not pod.finished}
        self._served = {uid: count for uid, count in self._served.items() if uid in alive}
        return []

    def _asking(self, pod: NodePod) -> list[Container]:
        return [container for container in pod.containers if container.asks(self.resource)]

    def _here(self, pod: NodePod) -> bool:
        return (
            pod.spec.node_name == self._node
            and pod.status.phase in ("", "Pending")
            and pod.metadata.deletion_timestamp is None
            and not pod.turned_away
            and names.GPU_INDEX in pod.annotations
            and bool(self._asking(pod))
        )

    def _answer(self, pod: NodePod, container: Container, count: int, last: bool) -> Serve | Refuse:
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
        patch = PatchPod.of(pod.metadata, {ASSIGNED: "true"}) if last else None
        return Serve(pod, container, Answer(env=env), patch, summary=f"units={count}")


def _assigned(pod: NodePod) -> bool:
    return pod.annotations.get(ASSIGNED, "false") != "false"


def _turn(pod: NodePod) -> tuple[int, int, int, str, str]:
    text = pod.annotations.get(names.PREDICATE_TIME, "")
    placed = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else 2**64
    return (pod.arrival, placed, pod.seen, pod.metadata.creation_timestamp, pod.uid)
