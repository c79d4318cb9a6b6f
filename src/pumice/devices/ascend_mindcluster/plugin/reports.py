"""Tells the cluster which of a node's chips are free and which are ill, as MindCluster's plugin does (spec ascend 29, 39.2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pumice.apps.service.own_node import OwnNode
from pumice.devices.ascend_mindcluster.node.keeper import State
from pumice.devices.ascend_mindcluster.node.telling import report
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.device_reports import render_own_devices
from pumice.wire.kinds import CONFIGMAPS

log = logging.getLogger("pumice.node")

ANEW: Final = 300.0
AT_MOST_EVERY: Final = 1.0
"""Seconds after which a report is written though it says the same, and between two of them (spec ascend 39.2)."""


class ChipReports:
    """One node's ConfigMap, written when it has something else to say, and once in a while."""

    def __init__(self, cluster: Cluster, own: OwnNode) -> None:
        self._cluster, self._own = cluster, own
        self._said: Any = None
        self._since = float("-inf")

    async def tell(self, chips: Mapping[int, str], sick: Mapping[str, str], state: State) -> None:
        """``chips``: UUIDs by physical id; ``sick``: why some take no pods, by UUID."""
        clock = self._own.clock
        info = report(chips, sick, state, int(clock.now()))
        if info["DeviceList"] == self._said and clock.monotonic() < self._since + ANEW:
            return
        try:
            await self._write(render_own_devices(self._own.name, info))
        except ApiError as error:
            log.warning("the report of this node's chips was not written: %s", error)
            return
        self._said, self._since = info["DeviceList"], clock.monotonic()

    async def _write(self, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        try:
            await self._cluster.patch(CONFIGMAPS, meta["name"], body, meta["namespace"])
        except ApiError as error:
            if error.code != 404:
                raise
            await self._cluster.create(CONFIGMAPS, body, meta["namespace"])
