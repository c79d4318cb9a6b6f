"""A node's chips that are cut on demand and the pods on them."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.devices.card_rows import CardRow, Holder
from pumice.model.hardware.npu_slices import slice_kinds
from pumice.wire.mindcluster import BASE_DEVICES, KIND, NPU_CORE, chip_name, parse_assignment, parse_base_devices
from pumice.wire.objects import Node, Pod


def card_rows(node: Node, pods: Sequence[Pod]) -> list[CardRow]:
    """What of a chip's AI cores is taken, in per cent."""
    if NPU_CORE not in node.status.capacity or BASE_DEVICES not in node.metadata.annotations:
        return []
    chips = parse_base_devices(node.metadata.annotations[BASE_DEVICES])[0]
    rows = {chip: CardRow(node.metadata.name, chip, chip_name(chip), KIND, 0) for chip in chips}
    kind = slice_kinds()[KIND]
    per_chip = min(kind.cpus)
    for pod in pods:
        decided = parse_assignment(pod.metadata.annotations.get(NPU_CORE, ""))
        template = kind.templates.get(decided.template) if decided else None
        for chip in decided.chips if decided else ():
            if chip in rows:
                rows[chip].cores += 100 * template.cores // per_chip if template else 100
                rows[chip].holders.append(Holder(pod.key, 0, None, decided.template if decided else ""))
    return list(rows.values())
