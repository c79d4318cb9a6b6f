"""The legacy sharing of NVIDIA cards, in its two ways, as a row of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumice.devices.device_type import DeviceType, PluginCommand, Switch
from pumice.devices.settings import Settings
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.our_devices import GPUSHARE, VGPU

if TYPE_CHECKING:
    from pumice.devices.protocol import DeviceSharing

SHARING, NUMBER = GPUSHARE.switches
_REPLACED = {VGPU.switches[0]: f"{{key}} and {VGPU.switches[0]} cannot both be true; vGPU replaces the legacy sharing"}


def by_memory(config: DeviceConfig | None, settings: Settings) -> list[DeviceSharing]:
    from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare

    return [NvidiaGpushare()]


def whole_cards(config: DeviceConfig | None, settings: Settings) -> list[DeviceSharing]:
    from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare

    return [NvidiaGpushare(number=True)]


NVIDIA_GPUSHARE = DeviceType(
    (
        Switch(SHARING, GPUSHARE.resource, by_memory, aliases=("predicate.GPUSharingEnable",), excludes=_REPLACED),
        Switch(NUMBER, names.GPU_NUMBER, whole_cards, aliases=("predicate.GPUNumberEnable",),
               excludes={SHARING: f"{SHARING} and {{key}} cannot both be true; keep one of them", **_REPLACED}),
    ),
    command=PluginCommand("gpushare", "pumice.devices.nvidia_gpushare.plugin.command",
                          "pumice device-plugin gpushare --node-name n1 --gpu-strategy share"),
)  # fmt: skip
