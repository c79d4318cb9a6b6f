"""A small world for the plugin: an in-memory API server for one node, and a kubelet that speaks gRPC on a real socket."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.kubelet.proto import deviceplugin_pb2_grpc as rpc
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Json, Resource, WatchEvent


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge(target.get(key), value)
    return target


class FastClock(SystemClock):
    """Time that passes fifty times as fast, for pauses of seconds."""

    def monotonic(self) -> float:
        return super().monotonic() * 50

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 50)


class LittleCluster:
    """Objects by plural and name, with merge patches (refused when the uid differs) and watches."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.patches: list[tuple[str, str, Any]] = []
        self.events: list[Json] = []
        self.refuse: list[ApiError] = []
        self._queues: list[tuple[str, asyncio.Queue[WatchEvent]]] = []

    def put(self, plural: str, obj: Json) -> None:
        key = (plural, obj["metadata"]["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = copy.deepcopy(obj)
        self._tell(plural, kind, obj)

    def remove(self, plural: str, name: str) -> None:
        self._tell(plural, "DELETED", self.objects.pop((plural, name)))

    def notes(self, plural: str, name: str) -> dict[str, str]:
        found: dict[str, str] = self.objects[plural, name]["metadata"].get("annotations", {})
        return found

    def _tell(self, plural: str, kind: Any, obj: Json) -> None:
        for wanted, queue in self._queues:
            if wanted == plural:
                queue.put_nowait(WatchEvent(kind, json.dumps(obj).encode()))

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        try:
            obj = self.objects[resource.plural, name]
        except KeyError:
            raise ApiError(404, "NotFound", f"{resource.plural} {name} not found") from None
        if namespace and obj["metadata"].get("namespace", namespace) != namespace:
            raise ApiError(404, "NotFound", f"{resource.plural} {name} not found")
        return obj

    async def list(self, resource: Resource, namespace: str = "", **_: str) -> Json:
        return {"items": [obj for (plural, _), obj in self.objects.items() if plural == resource.plural]}

    async def create(self, resource: Resource, obj: Json, namespace: str = "", **_: str) -> Json:
        self.events.append(obj)
        return obj

    async def update(self, resource: Resource, obj: Json, *, subresource: str = "") -> Json:
        raise NotImplementedError

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "", *, subresource: str = "",
                    kind: str = "merge", params: Mapping[str, str] | None = None) -> Json:  # fmt: skip
        if self.refuse:
            raise self.refuse.pop(0)
        obj = await self.get(resource, name, namespace)
        uid = body.get("metadata", {}).get("uid")
        if uid and uid != obj["metadata"].get("uid"):
            raise ApiError(409, "Conflict", "the UID in the precondition does not match")
        self.patches.append((resource.plural, subresource, body))
        self.put(resource.plural, merge(obj, body))
        return self.objects[resource.plural, name]

    async def delete(self, resource: Resource, name: str, namespace: str = "", **_: Any) -> Json:
        raise NotImplementedError

    async def bind(self, namespace: str, name: str, body: bytes) -> None:
        raise NotImplementedError

    async def watch(self, resource: Resource, namespace: str = "", **_: str) -> AsyncIterator[WatchEvent]:
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        for (plural, _name), obj in self.objects.items():
            if plural == resource.plural:
                yield WatchEvent("ADDED", json.dumps(obj).encode())
        self._queues.append((resource.plural, queue))
        yield WatchEvent("SYNCED", b"")
        while True:
            yield await queue.get()


class FakeKubelet(rpc.RegistrationServicer):
    """Dials back on Register, follows the list, and calls Allocate as admissions would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.follows = True
        self.registered: list[str] = []
        self.lists: dict[str, dict[str, bool]] = {}
        self.options: dict[str, Any] = {}
        self._stubs: dict[str, Any] = {}
        self._channels: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._server: Any = None

    async def start(self) -> None:
        """As a kubelet does: every socket in the folder is deleted first."""
        for path in self.directory.glob("*.sock"):
            path.unlink()
        self._server = grpc.aio.server()
        rpc.add_RegistrationServicer_to_server(self, self._server)
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
        stub = rpc.DevicePluginStub(channel)
        self.options[request.resource_name] = await stub.GetDevicePluginOptions(pb.Empty(), timeout=60)
        self._channels.append(channel)
        self._stubs[request.resource_name] = stub
        if self.follows:
            self._tasks.append(asyncio.create_task(self._follow(request.resource_name, stub)))
        self.registered.append(request.resource_name)
        return pb.Empty()

    async def _follow(self, resource: str, stub: Any) -> None:
        async for message in stub.ListAndWatch(pb.Empty()):
            async with self._changed:
                self.lists[resource] = {device.ID: device.health == "Healthy" for device in message.devices}
                self._changed.notify_all()

    async def until(self, resource: str, fits: Any, timeout: float = 60.0) -> dict[str, bool]:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: resource in self.lists and fits(self.lists[resource]))
            return self.lists[resource]

    async def allocate(self, resource: str, count: int, ids: list[str] | None = None) -> Any:
        """Ask for preferred ids, then allocate them: one container of an admission."""
        stub = self._stubs[resource]
        if ids is None:
            free = [unit for unit, healthy in self.lists[resource].items() if healthy]
            request = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
            answer = await stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[request]))
            ids = list(answer.container_responses[0].deviceIDs)
        request = pb.ContainerAllocateRequest(devices_ids=ids)
        response = await stub.Allocate(pb.AllocateRequest(container_requests=[request]), timeout=60)
        return response.container_responses[0]


async def until(fits: Any, timeout: float = 60.0) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(timeout):
        while not fits():
            await asyncio.sleep(0.01)
