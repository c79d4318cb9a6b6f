"""The allocation that a bound pod already holds, by its annotations (spec ascend 12.3 and 13)."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.devices.ascend_hami.ask import NpuAsk
from pumice.devices.ascend_hami.fit import piece_of
from pumice.devices.ascend_hami.inventory import Facts
from pumice.devices.protocol import Inventory
from pumice.model.cards import Card, Grant
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import Refusal
from pumice.wire.ascend_hami import (
    NODE,
    SOFT,
    NpuDevice,
    NpuDevices,
    allocated_key,
    parse_npu_devices,
    parse_runtime,
    runtime_key,
)
from pumice.wire.objects import Pod, is_admitted, is_mirror


def replay_pod(
    family: str, pod: Pod, node: str, inventory: Inventory, chip: NpuChip, want: NpuAsk | None, handed: str = ""
) -> Grant | Refusal | None:
    """``want``: what its containers ask for, which nobody can change afterwards. A pod that the kubelet has admitted holds cards:
    where its annotation cannot name them, they may be any of the node's, and all are closed as long as it is there."""
    if pod.spec.node_name != node or is_mirror(pod):
        return None
    notes = pod.metadata.annotations
    text = handed or (notes.get(allocated_key(chip.word), "") if notes.get(NODE, node) == node else "")
    decoded = parse_npu_devices(text) if text else NpuDevices()
    reason = ""
    if want is not None and not handed and is_admitted(pod):
        reason = _contradiction(want, decoded, inventory.config)
    elif not text:
        return None
    doubts = [Refusal(d.field, f"pod {pod.key}: {d.text}") for d in decoded.doubts if d.field in inventory.config.by_uuid]
    if reason:
        doubts.append(Refusal("", f"pod {pod.key} holds NPUs and nothing says for certain which: {reason}"))
    soft = want is not None and want.soft
    told = {entry.uuid: entry.template for entry in parse_runtime(notes.get(runtime_key(chip.word), "")) or ()}
    slots = []
    for devices in decoded.slots:
        held = []
        for device in devices:
            place = inventory.config.by_uuid.get(device.uuid)
            if place is None:
                continue
            card = inventory.cards[place]
            kind = SOFT if soft else _template(device, card, chip, told)
            held.append(piece_of(card, device.memory, device.cores, kind))
        slots.append(tuple(held))
    if not any(slots):
        return Grant(family, node, (), tuple(doubts)) if doubts else None
    return Grant(family, node, tuple(slots), tuple(doubts))


def _template(device: NpuDevice, card: Card, chip: NpuChip, told: Mapping[str, str]) -> str:
    """The configuration may have changed since: then what the runtime was told counts."""
    if device.memory >= card.total:
        return ""
    if name := chip.slice_of(device.memory) or told.get(device.uuid, ""):
        return name
    size = chip.cut(device.memory)
    return "" if size is None else size.name


def _contradiction(want: NpuAsk, decoded: NpuDevices, facts: Facts) -> str:
    """Why these cannot be the pod's cards; empty where they can. Volcano writes no slots for containers without a request, and
    none for init containers; HAMi and we do."""
    if decoded.doubts:
        return decoded.doubts[0].text
    filled, wanted = decoded.filled, want.filled
    if len(filled) != len(wanted):
        return f"{len(filled)} containers are given cards and {len(wanted)} ask for some"
    for slot, devices in zip(wanted, filled, strict=True):
        if len(devices) != slot.count:
            return f"{len(devices)} cards are named where {slot.count} were asked for"
        if len({device.uuid for device in devices}) < len(devices):
            return f"card {devices[0].uuid[:100]} is named more than once"
        for device in devices:
            if device.uuid not in facts.by_uuid:
                return f"{device.uuid[:100]!r} is no card of the node"
            if device.memory < slot.memory or (want.soft and device.cores != slot.cores):
                named, asked = f"{device.memory} MB and cores {device.cores}", f"{slot.memory} MB and cores {slot.cores}"
                return f"{named} are named where {asked} were asked for"
    return ""
