"""The allocation that a bound pod already holds, by its annotations (spec deviceshare-nvidia 5.3, 8.4, 11)."""

from __future__ import annotations

from collections.abc import Callable

from pumice.devices.nvidia_vgpu.assignment import Statement, contradiction
from pumice.devices.nvidia_vgpu.inventory import Facts
from pumice.devices.protocol import Inventory
from pumice.model.cards import Card, Grant, Piece
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.nvidia_vgpu import PodDevice, PodDevices, parse_pod_devices
from pumice.wire.objects import Pod, PodSpec, is_admitted, is_mirror

TEXTS_KEPT = 128
"""Assignments remembered of a node; pods that come and go must not fill our memory."""


def replay_pod(
    family: str, pod: Pod, node: str, inventory: Inventory, said: Callable[[PodSpec], Statement], handed: str = ""
) -> Grant | Refusal | None:
    """Return what it holds of that node's cards; ``said``: what its containers ask for.

    None when the pod holds nothing here: no annotation, not bound to this node, or a set written for another one
    (D-46). Cards that the node does not register are not charged. Every container counts (D-21).

    ``handed``: what the node's plugin says that it has handed to the pod, which nobody but the plugin can write; it counts
    before the pod's annotation. Without it, a pod that the kubelet has admitted holds cards, and where its annotation cannot
    name them, they may be any of the node's: all are closed as long as it is there.
    """
    if pod.spec.node_name != node or is_mirror(pod):
        return None
    if handed:
        return _held(family, pod, node, inventory, parse_pod_devices(handed))
    notes = pod.metadata.annotations
    facts: Facts = inventory.config
    text = notes.get(names.VGPU_IDS, "") if notes.get(names.VGPU_NODE, node) == node else ""
    statement = said(pod.spec) if is_admitted(pod) else None
    if not text and statement is None:
        return None
    known = facts.read.get(text)
    if known is not None and known[0] is statement:
        return known[1]
    decoded = parse_pod_devices(text)
    reason = contradiction(statement, decoded, facts.by_uuid.__contains__) if statement is not None else ""
    found = _held(family, pod, node, inventory, decoded, reason)
    if isinstance(found, Grant) and not found.doubts:  # a doubt names the pod
        if len(facts.read) >= TEXTS_KEPT:
            facts.read.clear()
        facts.read[text] = statement, found
    return found


def _held(
    family: str, pod: Pod, node: str, inventory: Inventory, decoded: PodDevices, reason: str = ""
) -> Grant | Refusal | None:
    """``reason``: why the devices may be others than these."""
    facts: Facts = inventory.config
    who = pod.key
    doubts = [
        Refusal(doubt.field, f"pod {who}: {doubt.text}") for doubt in decoded.doubts if doubt.field in facts.by_uuid
    ]
    if reason:
        doubts.append(Refusal("", f"pod {who} holds cards and nothing says for certain which: {reason}"))
    containers = []
    for devices in decoded.containers:
        pieces = []
        for device in devices:
            index = facts.by_uuid.get(device.uuid)
            if index is None:
                continue
            piece, doubt = _piece(device, inventory.cards[index], facts)
            if doubt:
                doubts.append(Refusal(device.uuid, f"pod {who}: {doubt}"))
            if piece is not None:
                pieces.append(piece)
        containers.append(tuple(pieces))
    if not any(containers):
        return doubts[0] if len(doubts) == 1 else Grant(family, node, (), tuple(doubts)) if doubts else None
    return Grant(family, node, tuple(containers), tuple(doubts))


def _piece(device: PodDevice, card: Card, facts: Facts) -> tuple[Piece | None, str]:
    """(what to charge, what is doubtful about it)."""
    geometry = facts.geometries[card.index]
    as_written = Piece(card.index, card.uuid, device.memory, device.cores, device.memory)
    if device.slot < 0:
        return as_written, f"holds {card.uuid} as a whole although it is in MIG mode" if card.mode == "mig" else ""
    if geometry is None:
        return as_written, f"holds {device.id} but the card has no MIG geometry"
    if device.profile:
        outside = geometry.outside(device.profile, device.slot)
        if isinstance(outside, str):
            return as_written, f"holds {device.id} but {outside}"
        return Piece(card.index, card.uuid, outside.memory, device.cores, device.memory, outside), ""
    number = geometry.index.get(device.group)
    if number is None:
        return None, f"holds {device.id} but no group {device.group!r} is configured for {card.type}"
    group = geometry.groups[number]
    if device.slot >= len(group.memory):
        return None, f"holds {device.id} but group {device.group!r} has only the slots 0 to {len(group.memory) - 1}"
    slot = group.slot(device.slot)
    piece = Piece(card.index, card.uuid, slot.memory, device.cores, device.memory, slot)
    if device.memory > slot.memory:
        return piece, f"holds {device.id} with memory {device.memory}, more than the slot's {slot.memory} today"
    return piece, ""
