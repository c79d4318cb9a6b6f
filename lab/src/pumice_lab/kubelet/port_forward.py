"""``kubectl port-forward``: connections to a pod's ports, each a pair of SPDY streams inside one WebSocket.

Source: Kubernetes, KEP-4006 "Transition from SPDY to WebSockets" (subprotocol ``SPDY/3.1+portforward.k8s.io``), and client-go,
tools/portforward: of each pair one stream carries the bytes and the other says what went wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from pumice_lab.kubelet.spdy import (
    Data,
    Event,
    Malformed,
    Opened,
    Ping,
    Reader,
    Reset,
    Writer,
    data_frame,
    reset_frame,
)

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
MOST_STREAMS = 200
_PIECE = 1 << 16
_HELD = 4
"""Frames that wait for a pod to read them; their client waits behind them."""
_PORT = re.compile("[0-9]{1,5}")
Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def connector(way: Callable[[], Awaitable[tuple[socket.socket, str]]]) -> Connect:
    """``way``: a socket that stands in the pod's network, and the address under which its programs listen there."""

    async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        made, address = await way()
        try:
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, (address, port))
            return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise

    return connect


@dataclass(slots=True)
class Connection:
    port: int
    errors: int = 0
    """The stream that says what went wrong."""
    sent: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_HELD))
    task: asyncio.Task[None] | None = None


class Forward:
    """One client, however it frames its streams. ``connect`` opens a connection to a port of the pod, and may raise OSError."""

    def __init__(self, socket: web.WebSocketResponse, connect: Connect) -> None:
        self._socket, self._connect = socket, connect
        self._open: dict[int, Connection] = {}

    async def serve(self) -> None:
        """Until the client leaves, or sends what cannot be read."""
        try:
            await self._begin()
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    break
                await self._read(message.data)
        except (Malformed, ConnectionError):
            pass
        finally:
            tasks = [one.task for one in self._open.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._socket.close()

    async def _begin(self) -> None:
        """Send the server's opening, before the client says anything."""

    async def _read(self, message: bytes) -> None:
        raise NotImplementedError

    async def _tell(self, stream: int, data: bytes, *, last: bool = False) -> None:
        raise NotImplementedError

    def start(self, stream: int, one: Connection) -> None:
        self._open[stream] = one
        one.task = asyncio.create_task(self._carry(stream, one))

    async def _carry(self, stream: int, one: Connection) -> None:
        problem = ""
        try:
            reader, writer = await self._connect(one.port)
            sending = asyncio.create_task(_send(one.sent, writer))
            try:
                while piece := await reader.read(_PIECE):
                    await self._tell(stream, piece)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                writer.close()
        except OSError as error:
            problem = f"failed to connect to localhost:{one.port} inside the pod: {error.strerror or error}"
        finally:
            if self._open.get(stream) is one:
                del self._open[stream]
        with contextlib.suppress(ConnectionError, RuntimeError):
            await self._tell(stream, b"", last=True)
            if one.errors:
                await self._tell(one.errors, problem.encode(), last=True)


class PortForward(Forward):
    """As kubectl speaks: SPDY inside of the WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, connect: Connect) -> None:
        super().__init__(socket, connect)
        self._reader, self._writer = Reader(), Writer()
        self._errors: dict[str, int] = {}  # request -> its stream for errors

    async def _read(self, message: bytes) -> None:
        for event in self._reader.feed(message):
            await self._take(event)

    async def _tell(self, stream: int, data: bytes, *, last: bool = False) -> None:
        await self._socket.send_bytes(data_frame(stream, data, last=last))

    async def _take(self, event: Event) -> None:
        match event:
            case Ping(frame):
                await self._socket.send_bytes(frame)
            case Opened(stream, headers):
                await self._opened(stream, headers.get("streamtype", ""), headers.get("port", ""), headers.get("requestid", ""))
            case Data(stream, data, last) if stream in self._open:
                one = self._open[stream]
                for piece in ([data] if data else []) + ([None] if last else []):
                    await hand(one, piece)
            case Reset(stream) if stream in self._open:
                task = self._open.pop(stream).task  # here, for a task that is cancelled before it begins does nothing at its end
                if task is not None:
                    task.cancel()

    async def _opened(self, stream: int, kind: str, port: str, request: str) -> None:
        known = stream in self._open or stream in self._errors.values()
        if known or len(self._open) + len(self._errors) >= MOST_STREAMS or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            await self._socket.send_bytes(reset_frame(stream))
            return
        await self._socket.send_bytes(self._writer.reply(stream))
        if kind == "error":
            self._errors[request] = stream
        else:
            self.start(stream, Connection(int(port), self._errors.pop(request, 0)))


async def hand(one: Connection, piece: bytes | None) -> None:
    """Waits while too much waits already, and no longer than the connection lasts."""
    putting = asyncio.ensure_future(one.sent.put(piece))
    await asyncio.wait([putting, *([one.task] if one.task else [])], return_when=asyncio.FIRST_COMPLETED)
    if not putting.done():
        putting.cancel()


async def _send(pieces: asyncio.Queue[bytes | None], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while (piece := await pieces.get()) is not None:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    while await pieces.get() is not None:  # so that nobody waits to hand over what nobody reads
        pass


# -- Forwarded ports as the Python clients of Kubernetes speak -------------------------------------------------------

# A WebSocket message is the number of a channel and its bytes.
# Source: Kubernetes, the kubelet's "portforward" by WebSocket (subprotocol ``v4.channel.k8s.io``). The query names
# the ports; of each the even channel carries the bytes and the odd one says what went wrong. Both begin with the
# port, two bytes little-endian.

CHANNELS = "v4.channel.k8s.io"
MOST_PORTS = 100
"""Two channels each, and a channel is a byte."""


def ports_asked(words: Iterable[str]) -> list[int]:
    """Those that the query names; kubectl names none there. Raises ValueError with a sentence."""
    requested = [word for text in words for word in text.split(",")]
    if len(requested) > MOST_PORTS:
        raise ValueError(f"{len(requested)} ports at once; {MOST_PORTS} at most")
    for word in requested:
        if not (word.isascii() and word.isdecimal() and len(word) < 6 and 0 < int(word) < 65536):
            raise ValueError(f"port {word[:20]!r} is none: 1 to 65535")
    return [int(word) for word in requested]


class ChannelForward(Forward):
    def __init__(self, socket: web.WebSocketResponse, connect: Connect, ports: list[int]) -> None:
        super().__init__(socket, connect)
        self._ports = ports

    async def _begin(self) -> None:
        for i, port in enumerate(self._ports):
            for channel in (2 * i, 2 * i + 1):
                await self._tell(channel, port.to_bytes(2, "little"))
        for i, port in enumerate(self._ports):
            self.start(2 * i, Connection(port, errors=2 * i + 1))

    async def _read(self, message: bytes) -> None:
        one = self._open.get(message[0]) if len(message) > 1 else None
        if one is not None:
            await hand(one, message[1:])

    async def _tell(self, stream: int, data: bytes, *, last: bool = False) -> None:
        if data:
            await self._socket.send_bytes(bytes((stream,)) + data)
        if last and stream % 2 and not self._open:  # the only way to say that nothing more comes
            await self._socket.close()
