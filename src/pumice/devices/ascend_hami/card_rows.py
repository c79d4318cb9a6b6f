"""A node's NPUs in HAMi's mode and the pods on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pumice.devices.card_rows import CardRow, Holder
from pumice.wire import names
from pumice.wire.ascend_hami import allocated_key, parse_npu_devices, parse_npu_register
from pumice.wire.objects import Node, Pod


def card_rows(node: Node, pods: Sequence[Pod]) -> Iterator[CardRow]:
    for key, text in node.metadata.annotations.items():
        if key.startswith(names.NODE_NPU_REGISTER):
            yield from _by_memory(node.metadata.name, key.removeprefix(names.NODE_NPU_REGISTER), text, pods)


def _by_memory(node: str, word: str, register: str, pods: Sequence[Pod]) -> list[CardRow]:
    rows = [CardRow(node, c.index, c.id, word, c.memory, c.healthy) for c in parse_npu_register(register).cards]
    by_uuid = {row.uuid: row for row in rows}
    for pod in pods:
        for slot in parse_npu_devices(pod.metadata.annotations.get(allocated_key(word), "")).slots:
            for device in slot:
                row = by_uuid.get(device.uuid)
                if row is not None:
                    row.memory += device.memory
                    row.cores += device.cores
                    row.holders.append(Holder(pod.key, device.memory, device.cores or None))
    return rows
