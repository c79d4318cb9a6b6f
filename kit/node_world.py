"""A small world for a node's daemons: an API server that remembers, and a kubelet that speaks gRPC on a real socket.

It is played in virtual time: a plugin looks for something every second, so no jump is longer, and a call that
gRPC's threads are slow with costs a few of them and not the minute after which anybody gives up.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from kit.fake_cluster import FakeCluster
from kit.node_objects import NODE
from kit.virtual_time import under_way
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.apps.node.plugin import run_plugins
from pumice.ports.clock import Clock
from pumice_lab.kubelet.proto import services


def node_cluster(annotations: dict[str, str] | None = None, clock: Clock | None = None) -> FakeCluster:
    """An API server that knows the node."""
    cluster = FakeCluster(clock=clock)
    cluster.put({"kind": "Node", "metadata": {"name": NODE, "annotations": annotations or {}}, "status": {}})
    return cluster


class FakeKubelet:
    """Dials back on Register, follows the list, and calls Allocate as admissions would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.follows = True
        self.registered: list[str] = []
        self.lists: dict[str, dict[str, bool]] = {}
        self.numa: dict[str, dict[str, tuple[int, ...]]] = {}
        self.options: dict[str, Any] = {}
        self.answers: dict[frozenset[str], Any] = {}
        """To calls of ``allocate``, by the ids asked for."""
        self._stubs: dict[str, Any] = {}
        self._channels: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._server: Any = None

    async def start(self) -> None:
        """As a kubelet does: every socket in the folder is deleted first."""
        for path in self.directory.glob("*.sock"):
            path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        services.serve(self._server, pb, "Registration", self)
        self._server.add_insecure_port(f"unix://{self.directory / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close()
        await self._server.stop(None)
        self._tasks, self._channels, self.lists, self._stubs = [], [], {}, {}

    async def Register(self, request: Any, context: Any) -> Any:
        channel = grpc.aio.insecure_channel(
            f"unix://{self.directory / request.endpoint}", options=[("grpc.default_authority", "localhost")]
        )
        stub = services.client(channel, pb, "DevicePlugin")
        with under_way():
            self.options[request.resource_name] = await stub.GetDevicePluginOptions(pb.Empty(), timeout=60)
        self._channels.append(channel)
        self._stubs[request.resource_name] = stub
        if self.follows:
            self._tasks.append(asyncio.create_task(self._follow(request.resource_name, stub)))
        async with self._changed:
            self.registered.append(request.resource_name)
            self._changed.notify_all()
        return pb.Empty()

    async def _follow(self, resource: str, stub: Any) -> None:
        async for message in stub.ListAndWatch(pb.Empty()):
            async with self._changed:
                self.lists[resource] = {device.ID: device.health == "Healthy" for device in message.devices}
                self.numa[resource] = {d.ID: tuple(node.ID for node in d.topology.nodes) for d in message.devices}
                self._changed.notify_all()

    async def until_registered(self, *resources: str, timeout: float = 120.0) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: self.registered == [*resources])

    async def until(self, resource: str, fits: Any, timeout: float = 120.0) -> dict[str, bool]:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: resource in self.lists and fits(self.lists[resource]))
            return self.lists[resource]

    async def allocate(self, resource: str, count: int, ids: list[str] | None = None) -> Any:
        """Ask for preferred ids, then allocate them: one container of an admission."""
        stub = self._stubs[resource]
        if ids is None:
            units = await self.until(resource, lambda _: True)  # a registration is answered before its list is there
            free = [unit for unit, healthy in units.items() if healthy]
            request = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
            with under_way():
                answer = await stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[request]))
            ids = list(answer.container_responses[0].deviceIDs)
        request = pb.ContainerAllocateRequest(devices_ids=ids)
        with under_way():
            response = await stub.Allocate(pb.AllocateRequest(container_requests=[request]), timeout=60)
        self.answers[frozenset(ids)] = response.container_responses[0]
        return response.container_responses[0]

    def write_record(self, resource: str, *entries: tuple[str, str, str]) -> None:
        """Write down who, by (pod UID, container, id), holds devices, with the answers that they were given for."""
        found = [{"PodUID": uid, "ContainerName": name, "ResourceName": resource, "DeviceIDs": {"-1": [unit]},
                  "AllocResp": base64.b64encode(answer.SerializeToString() if answer else b"").decode()}
                 for uid, name, unit in entries for answer in (self.answers.get(frozenset((unit,))),)]  # fmt: skip
        record = {"Data": {"PodDeviceEntries": found, "RegisteredDevices": {}}, "Checksum": 1}
        (self.directory / "kubelet_internal_checkpoint").write_text(json.dumps(record))


@asynccontextmanager
async def plugin_served(settings: Any, device_type: Any, cluster: FakeCluster, clock: Clock) -> AsyncIterator[None]:
    """A device type's plugin, from when it is ready until it has ended."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(run_plugins(settings, device_type, cluster=cluster, clock=clock, rng=random.Random(1), stop=stop,
                                           ready=ready))  # fmt: skip
    try:
        await asyncio.wait_for(ready.wait(), 120)
        yield
    finally:
        stop.set()
        await task  # without a limit, for which time would jump: its gRPC server ends by threads of its own


async def until(fits: Any, timeout: float = 60.0) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(timeout):
        while not fits():
            await asyncio.sleep(0.01)
