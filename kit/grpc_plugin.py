"""A device plugin as a person would write it with grpcio, scripted by a test; and its registration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice_lab.kubelet.devices.grpc_plugin import ShortPath
from pumice_lab.kubelet.proto import services

Answer = Callable[[list[str]], Any]


def healthy(*ids: str) -> list[Any]:
    return [pb.Device(ID=ident, health="Healthy") for ident in ids]


def plain_answer(ids: list[str]) -> Any:
    return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(envs={"IDS": ",".join(sorted(ids))})])


class ScriptedPlugin:
    """``calls`` is what it was asked; ``push`` sends a list, ``push(None)`` ends the stream."""

    def __init__(self, devices: Sequence[Any], *, answer: Answer = plain_answer, prefers: Answer | None = None,
                 pre_start: bool = False) -> None:
        self.devices, self.answer, self.prefers = list(devices), answer, prefers
        self.options = pb.DevicePluginOptions(pre_start_required=pre_start,
                                              get_preferred_allocation_available=prefers is not None)
        self.calls: list[tuple[Any, ...]] = []
        self.delay = 0.0  # seconds that Allocate takes
        self.streams = 0
        self.stream_ended = asyncio.Event()
        self._pushes: asyncio.Queue[list[Any] | None] = asyncio.Queue()
        self._server: grpc.aio.Server | None = None

    def push(self, devices: Sequence[Any] | None) -> None:
        self._pushes.put_nowait(None if devices is None else list(devices))

    def allocations(self) -> list[list[str]]:
        return [call[1] for call in self.calls if call[0] == "allocate"]

    async def serve(self, path: Path) -> None:
        self._server = grpc.aio.server()
        services.serve(self._server, pb, "DevicePlugin", self)
        self._server.add_insecure_port(ShortPath(path).target)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return self.options

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.streams += 1
        self.stream_ended.clear()
        try:
            devices: list[Any] | None = self.devices
            while devices is not None:
                yield pb.ListAndWatchResponse(devices=devices)
                devices = await self._pushes.get()
        finally:
            self.stream_ended.set()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        (one,) = request.container_requests
        available, must = sorted(one.available_deviceIDs), sorted(one.must_include_deviceIDs)
        self.calls.append(("preferred", available, must, one.allocation_size))
        assert self.prefers is not None
        chosen = self.prefers([*must, *(i for i in available if i not in must)])[: one.allocation_size]
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=chosen)])

    async def Allocate(self, request: Any, context: Any) -> Any:
        (one,) = request.container_requests
        self.calls.append(("allocate", sorted(one.devices_ids)))
        await asyncio.sleep(self.delay)
        return self.answer(sorted(one.devices_ids))

    async def PreStartContainer(self, request: Any, context: Any) -> Any:
        self.calls.append(("pre_start", sorted(request.devices_ids)))
        return pb.PreStartContainerResponse()


async def register(directory: Path, resource: str, endpoint: str, version: str = "v1beta1") -> None:
    """Tell the kubelet. Raises grpc.aio.AioRpcError."""
    short = ShortPath(directory / "kubelet.sock")
    try:
        async with grpc.aio.insecure_channel(short.target) as channel:
            message = pb.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
            await services.client(channel, pb, "Registration").Register(message)
    finally:
        short.close()
