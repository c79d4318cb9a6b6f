"""gRPC of the device manager: the Registration service on kubelet.sock, and one connection per plugin."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import grpc

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.ports.clock import Clock
from pumice_lab.kubelet.devices.checkpoint import allocation_from, device_from
from pumice_lab.kubelet.devices.manager import DeviceManager
from pumice_lab.kubelet.devices.plugin import Allocation, Options, PluginError, is_extended
from pumice_lab.kubelet.proto import services

log = logging.getLogger("pumice.kubelet")
VERSION = "v1beta1"
PRE_START_SECONDS = 30.0
SOCKET = "kubelet.sock"
_NO_KEEPALIVE_OF_CHANNELS = (("grpc.use_local_subchannel_pool", 1),)  # a new plugin on an old path is a new channel


class GrpcPlugin:
    """A plugin behind a socket. The list messages go to the device manager until the stream ends."""

    def __init__(self, path: Path) -> None:
        self._short = ShortPath(path)
        self._channel = grpc.aio.insecure_channel(self._short.target, options=_NO_KEEPALIVE_OF_CHANNELS)
        self.stub = services.client(self._channel, pb, "DevicePlugin")
        self.closed_by_us = False
        self._closing: asyncio.Task[None] | None = None

    async def connect(self, seconds: float) -> None:
        """Raises TimeoutError after so long."""
        async with asyncio.timeout(seconds):
            await self._channel.channel_ready()

    async def options(self, seconds: float | None) -> Options:
        answer = await self._call(self.stub.GetDevicePluginOptions(pb.Empty(), timeout=seconds))
        return Options(answer.pre_start_required, answer.get_preferred_allocation_available)

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str] | None:
        request = pb.PreferredAllocationRequest(container_requests=[pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size)])
        answer = await self._call(self.stub.GetPreferredAllocation(request))
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else None

    async def allocate(self, ids: Sequence[str]) -> Allocation | None:
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self._call(self.stub.Allocate(request))
        return allocation_from(answer.container_responses[0]) if answer.container_responses else None

    async def pre_start(self, ids: Sequence[str]) -> None:
        request = pb.PreStartContainerRequest(devices_ids=ids)
        await self._call(self.stub.PreStartContainer(request, timeout=PRE_START_SECONDS))

    async def _call(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise PluginError(go_status(error)) from error

    def close(self) -> None:
        if not self.closed_by_us:
            self.closed_by_us = True
            self._closing = asyncio.ensure_future(self.shut())

    async def shut(self) -> None:
        self.closed_by_us = True
        await self._channel.close()
        self._short.close()


def go_status(error: grpc.aio.AioRpcError) -> str:
    """A gRPC status as Go prints it: ``rpc error: code = Unknown desc = TEXT``."""
    name = "".join(part.capitalize() for part in error.code().name.split("_"))
    name = {"Cancelled": "Canceled", "Ok": "OK"}.get(name, name)
    return f"rpc error: code = {name} desc = {error.details()}"


class PluginServer:
    """kubelet.sock of one node. Every socket in the folder is deleted at the start; plugins must register again."""

    def __init__(self, directory: Path, manager: DeviceManager, clock: Clock, dial_seconds: float = 10.0) -> None:
        self.directory, self.manager, self.clock, self.dial_seconds = directory, manager, clock, dial_seconds
        self._server: grpc.aio.Server | None = None
        self._short: ShortPath | None = None
        self._streams: dict[asyncio.Task[None], GrpcPlugin] = {}

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_sockets(self.directory)
        self._short = ShortPath(self.directory / SOCKET)
        self._server = grpc.aio.server()
        services.serve(self._server, pb, "Registration", self)
        self._server.add_insecure_port(self._short.target)
        await self._server.start()

    async def stop(self) -> None:
        """Like a kubelet that ends: sockets stay where they are, plugins see their streams close."""
        await self._end_streams()
        if self._server is not None:
            await self._server.stop(0)
        await self._end_streams()  # of whoever registered meanwhile
        if self._short is not None:
            self._short.close()

    async def _end_streams(self) -> None:
        streams = dict(self._streams)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await asyncio.gather(*(plugin.shut() for plugin in streams.values()), return_exceptions=True)

    async def Register(self, request: Any, context: Any) -> Any:
        if request.version != VERSION:
            await context.abort(grpc.StatusCode.UNKNOWN, f'requested API version "{request.version}" is not supported '
                                f'by kubelet. Supported version is ["{VERSION}"]')
        if not is_extended(request.resource_name):
            await context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        plugin = GrpcPlugin(self.directory / Path(request.endpoint).name)
        try:
            await plugin.connect(self.dial_seconds)
            options = await plugin.options(context.time_remaining())
        except TimeoutError:
            await plugin.shut()
            await context.abort(grpc.StatusCode.UNKNOWN, "failed to dial device plugin: context deadline exceeded")
        except PluginError as error:
            await plugin.shut()
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to get device plugin options: {error}")
        except asyncio.CancelledError:  # the plugin has gone away again
            plugin.close()
            raise
        self.manager.connected(request.resource_name, plugin, options)
        task = asyncio.create_task(self._stream(request.resource_name, plugin), name=f"{request.resource_name} list")
        self._streams[task] = plugin
        task.add_done_callback(lambda done: self._streams.pop(done, None))
        log.info("device plugin registered resource=%s endpoint=%s", request.resource_name, request.endpoint)
        return pb.Empty()

    async def _stream(self, resource: str, plugin: GrpcPlugin) -> None:
        cause = "the plugin ended the stream"
        try:
            async for message in plugin.stub.ListAndWatch(pb.Empty()):
                self.manager.listed(resource, [device_from(device) for device in message.devices])
        except grpc.aio.AioRpcError as error:
            cause = go_status(error)
        except (grpc.aio.UsageError, asyncio.CancelledError):
            if not plugin.closed_by_us:
                raise
        except Exception as error:  # of ours: the plugin is as good as gone, and has to hear of it to register again
            log.exception("device list not taken resource=%s", resource)
            cause = repr(error)
        if plugin.closed_by_us:
            return
        log.warning("device plugin disconnected resource=%s cause=%s", resource, cause)
        self.manager.disconnected(resource, self.clock.monotonic())
        with contextlib.suppress(Exception):
            await plugin.shut()


# -- Unix sockets whose path may be longer than the 107 bytes that the kernel takes ----------------------------------

_LIMIT = 100


class ShortPath:
    """A path that is short enough for a unix socket: ``target`` for gRPC of a socket file; long paths go through a descriptor
    of their directory. Close after use."""

    def __init__(self, path: Path) -> None:
        self._fd = -1
        self.path = str(path)
        if len(os.fsencode(self.path)) > _LIMIT:
            self._fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._fd}/{path.name}"
        self.target = f"unix://{self.path}"

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def remove_sockets(directory: Path) -> None:
    """Delete every socket in a folder, as the kubelet does at its start."""
    for entry in directory.iterdir():
        if stat.S_ISSOCK(entry.lstat().st_mode):
            entry.unlink(missing_ok=True)
