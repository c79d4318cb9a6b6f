"""What the node object should say, and the writes that bring it there: nothing is written that already stands.

Spec nvidia-device-plugin 8 (register annotation), 9 (handshake with older schedulers), decision 17 (status).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.model.cards import Card, Mode
from pumice.model.units import Mib
from pumice.node.effects import Effect, PatchNode, PatchStatus
from pumice.node.vgpu.inventory import SharedCard, by_minor
from pumice.wire import names
from pumice.wire.nvidia_vgpu import CardPlace, render_register, render_topology
from pumice.wire.objects import Node
from pumice.wire.quantity import parse_quantity

ANSWER_AFTER: Final = 20.0
"""Seconds that a request of an older scheduler may stand: half the traffic, and well within its 60 s."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What the other plugin of the pair, vGPU or legacy, leaves on a node when it is replaced by this one.

    It is taken away only while the kubelet has none of ``alive``, the resource that the other plugin registers.
    """

    alive: str
    resources: tuple[str, ...]
    annotations: tuple[str, ...]

    def of(self, node: Node) -> tuple[dict[str, None], dict[str, None]]:
        """(resources, annotations) to remove."""
        if not _none(node.status.allocatable.get(self.alive)):
            return {}, {}
        tables = (node.status.capacity, node.status.allocatable)
        return (
            {name: None for name in self.resources if any(name in table for table in tables)},
            {name: None for name in self.annotations if name in node.metadata.annotations},
        )


OF_GPUSHARE: Final = Leftovers(names.GPU_MEMORY, (names.GPU_NUMBER,), (names.NODE_GPU_UNHEALTHY_IDS,))
OF_VGPU: Final = Leftovers(
    names.VGPU_NUMBER,
    (names.VGPU_MEMORY, names.VGPU_CORES),
    (names.NODE_VGPU_REGISTER, names.NODE_VGPU_HANDSHAKE, names.CARD_TOPOLOGY),
)


@dataclass(frozen=True, slots=True)
class Advertisement:
    """What the node shall say: annotations, and extended resources that the plugin itself keeps in the status."""

    annotations: Mapping[str, str]
    resources: Mapping[str, int]

    def missing(self, node: Node) -> list[Effect]:
        """The writes that make ``node`` say it."""
        effects: list[Effect] = []
        old_resources, old_notes = OF_GPUSHARE.of(node)
        notes = {key: text for key, text in self.annotations.items() if node.metadata.annotations.get(key) != text}
        if notes or old_notes:
            effects.append(PatchNode({**notes, **old_notes}))
        if old_resources or any(not _holds(node, name, value) for name, value in self.resources.items()):
            kept = {name: str(value) for name, value in self.resources.items()}
            effects.append(PatchStatus({**kept, **old_resources}))
        return effects


def register_annotation(cards: Sequence[SharedCard]) -> str:
    """``volcano.sh/node-vgpu-register``; empty when there is no card, which readers take for no vGPU node."""
    return render_register(
        Card(
            index=position,
            uuid=card.uuid,
            type=card.type,
            total=Mib(card.memory),
            shares=card.shares,
            healthy=card.healthy,
            mode=Mode.MIG if card.mode == "mig" else Mode.HAMI_CORE,
            places=card.places,
        )
        for position, card in enumerate(by_minor(cards))
    )


def topology_annotation(cards: Sequence[SharedCard]) -> str:
    """``pumice.io/card-topology``, ours alone: where the cards sit and how they are linked; empty when nothing is known."""
    if all(card.numa < 0 and not card.links for card in cards):
        return ""
    return render_topology([CardPlace(card.uuid, card.numa, card.links) for card in by_minor(cards)])


def _none(value: str | int | float | None) -> bool:
    try:
        return value is None or parse_quantity(value) == 0
    except ValueError:
        return False


def _holds(node: Node, resource: str, value: int) -> bool:
    for table in (node.status.capacity, node.status.allocatable):
        try:
            if resource not in table or parse_quantity(table[resource]) != value:
                return False
        except ValueError:
            return False
    return True


class Handshake:
    """Answers older schedulers, which drop a node that does not report again (modes auto, always, never)."""

    MODES: Final = ("auto", "always", "never")

    def __init__(self, mode: str = "auto", answer_after: float = ANSWER_AFTER) -> None:
        self._mode, self._after = mode, answer_after
        self._seen: tuple[str, float] | None = None
        self._started = False
        self._written = float("-inf")

    def answer(self, value: str | None, monotonic: float, stamp: str) -> Effect | None:
        """The write that the present value calls for. ``stamp`` is the time as text, which no reader parses.

        A request is answered by our own clock since we first saw it; its timestamp is in the scheduler's zone.
        """
        first, self._started = not self._started, True
        if not self._due(value, monotonic, first):
            return None
        self._seen, self._written = None, monotonic
        return PatchNode({names.NODE_VGPU_HANDSHAKE: f"Reported {stamp}"})

    def _due(self, value: str | None, monotonic: float, first: bool) -> bool:
        if self._mode == "never":
            return False
        if self._mode == "always":
            return monotonic - self._written >= 30.0
        if value is None or "Deleted" in value:
            return True
        if "Requesting" not in value:
            self._seen = None
            return False
        if first:
            return True
        if self._seen is None or self._seen[0] != value:
            self._seen = (value, monotonic)
        return monotonic - self._seen[1] >= self._after
