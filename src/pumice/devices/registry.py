"""The device families that there are, a row each, and those that one scheduler configuration switches on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumice.devices.ascend_hami.family import AscendHami
from pumice.devices.ascend_mindcluster.family import AscendMindCluster
from pumice.devices.nvidia_gpushare.family import NvidiaGpushare
from pumice.devices.nvidia_vgpu.family import NvidiaVgpu
from pumice.devices.protocol import Family
from pumice.devices.settings import Settings
from pumice.wire.device_config import DeviceConfig


@dataclass(frozen=True, slots=True)
class Brand:
    """``switch`` is the argument of plugin ``deviceshare`` that ``wanted`` finds in the settings. One brand may be several
    families: a type of NPU each."""

    switch: str
    wanted: Callable[[Settings], bool]
    make: Callable[[DeviceConfig | None, Settings], list[Family]]
    arguments: tuple[str, ...] = ()
    """Further arguments that mean something to it."""


POLICY = "deviceshare.SchedulePolicy"
BRANDS = (
    Brand("deviceshare.VGPUEnable", lambda settings: settings.vgpu, lambda config, settings: [NvidiaVgpu(config, settings)], (
        POLICY, "deviceshare.ScheduleWeight", "deviceshare.GPUExclusiveRules", "pumice.MigPolicy",
        "deviceshare.KnownGeometriesCMName", "deviceshare.KnowGeometriesCMName",
    )),
    Brand("deviceshare.GPUSharingEnable", lambda settings: settings.gpu_sharing, lambda config, settings: [NvidiaGpushare()]),
    Brand("deviceshare.GPUNumberEnable", lambda settings: settings.gpu_number,
          lambda config, settings: [NvidiaGpushare(number=True)]),
    Brand("deviceshare.AscendHAMiVNPUEnable", lambda settings: settings.ascend_hami, AscendHami.of_config,
          (POLICY, "deviceshare.ScheduleWeight", "deviceshare.KnownGeometriesCMName", "deviceshare.KnowGeometriesCMName")),
    Brand("deviceshare.AscendMindClusterVNPUEnable", lambda settings: settings.ascend_mindcluster, AscendMindCluster.of_config,
          ("deviceshare.ScheduleWeight", "pumice.NpuPolicy", "pumice.AvoidUnhealthyHosts")),
)  # fmt: skip


def families_from(settings: Settings, device_config: DeviceConfig | None = None) -> list[Family]:
    """The families that the arguments of plugin ``deviceshare`` ask for."""
    return [family for brand in BRANDS if brand.wanted(settings) for family in brand.make(device_config, settings)]


def every_family(device_config: DeviceConfig | None = None) -> list[Family]:
    """One of each, as it is without any settings: what they call things."""
    return [family for brand in BRANDS for family in brand.make(device_config, Settings())]


def remarks_on(settings: Settings, device_config: DeviceConfig | None) -> tuple[str, ...]:
    """What is switched on and not configured, a sentence each."""
    if settings.ascend_hami and (device_config is None or device_config.vnpus is None):
        where = f"ConfigMap {settings.configmap_namespace}/{settings.configmap}"
        return (f"{where} says nothing of NPUs (vnpus in device-config.yaml); the chips and templates that are known are used",)
    return ()
