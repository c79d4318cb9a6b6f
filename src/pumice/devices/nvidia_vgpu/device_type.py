"""vGPU of NVIDIA cards as a row of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumice.devices.device_type import DeviceType, PluginCommand, Switch
from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.nvidia_vgpu.card_rows import card_rows
from pumice.devices.settings import Settings
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig

if TYPE_CHECKING:
    from pumice.devices.protocol import Family


def families(config: DeviceConfig | None, settings: Settings) -> list[Family]:
    from pumice.devices.nvidia_vgpu.family import NvidiaVgpu

    return [NvidiaVgpu(config, settings)]


NVIDIA_VGPU = DeviceType(
    (
        Switch(
            "deviceshare.VGPUEnable", names.VGPU_NUMBER, families,
            ("deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight", "deviceshare.GPUExclusiveRules", "pumice.MigPolicy",
             "deviceshare.KnownGeometriesCMName", "deviceshare.KnowGeometriesCMName"),
            aliases=("predicate.VGPUEnable",),
        ),
    ),
    VgpuArguments,
    PluginCommand("nvidia", "pumice.devices.nvidia_vgpu.plugin.command",
                  "pumice device-plugin nvidia --node-name n1 --device-split-count 4", upstream=True),
    card_rows=card_rows,
)  # fmt: skip
