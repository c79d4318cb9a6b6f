"""Ascend chips that MindCluster's plugin cuts on demand as a row of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pumice.devices.ascend_mindcluster.arguments import CoreArguments
from pumice.devices.device_type import CardRow, CardTenant, DeviceType, PluginCommand, Switch
from pumice.devices.settings import Settings
from pumice.model.hardware.npu import SliceKind, slice_kinds
from pumice.wire.device_config import DeviceConfig
from pumice.wire.mindcluster import BASE_DEVICES, NPU_CORE, SERVER_TYPE, chip_name, parse_assignment, parse_base_devices
from pumice.wire.objects import Node, Pod
from pumice.wire.our_devices import HAMI_NPUS, MINDCLUSTER

if TYPE_CHECKING:
    from pumice.devices.protocol import DeviceSharing


def card_rows(node: Node, pods: Sequence[Pod]) -> list[CardRow]:
    """Return the chips; ``cores`` is the part of their AI cores that is taken, in per cent."""
    if NPU_CORE not in node.status.capacity or BASE_DEVICES not in node.metadata.annotations:
        return []
    return [row for kind in slice_kinds().values() for row in _rows_of(kind, node, pods)]


def _rows_of(kind: SliceKind, node: Node, pods: Sequence[Pod]) -> list[CardRow]:
    chips = parse_base_devices(kind.name, node.metadata.annotations[BASE_DEVICES])[0]
    rows = {chip: CardRow(node.metadata.name, chip, chip_name(kind.name, chip), kind.name, 0) for chip in chips}
    size = node.metadata.labels.get(SERVER_TYPE, "").rpartition("-")[2]
    per_chip = next((cores for cores in kind.cpus if str(cores) == size), min(kind.cpus))
    for pod in pods:
        decided = parse_assignment(pod.metadata.annotations.get(NPU_CORE, ""))
        template = kind.templates.get(decided.template) if decided else None
        for chip in decided.chips if decided else ():
            if chip in rows:
                rows[chip].cores += 100 * template.cores // per_chip if template else 100
                rows[chip].holders.append(CardTenant(pod.key, 0, None, decided.template if decided else ""))
    return list(rows.values())


(_SWITCH,), (_OTHER,) = MINDCLUSTER.switches, HAMI_NPUS.switches


def device_types(config: DeviceConfig | None, settings: Settings) -> list[DeviceSharing]:
    from pumice.devices.ascend_mindcluster.scheduling import AscendMindCluster

    return [AscendMindCluster(settings, kind) for kind in slice_kinds().values()]


ASCEND_MINDCLUSTER = DeviceType(
    (
        Switch(
            _SWITCH, MINDCLUSTER.resource, device_types,
            ("deviceshare.ScheduleWeight", "pumice.NpuPolicy", "pumice.AvoidUnhealthyHosts"),
            complete=False,
            excludes={_OTHER: f"{_OTHER} and {_SWITCH} cannot both be true: they cut the same chips for two node plugins "
                              "that do not know of each other; keep one of them"},
        ),
    ),
    CoreArguments,
    PluginCommand("ascend", "pumice.devices.ascend_mindcluster.plugin.command",
                  "NODE_NAME=n1 pumice device-plugin ascend --config_file device-config.yaml"),
    PluginCommand("ascend", "pumice.devices.ascend_mindcluster.plugin.command", "pumice dra-driver ascend --node-name n1",
                  function="claims"),
    card_rows=card_rows,
)  # fmt: skip
