"""MindCluster's ClusterD as `pumice up` plays it (component/clusterd of MindCluster): it gathers what the nodes' components
tell of chips and hosts into few ConfigMaps, which schedulers follow. What has a wrong check code it drops, as ClusterD does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from pumice.effects.tasks import run_until
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource
from pumice.wire.device_reports import (
    DEVICES,
    GATHERED_NAMESPACE,
    OWN_LABEL,
    own_body,
    render_gathered_devices,
    render_gathered_hosts,
)
from pumice.wire.kinds import CONFIGMAPS, NAMESPACES
from pumice.wire.objects import ConfigMap, decode

log = logging.getLogger("pumice.cluster.clusterd")

NODES_OF_ONE: Final = 500
"""Nodes whose devices one ConfigMap holds: 1 MiB is the most that one may have."""


async def run(cluster: Cluster, clock: Clock, stop: asyncio.Event) -> None:
    """Gather until ``stop``."""
    found = Gathered()
    changed = asyncio.Event()

    async def follow() -> None:
        async for event in cluster.watch(CONFIGMAPS, label_selector=OWN_LABEL):
            gone = event.type == "DELETED"
            if (gone or event.type in ("ADDED", "MODIFIED")) and found.take(decode(ConfigMap, event.raw), deleted=gone):
                changed.set()

    async def write() -> None:
        written: dict[str, Json] = {}
        while True:
            await changed.wait()
            changed.clear()
            try:
                await _write(cluster, found.config_maps(), written)
            except ApiError as error:
                log.warning("what the nodes tell was not gathered: %s", error)
                changed.set()
            await clock.sleep(1.0)

    await run_until(stop, follow(), write())


class Gathered:
    """The newest valid report of each node, by its subject."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, str], Mapping[str, Any]] = {}

    def take(self, reported: ConfigMap, *, deleted: bool = False) -> bool:
        """Return True if anything is new."""
        about, node, body = own_body(reported)
        if not about:
            return False
        key = (about, node)
        if deleted:
            return self._bodies.pop(key, None) is not None
        if body is None:
            log.warning("ConfigMap %s is dropped: its check code is not that of what it says", reported.metadata.name)
            return False
        changed = self._bodies.get(key) != body
        self._bodies[key] = body
        return changed

    def config_maps(self) -> list[Json]:
        """ClusterD's, as they are to be now."""
        devices = sorted((node, body) for (about, node), body in self._bodies.items() if about == DEVICES)
        parts = [devices[at : at + NODES_OF_ONE] for at in range(0, max(1, len(devices)), NODES_OF_ONE)]
        hosts = {node: body for (about, node), body in self._bodies.items() if about != DEVICES}
        return [*(render_gathered_devices(dict(part), at) for at, part in enumerate(parts)), render_gathered_hosts(hosts)]


async def _write(cluster: Cluster, wanted: list[Json], written: dict[str, Json]) -> None:
    for body in wanted:
        name = body["metadata"]["name"]
        if written.get(name) == body:
            continue
        try:
            await cluster.patch(CONFIGMAPS, name, body, GATHERED_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            await _create(cluster, NAMESPACES, {"metadata": {"name": GATHERED_NAMESPACE}})
            await cluster.create(CONFIGMAPS, body, GATHERED_NAMESPACE)
        written[name] = body


async def _create(cluster: Cluster, kind: Resource, body: Json) -> None:
    try:
        await cluster.create(kind, body)
    except ApiError as error:
        if error.code != 409:
            raise
