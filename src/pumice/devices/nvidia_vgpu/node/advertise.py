"""The node object as it should be, and the writes that bring it there: nothing is written that already stands.

Spec nvidia-device-plugin 9 (handshake with older schedulers), decision 17 (status).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.devices.nvidia_vgpu.node.annotations import register_annotation, topology_annotation
from pumice.devices.nvidia_vgpu.node.inventory import SharedCard, capacity
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.effects.vocabulary import NodeEffect, PatchNode, PatchStatus
from pumice.node.node_object import Leftovers, holds
from pumice.wire import names
from pumice.wire.objects import Node

ANSWER_AFTER: Final = 20.0
"""Seconds that a request of an older scheduler may stand: half the traffic, and well within its 60 s."""

OF_GPUSHARE: Final = Leftovers(names.GPU_MEMORY, (names.GPU_NUMBER,), (names.NODE_GPU_UNHEALTHY_IDS,))


@dataclass(frozen=True, slots=True)
class Advertisement:
    """The words of a node: annotations, and extended resources that the plugin itself keeps in the status."""

    annotations: Mapping[str, str]
    resources: Mapping[str, int]

    def missing(self, node: Node) -> list[NodeEffect]:
        """The writes that make ``node`` say it."""
        effects: list[NodeEffect] = []
        old_resources, old_notes = OF_GPUSHARE.of(node)
        notes = {key: text for key, text in self.annotations.items() if node.metadata.annotations.get(key) != text}
        if notes or old_notes:
            effects.append(PatchNode({**notes, **old_notes}))
        if old_resources or any(not holds(node, name, value) for name, value in self.resources.items()):
            kept = {name: str(value) for name, value in self.resources.items()}
            effects.append(PatchStatus({**kept, **old_resources}))
        return effects


def advertisement(
    cards: Sequence[SharedCard], sharing: Sharing, node: Node, *, in_status: bool, percentage: bool = False
) -> Advertisement:
    """Return what the node shall say of these cards. A register annotation that is there already is emptied with the last card.

    ``percentage``: schedulers that hold every resource against the node (Volcano from 1.13 on) find one for percentages there,
    with so much of it that it never stands in the way of what they decide by cards (spec 5).
    """
    register = register_annotation(cards)
    present = names.NODE_VGPU_REGISTER in node.metadata.annotations
    notes = {names.NODE_VGPU_REGISTER: register} if register or present else {}
    if topology := topology_annotation(cards):
        notes[names.CARD_TOPOLOGY] = topology
    resources = dict(capacity(cards, sharing)) if cards and in_status else {}
    if cards and percentage and sharing.percentage:
        resources[sharing.percentage] = 100 * sharing.split * len(cards)
    return Advertisement(notes, resources)


class Handshake:
    """Answers older schedulers, which drop a node that does not report again (modes auto, always, never)."""

    MODES: Final = ("auto", "always", "never")

    def __init__(self, mode: str = "auto", answer_after: float = ANSWER_AFTER) -> None:
        self._mode, self._after = mode, answer_after
        self._seen: tuple[str, float] | None = None
        self._started = False
        self._written = float("-inf")

    def answer(self, value: str | None, monotonic: float, stamp: str) -> NodeEffect | None:
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
