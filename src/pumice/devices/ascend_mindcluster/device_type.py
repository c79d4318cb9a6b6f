"""Ascend chips that MindCluster's plugin cuts on demand as a row of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumice.devices.ascend_mindcluster.arguments import CoreArguments
from pumice.devices.ascend_mindcluster.card_rows import card_rows
from pumice.devices.device_type import DeviceType, PluginCommand, Switch
from pumice.devices.settings import Settings
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig

if TYPE_CHECKING:
    from pumice.devices.protocol import Family

_SWITCH, _OTHER = "deviceshare.AscendMindClusterVNPUEnable", "deviceshare.AscendHAMiVNPUEnable"


def families(config: DeviceConfig | None, settings: Settings) -> list[Family]:
    from pumice.devices.ascend_mindcluster.family import AscendMindCluster

    return [AscendMindCluster(settings)]


ASCEND_MINDCLUSTER = DeviceType(
    (
        Switch(
            _SWITCH, f"{names.HUAWEI}npu-core", families,
            ("deviceshare.ScheduleWeight", "pumice.NpuPolicy", "pumice.AvoidUnhealthyHosts"),
            complete=False,
            excludes={_OTHER: f"{_OTHER} and {_SWITCH} cannot both be true: they cut the same chips for two node plugins "
                              "that do not know of each other; keep one of them"},
        ),
    ),
    CoreArguments,
    PluginCommand("ascend", "pumice.devices.ascend_mindcluster.plugin.command",
                  "NODE_NAME=n1 pumice device-plugin ascend --config_file /device-config.yaml"),
    card_rows=card_rows,
)  # fmt: skip
