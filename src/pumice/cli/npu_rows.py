"""Ascend NPUs and the pods on them, from API objects alone, in both ways of sharing them (spec ascend 5, 12, 28, 35)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pumice.cli.cards_table import CardRow, Holder, card_rows
from pumice.model.hardware.npu_slices import slice_kinds
from pumice.wire import names
from pumice.wire.ascend_hami import allocated_key, parse_npu_devices, parse_npu_register
from pumice.wire.mindcluster import BASE_DEVICES, KIND, NPU_CORE, chip_name, parse_assignment, parse_base_devices
from pumice.wire.objects import Node, Pod


def all_rows(nodes: Sequence[Node], pods: Sequence[Pod]) -> list[CardRow]:
    """GPUs and NPUs of all nodes."""
    alive = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    here: dict[str, list[Pod]] = {}
    for pod in alive:
        here.setdefault(pod.spec.node_name, []).append(pod)
    npus = [row for node in nodes for row in npu_rows(node, here.get(node.metadata.name, []))]
    return [*card_rows(nodes, pods), *npus]


def npu_rows(node: Node, pods: Iterable[Pod]) -> Iterator[CardRow]:
    """The node's NPUs of either sort; a chip that is cut on demand says in per cent what of its AI cores is taken."""
    pods, notes = list(pods), node.metadata.annotations
    for key, text in notes.items():
        if key.startswith(names.NODE_NPU_REGISTER):
            yield from _by_memory(node.metadata.name, key.removeprefix(names.NODE_NPU_REGISTER), text, pods)
    if NPU_CORE in node.status.capacity and BASE_DEVICES in notes:
        yield from _on_demand(node.metadata.name, parse_base_devices(notes[BASE_DEVICES])[0], pods)


def _by_memory(node: str, word: str, register: str, pods: list[Pod]) -> list[CardRow]:
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


def _on_demand(node: str, chips: Iterable[int], pods: list[Pod]) -> list[CardRow]:
    rows = {chip: CardRow(node, chip, chip_name(chip), KIND, 0) for chip in chips}
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
