"""One plugin endpoint on a unix socket: serves the device plugin protocol for one resource.

Lists are sent as ready-made bytes, once serialised for all streams. What a call means is decided elsewhere: the
endpoint turns messages into calls of ``Handler`` and a ``PluginError`` into a gRPC error whose text the pod shows.

Notices that a kubelet started: at its start it deletes every socket in its folder and makes ``kubelet.sock`` anew.

The new socket often has the old inode number, so inodes do not tell (ADR 120): inotify does, and where it
is refused, the change time together with the inode.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.model.errors import BadInput, PumiceError
from pumice.ports.clock import Clock

log = logging.getLogger("pumice.kubelet")

SERVICE = "v1beta1.DevicePlugin"
LONGEST_PATH = 107  # sun_path of a unix socket, less its NUL
GRACE = 5.0
"""Seconds for calls in flight when a plugin ends. The kubelet fails a pod for good whose call is cut off, and an Allocate may
wait for the pod's binding and for the API server before it answers."""


class PluginError(PumiceError):
    """An Allocate call is refused; the text ends up in the pod's status."""


class Handler(Protocol):
    """The calls that one endpoint answers. Requests of the kubelet have one container each."""

    async def allocate(self, ids: Sequence[str]) -> Any:
        """A ``ContainerAllocateResponse``. Raises PluginError."""
        ...

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]: ...

    async def pre_start(self, ids: Sequence[str]) -> None:
        """The runtime is about to make a container with these devices. Raises PluginError where it must not."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """Calls that the kubelet is to make beside Allocate: which devices, and before each start of a container."""

    preferred: bool = False
    pre_start: bool = False

    @property
    def message(self) -> Any:
        return pb.DevicePluginOptions(
            get_preferred_allocation_available=self.preferred, pre_start_required=self.pre_start
        )


class Endpoint:
    """A gRPC server on ``directory/name``.

    ``followed`` is set when the kubelet has opened its list stream, ``lost`` when that stream has ended.
    """

    def __init__(self, directory: Path, name: str, handler: Handler, options: Options | None = None) -> None:
        self.path = directory / name
        self.name = name
        self.followed = asyncio.Event()
        self.lost = asyncio.Event()
        self._handler, self._options = handler, options or Options()
        self._server: Any = None
        self._list = b""
        self._version = 0
        self._changed = asyncio.Condition()
        self._closing = False

    async def start(self) -> None:
        """Listen. Raises BadInput when the path cannot be a socket."""
        if len(str(self.path).encode()) > LONGEST_PATH:
            raise BadInput(f"{self.path}: a socket path has at most {LONGEST_PATH} bytes; use a shorter directory")
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._closing = False
        self.followed.clear()
        self.lost.clear()
        # An Allocate for memory units carries tens of thousands of ids; the receiver's limit is the kubelet's affair.
        server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        )
        server.add_generic_rpc_handlers((self._methods(),))
        try:
            server.add_insecure_port(f"unix://{self.path.absolute()}")
        except RuntimeError as error:
            raise BadInput(f"cannot listen on {self.path}: is the directory there and writable?") from error
        self._server = server  # before it starts: who is cancelled meanwhile stops it
        await server.start()

    async def stop(self, grace: float = GRACE) -> None:
        """Stop listening; calls in flight have ``grace`` seconds. The socket file goes away."""
        self._closing = True
        async with self._changed:
            self._changed.notify_all()
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    async def announce(self, devices: bytes) -> None:
        """Send a new list (a serialised ``ListAndWatchResponse``) on every stream, now and to come."""
        async with self._changed:
            if devices == self._list and self._version:
                return
            self._list, self._version = devices, self._version + 1
            self._changed.notify_all()

    def _methods(self) -> Any:
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(SERVICE, {
            "GetDevicePluginOptions": unary(self._get_options, *_codec(pb.Empty, pb.DevicePluginOptions)),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list_and_watch, request_deserializer=pb.Empty.FromString
            ),
            "GetPreferredAllocation": unary(
                self._get_preferred, *_codec(pb.PreferredAllocationRequest, pb.PreferredAllocationResponse)
            ),
            "Allocate": unary(self._allocate, *_codec(pb.AllocateRequest, pb.AllocateResponse)),
            "PreStartContainer": unary(
                self._pre_start, *_codec(pb.PreStartContainerRequest, pb.PreStartContainerResponse)
            ),
        })  # fmt: skip

    async def _get_options(self, request: Any, context: Any) -> Any:
        return self._options.message

    async def _list_and_watch(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        sent = 0
        self.followed.set()
        try:
            while not self._closing:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._closing or self._version > sent)  # noqa: B023
                    devices, sent = self._list, self._version
                if not self._closing:
                    yield devices
        finally:
            if not self._closing:
                log.info("the kubelet ended its stream endpoint=%s", self.name)
                self.lost.set()

    async def _get_preferred(self, request: Any, context: Any) -> Any:
        answers = []
        for ask in request.container_requests:
            ids = await self._handler.prefer(
                list(ask.available_deviceIDs), list(ask.must_include_deviceIDs), ask.allocation_size
            )
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=ids))
        return pb.PreferredAllocationResponse(container_responses=answers)

    async def _allocate(self, request: Any, context: Any) -> Any:
        answers = []
        for ask in request.container_requests:
            try:
                answers.append(await self._handler.allocate(list(ask.devices_ids)))
            except PluginError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.AllocateResponse(container_responses=answers)

    async def _pre_start(self, request: Any, context: Any) -> Any:
        try:
            await self._handler.pre_start(list(request.devices_ids))
        except PluginError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.PreStartContainerResponse()


def _codec(request: Any, response: Any) -> tuple[Any, Any]:
    return request.FromString, response.SerializeToString


def device_list(units: Sequence[tuple[str, bool, int]]) -> bytes:
    """A serialised ``ListAndWatchResponse`` of (id, healthy, NUMA node or -1)."""
    return bytes(pb.ListAndWatchResponse(devices=[_device(*unit) for unit in units]).SerializeToString())


def _device(unit: str, healthy: bool, numa: int) -> Any:
    where = pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa)]) if numa >= 0 else None
    return pb.Device(ID=unit, health="Healthy" if healthy else "Unhealthy", topology=where)


async def register(kubelet: Path, endpoint: str, resource: str, options: Options, timeout: float = 15.0) -> None:
    """Tell the kubelet on ``kubelet`` (its socket) about an endpoint that serves already.

    The kubelet dials back before it answers. Raises PluginError with its reason, or when it does not answer.
    """
    # The default authority would be the escaped path, which servers written in Go refuse.
    channel = grpc.aio.insecure_channel(
        f"unix://{kubelet.absolute()}", options=[("grpc.default_authority", "localhost")]
    )
    async with channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=pb.RegisterRequest.SerializeToString,
            response_deserializer=pb.Empty.FromString,
        )
        request = pb.RegisterRequest(
            version="v1beta1",
            endpoint=endpoint,
            resource_name=resource,
            options=options.message,
        )
        try:
            # The socket file is there before the kubelet listens on it.
            await call(request, timeout=timeout, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"the kubelet did not register {resource}: {error.details()}") from error


_CREATE, _MOVED_TO, _OVERFLOW = 0x100, 0x80, 0x4000
_EVENT = struct.Struct("iIII")


class Presence:
    """Tells of the starts of one kubelet. Use as ``async with watch(...) as presence``."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.started = asyncio.Event()

    def note(self) -> None:
        self.started.set()


@asynccontextmanager
async def watch(socket: Path, clock: Clock, poll: float = 2.0) -> AsyncIterator[Presence]:
    """Sets ``started`` whenever ``socket`` is made anew. The directory must exist."""
    presence = Presence(socket)
    descriptor = _inotify(socket.parent)
    loop = asyncio.get_running_loop()
    poller: asyncio.Task[None] | None = None
    if descriptor is None:
        poller = asyncio.create_task(_poll(presence, clock, poll))
    else:
        loop.add_reader(descriptor, _read, descriptor, presence)
    try:
        yield presence
    finally:
        if descriptor is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        if poller is not None:
            poller.cancel()
            with suppress(asyncio.CancelledError):
                await poller


def _inotify(directory: Path) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except AttributeError:
        return None
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _CREATE | _MOVED_TO) < 0:
        log.warning("no inotify on %s (%s); looking every 2 s", directory, os.strerror(ctypes.get_errno()))
        os.close(descriptor)
        return None
    return descriptor


def _read(descriptor: int, presence: Presence) -> None:
    try:
        data = os.read(descriptor, 65536)
    except BlockingIOError:
        return
    offset = 0
    while offset + _EVENT.size <= len(data):
        _, mask, _, length = _EVENT.unpack_from(data, offset)
        name = data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0")
        offset += _EVENT.size + length
        if name == os.fsencode(presence.socket.name) or mask & _OVERFLOW:  # nobody knows what was lost: it may have been this
            presence.note()


async def _poll(presence: Presence, clock: Clock, interval: float) -> None:
    known = _mark(presence.socket)
    while True:
        await clock.sleep(interval)
        mark = _mark(presence.socket)
        if mark is not None and mark != known:
            presence.note()
        known = mark


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_ctime_ns, stat.st_ino)
