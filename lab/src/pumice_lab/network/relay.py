"""The relay of what pods with a network of their own send beyond it, by the machine's network: TCP, and questions for names.

A process of its own: what pods load from outside does not pass through the cluster's event loop. Its listening sockets stand in
the router's namespace, everything that it opens itself in the machine's. So nothing is forwarded by the machine's kernel, whose
firewall and settings stay as they are. Standard library only. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

_ORIGINAL_DESTINATION = 80  # SO_ORIGINAL_DST, linux/netfilter_ipv4.h
_PIECE = 1 << 18
_ANSWER_SECONDS = 5.0
_RESOLVERS = "/etc/resolv.conf"
Target = tuple[str, int]


async def carry(target: Callable[[socket.socket], Target], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection of a pod, both ways, until both ends have closed."""
    try:
        far_reader, far_writer = await asyncio.open_connection(*target(writer.get_extra_info("socket")))
    except OSError:
        _reset(writer)
        return
    try:
        await asyncio.gather(_one_way(reader, far_writer), _one_way(far_reader, writer))
    except OSError:
        _reset(writer)
        _reset(far_writer)
    finally:
        writer.close()
        far_writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """So that a program sees a failure and not an end."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def original_destination(accepted: socket.socket) -> Target:
    """Return where the pod meant to go, before the router's rule led it here. Raises OSError for who came here on purpose."""
    answer = accepted.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
    port, address = struct.unpack_from("!2xH4s", answer)
    target = socket.inet_ntoa(address), port
    if target == accepted.getsockname():
        raise OSError("nothing was asked for")
    return target


def name_servers(resolv_conf: str) -> list[str]:
    words = [line.split() for line in resolv_conf.splitlines()]
    return [row[1] for row in words if len(row) > 1 and row[0] == "nameserver"] or ["127.0.0.1"]


def servers() -> list[str]:
    with contextlib.suppress(OSError), open(_RESOLVERS, encoding="utf-8") as file:
        return name_servers(file.read())
    return name_servers("")


class Questions(asyncio.DatagramProtocol):
    """Each question is asked of the machine's name servers in turn."""

    def __init__(self, servers: Callable[[], list[str]], port: int = 53) -> None:
        self._servers, self._port = servers, port
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, question: bytes, pod: Any) -> None:
        loop = asyncio.get_running_loop()
        for server in self._servers():
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            with contextlib.suppress(OSError, TimeoutError), socket.socket(family, socket.SOCK_DGRAM) as made:
                made.setblocking(False)
                made.connect((server, self._port))
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await loop.sock_sendall(made, question)
                    self._transport.sendto(await loop.sock_recv(made, 65535), pod)
                return


async def serve(sockets: dict[str, int], api: Target) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    targets: dict[str, Callable[[socket.socket], Target]] = {
        "api": lambda _: api, "names": lambda _: (servers()[0], 53), "out": original_destination}
    for name, target in targets.items():
        await asyncio.start_server(partial(carry, target), sock=socket.socket(fileno=sockets[name]), limit=_PIECE)
    await loop.create_datagram_endpoint(lambda: Questions(servers), sock=socket.socket(fileno=sockets["questions"]))
    loop.add_reader(0, over.set)  # nobody writes there: readable means that the cluster is gone
    await over.wait()


def main() -> None:
    """The argument: JSON of the listening sockets' descriptors, and the API server's host:port."""
    given = json.loads(sys.argv[1])
    host, _, port = given["api"].rpartition(":")
    asyncio.run(serve(given["sockets"], (host, int(port))))
