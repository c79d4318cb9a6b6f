"""What a program finds in its environment, so that the library in front of the driver holds it to its share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pumice.adapters.bookings.book import Booking
from pumice.adapters.bookings.processes import REGION_VARIABLE
from pumice.wire import variables

SHARE = variables.SHARE
"""Set inside a share, to its id."""
LIMITS = (variables.MEMORY_LIMIT, variables.SM_LIMIT)


def environment(booking: Booking, library: Path, neighbours: Path, present: Mapping[str, str], *,
                only_card: bool = False) -> dict[str, str]:  # fmt: skip
    """The program's whole environment. ``neighbours`` is the folder in which programs see each other's activity.

    Cards are named by UUID, for their numbers depend on who looks and when; where the machine has an ``only_card`` its number
    is sure, and programs that read nothing else (vLLM) run. What is the same on all cards is said by the general variables,
    whatever numbers NVML and CUDA give the cards.
    """
    env = {name: value for name, value in present.items() if not name.startswith(LIMITS)}
    limits = booking.limits
    for name, values in (
        (LIMITS[0], {index: f"{memory >> 20}m" for index, (memory, _) in limits.items()}),
        (LIMITS[1], {index: str(cores) for index, (_, cores) in limits.items()}),
    ):
        if len(set(values.values())) == 1:
            env[name] = next(iter(values.values()))
        else:
            env |= {f"{name}_{index}": value for index, value in values.items()}
    env |= {
        "LD_PRELOAD": ":".join((str(library), *filter(None, [present.get("LD_PRELOAD", "")]))),
        REGION_VARIABLE: booking.region,
        variables.TASK_PRIORITY: str(booking.priority),
        variables.CUDA_VISIBLE_DEVICES: "0" if only_card else ",".join(device.uuid for device in booking.devices),
        variables.SHARED_CARDS: ",".join(device.uuid for device in booking.devices),
        variables.LOCK_DIRECTORY: str(neighbours),
        SHARE: booking.id,
    }
    return env
