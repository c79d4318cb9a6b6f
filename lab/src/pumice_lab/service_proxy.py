"""Keeps cluster addresses and names of Services leading to their endpoints: kube-proxy and name server of `pumice up`."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import msgspec

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Event
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster, Resource
from pumice.wire.kinds import ENDPOINT_SLICES, SERVICES
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import RoutedNetwork
from pumice_lab.network.services import service_names, without_effect

log = logging.getLogger("pumice.cluster.services")
SOONEST = 0.05
"""Seconds between two changes of the tables: a Deployment of a hundred pods becomes ready in as many steps."""
_AGAIN = 5.0


class ServiceProxy:
    """The proxy of Services on this machine. ``network``: None where pods share the machine's, in which no cluster address
    leads anywhere."""

    def __init__(self, cluster: Cluster, clock: Clock, rng: random.Random, names: PodNames,
                 network: RoutedNetwork | None) -> None:
        self.cluster, self.clock, self.names, self.network = cluster, clock, names, network
        self._events = EventRecorder(cluster, clock, "service-proxy", log, counts=True)
        self._objects: dict[Resource, dict[str, dict[str, Any]]] = {SERVICES: {}, ENDPOINT_SLICES: {}}
        self._synced: set[Resource] = set()
        self._reported: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. Raises what ends a watch."""
        async with asyncio.TaskGroup() as all_of_it:
            for work in (self._watch(SERVICES), self._watch(ENDPOINT_SLICES), self._keep(), self._events.run()):
                all_of_it.create_task(work)

    async def _watch(self, resource: Resource) -> None:
        known = self._objects[resource]
        async for event in self.cluster.watch(resource):
            if event.type == "SYNCED":
                self._synced.add(resource)
            elif event.type in ("ADDED", "MODIFIED", "DELETED"):
                obj = msgspec.json.decode(event.raw)
                known.pop(obj["metadata"]["uid"], None)
                if event.type != "DELETED":
                    known[obj["metadata"]["uid"]] = obj
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if len(self._synced) == len(self._objects):  # until all are known, what is known is not the whole
                await self._apply()
            await self.clock.sleep(SOONEST)

    async def _apply(self) -> None:
        services, slices = (list(self._objects[resource].values()) for resource in (SERVICES, ENDPOINT_SLICES))
        if self.network is not None and (why := await self.network.lead(services, slices)):
            log.warning("Services do not lead to their endpoints, trying again cause=%s", why)
            asyncio.get_running_loop().call_later(_AGAIN, self._changed.set)
        named = service_names(services, slices)
        self.names.serve(each for each in named if self.network is not None or each.headless)
        self._tell({each["metadata"]["uid"]: (each, without_effect(each, routed=self.network is not None)) for each in services})

    def _tell(self, found: dict[str, tuple[dict[str, Any], str]]) -> None:
        """On each object, once, what of it has no effect here."""
        for uid, (service, lacks) in found.items():
            if lacks and lacks != self._reported.get(uid):
                self._events.record(Event.on(service, "Warning", "WithoutEffect", lacks, api_version="v1", kind="Service"))
        self._reported = {uid: lacks for uid, (_, lacks) in found.items()}
