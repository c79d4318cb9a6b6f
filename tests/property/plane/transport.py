"""The device plugin protocol of one node without sockets: the plugin's own endpoint is called, a kill cuts calls off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import grpc
from kit.admitting import AdmittingKubelet

from pumice.adapters.kubelet.endpoint import GRACE, Endpoint, Handler, Options, PluginError, Presence
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.apps.node.registration import Transport
from pumice.ports.clock import Clock

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Link:
    """The endpoints that listen, by path, and the kubelet that runs."""

    def __init__(self) -> None:
        self.endpoints: dict[Path, MemoryEndpoint] = {}
        self.kubelet: MemoryKubelet | None = None
        self.presences: list[Presence] = []

    @property
    def transport(self) -> Transport:
        return Transport(partial(MemoryEndpoint, self), self._register, self._watch)

    def cut(self) -> None:
        """The plugin's process is gone: whoever waits for an answer of it hears so."""
        for endpoint in self.endpoints.values():
            for call in list(endpoint.calls):
                call.cancel()

    async def _register(self, kubelet: Path, endpoint: str, resource: str, options: Options) -> None:
        if self.kubelet is None:
            raise PluginError(f"the kubelet did not register {resource}: connection refused")
        try:
            await self.kubelet.Register(pb.RegisterRequest(endpoint=endpoint, resource_name=resource), None)
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"the kubelet did not register {resource}: {error.details()}") from error

    @asynccontextmanager
    async def _watch(self, socket: Path, clock: Clock) -> AsyncIterator[Presence]:
        presence = Presence(socket)
        self.presences.append(presence)
        try:
            yield presence
        finally:
            self.presences.remove(presence)


class MemoryEndpoint(Endpoint):
    def __init__(self, link: Link, directory: Path, name: str, handler: Handler, options: Options) -> None:
        super().__init__(directory, name, handler, options)
        self._link = link
        self.calls: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._closing = False
        self.followed.clear()
        self.lost.clear()
        self.path.touch()
        self._link.endpoints[self.path] = self

    async def stop(self, grace: float = GRACE) -> None:
        self._closing = True
        if self.calls:
            await asyncio.wait(self.calls, timeout=grace)
        async with self._changed:
            self._changed.notify_all()
        if self._link.endpoints.get(self.path) is self:
            del self._link.endpoints[self.path]
            self.path.unlink(missing_ok=True)

    async def answer(self, method: str, request: Any, timeout: float | None) -> Any:
        """Make one call, as the kubelet sees it. Raises AioRpcError."""
        if self._closing or self._link.endpoints.get(self.path) is not self:
            raise failure(UNAVAILABLE, "failed to connect to all addresses")
        handler = {"GetDevicePluginOptions": self._get_options, "GetPreferredAllocation": self._get_preferred,
                   "Allocate": self._allocate, "PreStartContainer": self._pre_start}[method]  # fmt: skip
        return await called(self.calls, asyncio.create_task(handler(request, _Context())), timeout)

    async def lists(self) -> AsyncIterator[Any]:
        stream = self._list_and_watch(pb.Empty(), None)
        try:
            async for message in stream:
                yield pb.ListAndWatchResponse.FromString(message)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]


async def called(calls: set[asyncio.Task[Any]], call: asyncio.Task[Any], timeout: float | None) -> Any:
    """Await a call among those under way. Raises AioRpcError where it takes too long, or its process is killed."""
    calls.add(call)
    call.add_done_callback(calls.discard)
    try:
        done, _ = await asyncio.wait([call], timeout=timeout)
    except asyncio.CancelledError:
        call.cancel()
        raise
    if not done:
        call.cancel()
        raise failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    if call.cancelled():
        raise failure(UNAVAILABLE, "Socket closed")
    return call.result()


class _Context:
    async def abort(self, code: Any, details: str) -> None:
        raise failure(code, details)


def failure(code: Any, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class Stub:
    def __init__(self, endpoint: MemoryEndpoint) -> None:
        self._endpoint = endpoint

    def __getattr__(self, method: str) -> Any:
        async def call(request: Any, timeout: float | None = None) -> Any:
            return await self._endpoint.answer(method, request, timeout)

        return call

    def ListAndWatch(self, request: Any) -> AsyncIterator[Any]:
        return self._endpoint.lists()


class MemoryKubelet(AdmittingKubelet):
    """The kubelet's device manager over a ``Link``. Its record lies in ``directory`` and outlives it."""

    def __init__(self, link: Link, directory: Path, rng: Random, cdi_folder: Path) -> None:
        super().__init__(directory, rng, cdi_folder)
        self._link = link

    async def start(self) -> None:
        for path in self.directory.glob("*.sock"):
            path.unlink(missing_ok=True)
        (self.directory / "kubelet.sock").touch()
        self._link.kubelet = self
        for presence in self._link.presences:
            presence.note()

    async def stop(self) -> None:
        self._link.kubelet = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self.lists, self._stubs = [], {}, {}
        self.options.clear()
        self.registered.clear()

    async def Register(self, request: Any, context: Any) -> Any:
        endpoint = self._link.endpoints.get(self.directory / request.endpoint)
        if endpoint is None:
            raise failure(UNAVAILABLE, "failed to connect to all addresses")
        stub = Stub(endpoint)
        self.options[request.resource_name] = await stub.GetDevicePluginOptions(pb.Empty(), timeout=60)
        self._stubs[request.resource_name] = stub
        self._tasks.append(asyncio.create_task(self._follow(request.resource_name, stub)))
        async with self._changed:
            self.registered.append(request.resource_name)
            self._changed.notify_all()
        return pb.Empty()

    async def _follow(self, resource: str, stub: Any) -> None:
        await super()._follow(resource, stub)
        if self._stubs.get(resource) is stub:  # all of its devices are unhealthy until it registers again
            self.lists[resource] = dict.fromkeys(self.lists.get(resource, ()), False)
