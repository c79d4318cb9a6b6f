"""A process of the machine relays the pods' traffic beyond their network."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import pytest

from pumice_lab.network.relay import Questions, carry, name_servers, original_destination


async def _shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers when the other side has said all, so that a half-closed connection must be passed on."""
    writer.write((await reader.read()).upper())
    writer.close()


def test_a_connection_is_carried_both_ways_also_half_closed() -> None:
    async def run() -> None:
        far = await asyncio.start_server(_shout, "127.0.0.1", 0)
        near = await asyncio.start_server(partial(carry, lambda _: far.sockets[0].getsockname()), "127.0.0.1", 0)
        async with far, near:
            reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
            writer.write(b"hello " * 100_000)
            writer.write_eof()
            assert await reader.read() == b"HELLO " * 100_000
            writer.close()

    asyncio.run(run())


def test_where_nobody_answers_the_pod_sees_its_connection_reset() -> None:
    async def run() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            near = await asyncio.start_server(partial(carry, lambda _: silent.getsockname()), "127.0.0.1", 0)
            async with near:
                reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
                with pytest.raises(ConnectionResetError):
                    await reader.readexactly(1)
                writer.close()

    asyncio.run(run())


def test_nobody_reaches_the_relay_itself_through_the_relay() -> None:
    async def run() -> None:
        near = await asyncio.start_server(partial(carry, original_destination), "127.0.0.1", 0)
        async with near:
            reader, writer = await asyncio.open_connection(*near.sockets[0].getsockname())
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()

    asyncio.run(run())


def test_a_question_is_answered_by_the_first_name_server_that_does() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()

        class Echo(asyncio.DatagramProtocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = transport

            def datagram_received(self, data: bytes, addr: object) -> None:
                self.transport.sendto(b"answer to " + data, addr)  # type: ignore[attr-defined]

        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.2", 0))
        port = server.get_extra_info("sockname")[1]
        relay, _ = await loop.create_datagram_endpoint(
            lambda: Questions(lambda: ["127.0.0.3", "127.0.0.2"], port), local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pod:
            pod.setblocking(False)
            pod.connect(relay.get_extra_info("sockname"))
            await loop.sock_sendall(pod, b"who?")
            async with asyncio.timeout(60):
                assert await loop.sock_recv(pod, 100) == b"answer to who?"
        relay.close()
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize(("text", "servers"), [
    ("search a\nnameserver 9.9.9.9\nnameserver fd00::1\n", ["9.9.9.9", "fd00::1"]), ("nameserver\n# no\n", ["127.0.0.1"]),
])  # fmt: skip
def test_name_servers_are_those_of_resolv_conf(text: str, servers: list[str]) -> None:
    assert name_servers(text) == servers
