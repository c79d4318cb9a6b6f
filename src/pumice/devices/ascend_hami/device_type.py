"""Ascend NPUs in HAMi's mode as a row of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pumice.devices.ascend_hami.card_rows import card_rows
from pumice.devices.device_type import DeviceType, Switch
from pumice.devices.settings import Settings
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig

if TYPE_CHECKING:
    from pumice.devices.protocol import Family

SWITCH = "deviceshare.AscendHAMiVNPUEnable"


def families(config: DeviceConfig | None, settings: Settings) -> list[Family]:
    from pumice.devices.ascend_hami.family import AscendHami

    return AscendHami.of_config(config, settings)


def remarks(settings: Settings, config: DeviceConfig | None) -> Iterator[str]:
    if SWITCH in settings.on and (config is None or config.vnpus is None):
        where = f"ConfigMap {settings.configmap_namespace}/{settings.configmap}"
        yield f"{where} says nothing of NPUs (vnpus in device-config.yaml); the chips and templates that are known are used"


ASCEND_HAMI = DeviceType(
    (
        Switch(
            SWITCH, f"{names.HUAWEI}Ascend*", families,
            ("deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight", "deviceshare.KnownGeometriesCMName",
             "deviceshare.KnowGeometriesCMName"),
            complete=False,
        ),
    ),
    remarks=remarks,
    card_rows=card_rows,
)  # fmt: skip
