"""Forwarded ports with real programs in a pod, as kubectl's port-forward speaks; and what a connection sends that is no SPDY."""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import pytest
from kit.real_node import Cases, Cluster

from pumice_lab.kubelet import spdy
from pumice_lab.kubelet.port_forward import CHANNELS, MOST_STREAMS, PROTOCOL

PORT = 18080
SERVER = f"""
import os, socket, threading
server = socket.create_server((os.environ["IP"], {PORT}))
def echo(made):
    while (piece := made.recv(65536)) and not piece.startswith(b"stop"):
        made.sendall(piece.upper())
    made.close()
while True:
    threading.Thread(target=echo, args=(server.accept()[0],)).start()
"""
IP = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
TABLE = [{"name": "c", "image": "i", "command": [sys.executable, "-c", SERVER], "env": [IP]}]


class Forwarded:
    """The client's end."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.writer, self.reader, self.next, self.requests = socket, spdy.Writer(), spdy.Reader(), 1, 0

    async def open(self, port: object) -> tuple[int, int]:
        """(Stream of errors, stream of data)."""
        streams = []
        for kind in ("error", "data"):
            headers = {"streamtype": kind, "port": str(port), "requestid": str(self.requests)}
            await self.socket.send_bytes(self.writer.opened(self.next, headers))
            streams.append(self.next)
            self.next += 2
        self.requests += 1
        await self.socket.send_bytes(spdy.data_frame(streams[0], b"", last=True))
        return streams[0], streams[1]

    async def answered(self, words: bytes) -> bytes:
        """Return the output of the pod's program on its streams."""
        errors, data = await self.open(PORT)
        await self.socket.send_bytes(spdy.data_frame(data, words, last=True))
        return (await self.until_last(errors, data))[data]

    async def until_last(self, *streams: int) -> dict[int, bytes]:
        """Return the bytes of these streams until each has ended."""
        found: dict[int, bytes] = dict.fromkeys(streams, b"")
        left = set(streams)
        while left:
            message = await self.socket.receive(timeout=30)
            for event in self.reader.feed(message.data):
                if isinstance(event, spdy.Data):
                    found[event.stream] = found.get(event.stream, b"") + event.data
                    left -= {event.stream} if event.last else set()
                elif isinstance(event, spdy.Reset):
                    left.discard(event.stream)
        return found


def forward(cluster: Cluster) -> Any:
    return cluster.exec("p", protocol=PROTOCOL, subresource="portforward")


async def serving(cluster: Cluster) -> None:
    """A pod that answers in capitals."""
    await cluster.pod("p", "", containers=TABLE)
    await cluster.until("p", "Running")
    for _ in range(300):  # until its program listens
        async with forward(cluster) as socket:
            if await Forwarded(socket).answered(b"x") == b"X":
                return
    raise TimeoutError


def test_many_connections_share_one_and_each_gets_its_own_answer(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        async with forward(cluster) as socket:
            client = Forwarded(socket)
            pairs = [await client.open(PORT) for _ in range(5)]
            for i, (_, data) in enumerate(pairs):
                for _ in range(10):
                    await socket.send_bytes(spdy.data_frame(data, b"words of %d, " % i * 4_000))
                await socket.send_bytes(spdy.data_frame(data, b"end", last=True))
            found = await client.until_last(*(stream for pair in pairs for stream in pair))
            assert [found[data] for _, data in pairs] == [b"WORDS OF %d, " % i * 40_000 + b"END" for i in range(5)]
            assert [found[errors] for errors, _ in pairs] == [b""] * 5

    on_cluster(work)


def test_a_program_that_goes_while_it_is_sent_to_holds_nobody_up(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        async with forward(cluster) as socket:
            client = Forwarded(socket)
            errors, data = await client.open(PORT)
            await socket.send_bytes(spdy.data_frame(data, b"stop"))
            for _ in range(200):
                await socket.send_bytes(spdy.data_frame(data, bytes(100_000)))
            await client.until_last(errors, data)
            assert await client.answered(b"on") == b"ON", "the others go on"

    on_cluster(work)


def test_a_port_where_nobody_listens_is_told_on_the_stream_of_errors(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        async with forward(cluster) as socket:
            client = Forwarded(socket)
            errors, data = await client.open(PORT + 1)
            assert b"failed to connect to localhost:18081 inside the pod" in (await client.until_last(errors, data))[errors]
            assert await client.answered(b"on") == b"ON", "the others go on"

    on_cluster(work)


def channels(cluster: Cluster, ports: str, protocol: str = CHANNELS) -> Any:
    """As the Python clients of Kubernetes ask."""
    return cluster.exec("p", protocol=protocol, subresource="portforward", ports=ports)


async def said(socket: Any, *, until: bytes = b"") -> dict[int, bytes]:
    """Return the output by channel, until the first has sent that much, or all have ended."""
    found: dict[int, bytes] = {}
    async for message in socket:
        found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
        if until and found.get(0, b"").endswith(until):
            break
    return found


@pytest.mark.parametrize("protocol", [CHANNELS, ""])
def test_ports_named_in_the_query_are_channels_that_begin_with_their_number(on_cluster: Cases, protocol: str) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        number, other = PORT.to_bytes(2, "little"), (PORT + 1).to_bytes(2, "little")
        async with channels(cluster, f"{PORT},{PORT + 1}", protocol) as socket:
            for words in (b"some ", b"words"):
                await socket.send_bytes(b"\0" + words)
            found = await said(socket, until=b"WORDS")
            assert (found[0], found[1]) == (number + b"SOME WORDS", number)
            await socket.send_bytes(b"\0stop")
            await said(socket)  # which ends with the last of its connections
            async with channels(cluster, str(PORT + 1)) as alone:
                refused = await said(alone)
        assert refused[0] == other
        assert refused[1].startswith(other + b"failed to connect to localhost:18081 inside the pod")

    on_cluster(work)


@pytest.mark.parametrize("ports", ["0", "65536", "http", ",".join(["80"] * 101)])
def test_ports_that_are_none_are_refused_before_anything_is_opened(on_cluster: Cases, ports: str) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with channels(cluster, ports):
                pass
        assert refused.value.status == 400

    on_cluster(work)


TOO_LONG, WEB = b"\0\0\0\1\0\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"
NO_HEADERS = b"\x80\x03\0\1\0\0\0\x0c" + b"\xff" * 12


@pytest.mark.parametrize("sent", [TOO_LONG, WEB, NO_HEADERS])
def test_what_is_no_spdy_ends_that_connection_alone(on_cluster: Cases, sent: bytes) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        async with forward(cluster) as socket:
            await socket.send_bytes(sent)
            assert (await socket.receive(timeout=30)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        async with forward(cluster) as socket:
            client = Forwarded(socket)
            for port in ("none", 0, 65536):
                errors, data = await client.open(port)
                await client.until_last(errors, data)  # each is reset
            assert await client.answered(b"on") == b"ON", "the others go on"

    on_cluster(work)


def test_frames_are_read_however_they_are_cut() -> None:
    writer = spdy.Writer()
    headers = {"streamtype": "data", "port": "80", "requestid": "0"}
    ping = bytes.fromhex("8003000600000004") + b"abcd"
    sent = writer.opened(1, headers) + writer.opened(3, headers) + ping + spdy.data_frame(3, b"words", last=True)
    sent += spdy.reset_frame(1)
    whole = list(spdy.Reader().feed(sent))
    begun = [spdy.Opened(1, headers), spdy.Opened(3, headers)]
    assert whole == [*begun, spdy.Ping(ping), spdy.Data(3, b"words", True), spdy.Reset(1)]
    reader = spdy.Reader()
    assert [event for i in range(len(sent)) for event in reader.feed(sent[i : i + 1])] == whole
    with pytest.raises(spdy.Malformed):
        list(spdy.Reader().feed(spdy.data_frame(1, bytes(spdy.LONGEST_FRAME + 1))))


@pytest.mark.parametrize("port", ["²", "9" * 5000, "٣"])
def test_a_port_of_strange_digits_is_refused_like_any_other(on_cluster: Cases, port: str) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        async with forward(cluster) as socket:
            client = Forwarded(socket)
            await client.until_last(*await client.open(port))
            assert await client.answered(b"on") == b"ON", "the others go on"

    on_cluster(work)


def test_a_stream_that_is_opened_twice_or_reset_at_once_leaves_nothing_behind(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await serving(cluster)
        async with forward(cluster) as socket:
            client = Forwarded(socket)
            headers = {"streamtype": "data", "port": str(PORT), "requestid": "none"}
            for stream in range(10_001, 10_001 + 2 * MOST_STREAMS, 2):
                await socket.send_bytes(client.writer.opened(stream, headers) + spdy.reset_frame(stream))
            good = await client.open(PORT)
            await socket.send_bytes(client.writer.opened(good[1], headers))
            assert (await client.until_last(good[1]))[good[1]] == b"", "the second opening is reset, and the first goes on"
            await socket.send_bytes(spdy.data_frame(good[1], b"on", last=True))
            assert (await client.until_last(*good))[good[1]] == b"ON"

    on_cluster(work)
