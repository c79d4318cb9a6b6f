"""deviceshare: the seam to the device families (spec volcano-core 11.11).

The families filter, score and choose cards inside the placer; being in the file is what switches them on. How much their
score counts between nodes is ``Settings.node_weight`` (decision 2); ``enableNodeOrder: false`` makes it 0. The filter has no
switch: a card is only booked where it fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.engine.framework import Plugin
from pumice.wire.scheduler_conf import SchedulerConf


class DeviceShare(Plugin):
    name = "deviceshare"


def device_arguments(conf: SchedulerConf) -> Mapping[str, Any] | None:
    """The arguments that the families are made from; None when nothing switches devices on.

    Older files switch gpu sharing on in the predicates plugin; that still works, with or without deviceshare.
    """
    found: dict[str, Any] = {}
    predicates = conf.plugin("predicates")
    if predicates is not None:
        legacy = ("predicate.GPUSharingEnable", "predicate.GPUNumberEnable", "predicate.VGPUEnable")
        found.update({key: predicates.arguments[key] for key in legacy if key in predicates.arguments})
    deviceshare = conf.plugin("deviceshare")
    if deviceshare is not None:
        found.update(deviceshare.arguments)
        if not deviceshare.enabled("NodeOrder"):
            found["deviceshare.ScheduleWeight"] = 0
    return found if found or deviceshare is not None else None
