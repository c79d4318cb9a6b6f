"""Settings of plugin deviceshare from plain words: those of one device type beside those of all."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pumice.devices.ascend_mindcluster.arguments import CoreArguments
from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.settings import Settings


def device_settings(**told: Any) -> Settings:
    """``npu_policy`` and others that begin so are of the chips that are cut on demand."""
    of_all = {found.name for found in fields(Settings)}
    own = {key: value for key, value in told.items() if key not in of_all}
    cores = {key.removeprefix("npu_"): value for key, value in own.items() if key.startswith("npu_")}
    shares = {key: value for key, value in own.items() if not key.startswith("npu_")}
    sections = (VgpuArguments(**shares), CoreArguments(**cores))
    return Settings(**{key: told[key] for key in told if key in of_all}, sections=sections)
