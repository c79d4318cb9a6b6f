"""The legacy plugin's mind: ``volcano.sh/gpu-memory`` and ``volcano.sh/gpu-number`` (spec nvidia-device-plugin 19).

Pure accounting, no limits. Unlike upstream it knows each card's own memory, marks sick memory, serves pods with several
containers, and tells why it refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.model.amount import MIB
from pumice.node.effects import Effect, PatchPod, PatchStatus, Tell
from pumice.node.pods import Container, Held, NodePod
from pumice.node.vgpu.advertise import OF_VGPU
from pumice.node.vgpu.answer import Answer
from pumice.node.vgpu.inventory import Unit
from pumice.ports.cards import CardFacts
from pumice.wire import names, variables
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity

ASSIGNED: Final = names.GPU_ASSIGNED
STRATEGIES: Final = ("share", "number")


@dataclass(frozen=True, slots=True)
class Legacy:
    """How the node shares: ``strategy`` share (by memory) or number (whole cards), ``factor`` MiB per unit."""

    strategy: str = "share"
    factor: int = 1

    @property
    def resource(self) -> str:
        return names.GPU_MEMORY if self.strategy == "share" else names.GPU_NUMBER

    def units(self, cards: Sequence[CardFacts], sick: Mapping[str, str]) -> list[Unit]:
        """The device list: ``<index>-<j>`` per memory unit, or the UUIDs."""
        if self.strategy == "number":
            return [Unit(card.uuid, card.uuid not in sick) for card in cards]
        return [
            Unit(f"{card.index}-{j}", card.uuid not in sick)
            for card in cards
            for j in range(card.memory // MIB // self.factor)
        ]

    def status(self, cards: Sequence[CardFacts], sick: Mapping[str, str], node: Node) -> PatchStatus | None:
        """The write that keeps the card count and the sick cards in the node's status; None when it stands.

        What a vGPU plugin left there goes with it: installing one replaces the other.
        """
        unhealthy = ",".join(str(card.index) for card in cards if card.uuid in sick)
        noted = node.metadata.annotations.get(names.NODE_GPU_UNHEALTHY_IDS)
        wanted = {names.GPU_NUMBER: len(cards)} if self.strategy == "share" and cards else {}
        old_resources, old_notes = OF_VGPU.of(node)
        tables = (node.status.capacity, node.status.allocatable)
        stands = not old_resources and not old_notes
        stands = stands and all(_is(table.get(name), count) for table in tables for name, count in wanted.items())
        if stands and (noted or "") == unhealthy:
            return None
        changed = {names.NODE_GPU_UNHEALTHY_IDS: unhealthy or None} if (noted or "") != unhealthy else {}
        kept = {name: str(count) for name, count in wanted.items()}
        return PatchStatus({**kept, **old_resources}, {**changed, **old_notes})


@dataclass(frozen=True, slots=True)
class Shared:
    """One call served. ``patch`` marks the pod once its last container has its cards."""

    pod: NodePod
    container: Container
    answer: Answer
    patch: PatchPod | None


@dataclass(frozen=True, slots=True)
class Unshared:
    """One call refused, and the Event that says so."""

    reason: str
    effects: tuple[Effect, ...] = ()


class ShareAllocator:
    """Answers Allocate for the legacy resources. Containers that were served are counted until the pod is marked."""

    def __init__(self, node: str, legacy: Legacy, cards: Sequence[CardFacts] = ()) -> None:
        self._node, self._legacy = node, legacy
        self._served: dict[str, int] = {}
        self.cards = tuple(cards)

    def allocate(self, pods: Iterable[NodePod], count: int, held: Held | None = None) -> Shared | Unshared | None:
        """What to do about a call for ``count`` units; None when no pod waits for so many.

        ``held``: the containers for which the kubelet has written devices down; None when that cannot be told.
        """
        for pod in sorted((pod for pod in pods if self._here(pod)), key=_turn):
            waiting = self._waiting(pod, held)
            if waiting and waiting[0].asks(self._legacy.resource) == count:
                return self._answer(pod, waiting[0], count, last=len(waiting) == 1 and not _assigned(pod))
        return None

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
        """The kubelet begins anew with the pods that have not started."""
        self._served.clear()

    def settled(self, shared: Shared) -> None:
        self._served[shared.pod.uid] = self._served.get(shared.pod.uid, 0) + 1

    def prune(self, pods: Iterable[NodePod]) -> None:
        """Forget pods that are gone or have ended."""
        alive = {pod.uid for pod in pods if not pod.finished}
        self._served = {uid: count for uid, count in self._served.items() if uid in alive}

    def _asking(self, pod: NodePod) -> list[Container]:
        every = (*pod.spec.init_containers, *pod.spec.containers)  # the kubelet's order
        return [container for container in every if container.asks(self._legacy.resource)]

    def _here(self, pod: NodePod) -> bool:
        return (
            pod.spec.node_name == self._node
            and pod.status.phase in ("", "Pending")
            and pod.metadata.deletion_timestamp is None
            and pod.status.reason != "UnexpectedAdmissionError"
            and names.GPU_INDEX in pod.annotations
            and bool(self._asking(pod))
        )

    def _answer(self, pod: NodePod, container: Container, count: int, last: bool) -> Shared | Unshared:
        text = pod.annotations[names.GPU_INDEX]
        indices = parse_index(text)
        by_index = {card.index: card for card in self.cards}
        if not indices:
            return self._refuse(pod, f"{names.GPU_INDEX} is {text!r}, not a list of card indices")
        if missing := [index for index in indices if index not in by_index]:
            return self._refuse(pod, f"{names.GPU_INDEX} names card {missing[0]}; this node has {len(by_index)}")
        env = {
            variables.NVIDIA_VISIBLE_DEVICES: ",".join(map(str, indices)),
            variables.GPU_ALLOCATED: str(count * self._legacy.factor if self._legacy.strategy == "share" else count),
        }
        if self._legacy.strategy == "share":
            env[variables.GPU_MEMORY_TOTAL] = str(by_index[indices[0]].memory // MIB)
        meta = pod.metadata
        patch = PatchPod(meta.namespace, meta.name, meta.uid, {ASSIGNED: "true"}) if last else None
        return Shared(pod, container, Answer(env=env), patch)

    def _refuse(self, pod: NodePod, reason: str) -> Unshared:
        meta = pod.metadata
        event = Tell("Pod", meta.namespace, meta.name, meta.uid, "GPUAllocationFailed", reason)
        return Unshared(f"pod {pod.key}: {reason}", (event,))


def _assigned(pod: NodePod) -> bool:
    return pod.annotations.get(ASSIGNED, "false") != "false"


def _turn(pod: NodePod) -> tuple[int, int, str, str]:
    text = pod.annotations.get(names.PREDICATE_TIME, "")
    placed = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else 2**64
    return (pod.arrival, placed, pod.metadata.creation_timestamp, pod.uid)


def _is(value: str | int | float | None, count: int) -> bool:
    try:
        return value is not None and parse_quantity(value) == count
    except ValueError:
        return False
