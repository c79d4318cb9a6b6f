"""The device families that one scheduler configuration switches on."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.families.nvidia_gpushare import NvidiaGpushare
from pumice.families.nvidia_vgpu import NvidiaVgpu
from pumice.families.protocol import Family
from pumice.families.settings import Settings, settings_from
from pumice.model.refusal import Refusal
from pumice.wire.device_config import DeviceConfig


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
    families: list[Family] = []
    if settings.vgpu:
        families.append(NvidiaVgpu(device_config, settings))
    if settings.gpu_sharing or settings.gpu_number:
        families.append(NvidiaGpushare(number=settings.gpu_number))
    return families
