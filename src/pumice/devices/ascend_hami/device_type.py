"""Ascend NPUs in HAMi's mode as a row of the registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pumice.devices.device_type import CardRow, CardTenant, DeviceType, Switch
from pumice.devices.settings import Settings
from pumice.wire import names
from pumice.wire.ascend_hami import allocated_key, parse_npu_devices, parse_npu_register
from pumice.wire.device_config import DeviceConfig
from pumice.wire.objects import Node, Pod
from pumice.wire.our_devices import HAMI_NPUS

if TYPE_CHECKING:
    from pumice.devices.protocol import DeviceSharing

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
                    row.holders.append(CardTenant(pod.key, device.memory, device.cores or None))
    return rows


(SWITCH,) = HAMI_NPUS.switches


def device_types(config: DeviceConfig | None, settings: Settings) -> list[DeviceSharing]:
    from pumice.devices.ascend_hami.scheduling import AscendHami

    return AscendHami.of_config(config, settings)


def remarks(settings: Settings, config: DeviceConfig | None) -> Iterator[str]:
    if SWITCH in settings.on and (config is None or config.vnpus is None):
        where = f"ConfigMap {settings.configmap_namespace}/{settings.configmap}"
        yield f"{where} says nothing of NPUs (vnpus in device-config.yaml); the chips and templates that are known are used"


ASCEND_HAMI = DeviceType(
    (
        Switch(
            SWITCH, HAMI_NPUS.resource, device_types,
            ("deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight", "deviceshare.KnownGeometriesCMName",
             "deviceshare.KnowGeometriesCMName"),
            complete=False,
        ),
    ),
    remarks=remarks,
    card_rows=card_rows,
)  # fmt: skip
