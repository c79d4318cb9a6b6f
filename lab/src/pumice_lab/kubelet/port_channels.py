"""Forwarded ports as the Python clients of Kubernetes speak: a WebSocket message is the number of a channel and its bytes.

Source: Kubernetes, the kubelet's "portforward" by WebSocket (subprotocol ``v4.channel.k8s.io``). The query names the ports; of
each the even channel carries the bytes and the odd one says what went wrong. Both begin with the port, two bytes little-endian.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from pumice_lab.kubelet.port_forward import Connect, Connection, Forward, hand

CHANNELS = "v4.channel.k8s.io"
MOST_PORTS = 100
"""Two channels each, and a channel is a byte."""


def ports_asked(words: Iterable[str]) -> list[int]:
    """Those that the query names; kubectl names none there. Raises ValueError with a sentence."""
    asked = [word for text in words for word in text.split(",")]
    if len(asked) > MOST_PORTS:
        raise ValueError(f"{len(asked)} ports at once; {MOST_PORTS} at most")
    for word in asked:
        if not (word.isascii() and word.isdecimal() and len(word) < 6 and 0 < int(word) < 65536):
            raise ValueError(f"port {word[:20]!r} is none: 1 to 65535")
    return [int(word) for word in asked]


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
