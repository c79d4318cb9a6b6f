"""What a program finds in its environment, so that the library in front of the driver holds it to its share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pumice.local.booking import Booking
from pumice.local.processes import REGION_VARIABLE

SHARE = "PUMICE_SHARE"
"""Set inside a share, to its id."""
LIMITS = ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT")


def environment(booking: Booking, library: Path, neighbours: Path, present: Mapping[str, str]) -> dict[str, str]:
    """The program's whole environment. ``neighbours`` is the folder in which programs see each other's activity.

    The limits are the general variables: one card is shown, whatever numbers NVML and CUDA give it.
    """
    device = booking.device
    env = {name: value for name, value in present.items() if not name.startswith(LIMITS)}
    env |= {
        "LD_PRELOAD": ":".join((str(library), *filter(None, [present.get("LD_PRELOAD", "")]))),
        "CUDA_DEVICE_MEMORY_LIMIT": f"{device.memory}m",
        "CUDA_DEVICE_SM_LIMIT": str(device.cores),
        REGION_VARIABLE: booking.region,
        "CUDA_TASK_PRIORITY": str(booking.priority),
        "CUDA_VISIBLE_DEVICES": device.uuid,
        "PUMICE_VGPU_LOCK_DIRECTORY": str(neighbours),
        SHARE: booking.id,
    }
    return env
