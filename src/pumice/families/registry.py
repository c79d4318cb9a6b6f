"""The device families that there are, a row each, and those that one scheduler configuration switches on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pumice.families.nvidia_gpushare import NvidiaGpushare
from pumice.families.nvidia_vgpu import NvidiaVgpu
from pumice.families.protocol import Family
from pumice.families.settings import Settings, settings_from
from pumice.model.refusal import Refusal
from pumice.wire.device_config import DeviceConfig


@dataclass(frozen=True, slots=True)
class Brand:
    """``switch`` is the argument of plugin ``deviceshare`` that ``wanted`` finds in the settings."""

    switch: str
    wanted: Callable[[Settings], bool]
    make: Callable[[DeviceConfig | None, Settings], Family]
    arguments: tuple[str, ...] = ()
    """Further arguments that mean something to it."""


POLICY = "deviceshare.SchedulePolicy"
BRANDS = (
    Brand("deviceshare.VGPUEnable", lambda settings: settings.vgpu, NvidiaVgpu, (
        POLICY, "deviceshare.ScheduleWeight", "deviceshare.GPUExclusiveRules", "pumice.MigPolicy",
        "deviceshare.KnownGeometriesCMName", "deviceshare.KnowGeometriesCMName",
    )),
    Brand("deviceshare.GPUSharingEnable", lambda settings: settings.gpu_sharing, lambda config, settings: NvidiaGpushare()),
    Brand("deviceshare.GPUNumberEnable", lambda settings: settings.gpu_number,
          lambda config, settings: NvidiaGpushare(number=True)),
)  # fmt: skip


def families_for(
    arguments: Mapping[str, object], device_config: DeviceConfig | None = None
) -> list[Family] | Refusal:
    """The families for the arguments of plugin ``deviceshare``; a Refusal for an illegal combination.

    Warnings about aliases and unknown words are in ``settings_from(arguments).warnings``, and the weight of the node
    score in its ``node_weight``.
    """
    settings = settings_from(arguments)
    return settings if isinstance(settings, Refusal) else families_from(settings, device_config)


def families_from(settings: Settings, device_config: DeviceConfig | None = None) -> list[Family]:
    """The same from settings that were read before."""
    return [brand.make(device_config, settings) for brand in BRANDS if brand.wanted(settings)]


def every_family(device_config: DeviceConfig | None = None) -> list[Family]:
    """One of each, as it is without any settings: what they call things."""
    return [brand.make(device_config, Settings()) for brand in BRANDS]
