"""Requests to servers that misbehave below HTTP: raw sockets that close, dribble, stay silent or say nonsense."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from kit.virtual_time import run_virtually

from pumice.adapters.kube import Access, KubeClient
from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError
from pumice.wire.kinds import PODS

Talk = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A socket whose connections are served by ``talk``, with what they heard."""

    talk: Talk
    connections: int = 0
    heard: list[str] = field(default_factory=list)
    """First lines of the requests, in order."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.talk(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def hear(self, reader: asyncio.StreamReader) -> tuple[str, bytes]:
        """One request: its head and its body."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heard.append(head.partition(" HTTP/")[0])
        lengths = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
        return head, await reader.readexactly(int(lengths[0])) if lengths else b""


def ok(body: bytes = b"{}", *fields: str, status: str = "200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "")).encode() + body


async def answering(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await server.hear(reader)
        writer.write(ok())


@asynccontextmanager
async def client_of(talk: Talk, prefix: str = "", timeout: float = 5.0) -> AsyncIterator[tuple[KubeClient, Server]]:
    server = Server(talk)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    access = Access(f"http://127.0.0.1:{port}{prefix}", None, lambda: "secret")
    async with KubeClient(access, rng=random.Random(1), timeout=timeout, user_agent="tester") as kube:
        yield kube, server
    listener.close()


def test_requests_one_after_another_share_a_connection() -> None:
    async def scenario() -> None:
        async with client_of(answering) as (kube, server):
            for _ in range(5):
                await kube.bind("default", "a", b"{}")
            assert server.connections == 1
            await asyncio.gather(*(kube.bind("default", "a", b"{}") for _ in range(8)))
            assert server.connections <= 8

    run_virtually(scenario())


def test_a_request_says_who_asks_for_what_and_quotes_what_is_not_plain() -> None:
    said: list[tuple[str, bytes]] = []

    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            said.append(await server.hear(reader))
            writer.write(ok())

    async def scenario() -> None:
        async with client_of(talk, prefix="/clusters/c1") as (kube, server):
            await kube.bind("default", "a", b'{"x":1}')
            await kube.get(PODS, "a b\r\nEvil: 1", "default")
            await kube.list(PODS, label_selector="app in (a, b)")
            assert server.heard == [
                "POST /clusters/c1/api/v1/namespaces/default/pods/a/binding",
                "GET /clusters/c1/api/v1/namespaces/default/pods/a%20b%0D%0AEvil:%201",
                "GET /clusters/c1/api/v1/pods?labelSelector=app+in+%28a,+b%29",
            ]
        head, body = said[0]
        for line in ("Authorization: Bearer secret", "User-Agent: tester", "Content-Type: application/json", "Content-Length: 7"):
            assert f"\r\n{line}\r\n" in head
        assert body == b'{"x":1}'
        assert "Content-Length" not in said[1][0]

    run_virtually(scenario())


@pytest.mark.parametrize(("verb", "sent"), [("GET", 2), ("PUT", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)])
def test_a_kept_connection_that_ends_under_a_request_is_replaced_only_for_what_may_be_sent_twice(verb: str, sent: int) -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.hear(reader)
        writer.write(ok())
        if server.connections == 1:
            await server.hear(reader)  # and hang up without a word
            return
        await answering(server, reader, writer)

    async def scenario() -> None:
        async with client_of(talk) as (kube, server):
            await kube.request("GET", "/first")
            if sent == 2:
                await kube.request(verb, "/second")
            else:
                with pytest.raises(ApiError) as unknown:
                    await kube.request(verb, "/second", body=b"{}")
                assert unknown.value.code == 0
            assert [line for line in server.heard if "second" in line] == [f"{verb} /second"] * sent
            await kube.request("POST", "/third", body=b"{}")  # the next one has a connection that works

    run_virtually(scenario())


def test_a_connection_that_the_server_closed_while_nobody_used_it_is_not_used() -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.hear(reader)
        writer.write(ok() + ok(status="408 Request Timeout"))

    async def scenario() -> None:
        async with client_of(talk) as (kube, server):
            for number in range(3):
                await kube.request("POST", f"/{number}", body=b"{}")
                await asyncio.sleep(0.02)  # its end arrives
            assert server.heard == ["POST /0", "POST /1", "POST /2"]

    run_virtually(scenario())


def test_a_connection_is_not_used_after_a_long_rest() -> None:
    async def scenario() -> None:
        async with client_of(answering) as (kube, server):
            await kube.bind("default", "a", b"{}")
            kube._lanes.kept = 0.0
            await kube.bind("default", "a", b"{}")
            assert server.connections == 2

    run_virtually(scenario())


def test_an_answer_never_reaches_another_request_than_its_own() -> None:
    """The first is given up before its answer comes; the second must not take that."""

    async def scenario() -> None:
        go = asyncio.Event()

        async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                head, _ = await server.hear(reader)
                if "slow" in head:
                    await go.wait()
                writer.write(ok(b'{"for":"slow"}' if "slow" in head else b'{"for":"quick"}'))

        async with client_of(talk) as (kube, server):
            await kube.request("GET", "/warm-up")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(kube.request("GET", "/slow"), 0.05)
            go.set()
            assert await kube.request("GET", "/quick") == b'{"for":"quick"}'
            assert server.connections == 2

    run_virtually(scenario())


HALVES = {
    "garbage": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a head": b"HTTP/1.1 200",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{",
    "nothing": b"",
    "half an object": ok(b'{"metadata": {"na'),
    "no object": ok(b"[1, 2]"),
    "a broken gzip": ok(b"\x1f\x8bnothing", "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("what", HALVES)
def test_nonsense_is_an_answer_of_which_nobody_knows_what_it_means(what: str) -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.hear(reader)
        writer.write(HALVES[what])

    async def scenario() -> None:
        async with client_of(talk) as (kube, server):
            for _ in range(2):
                with pytest.raises(ApiError) as refused:
                    await kube.get(PODS, "a", "default")
                assert refused.value.code == 0
            assert server.connections == 2

    run_virtually(scenario())


def test_a_server_that_dribbles_has_the_whole_time_and_no_more() -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await server.hear(reader)
        for letter in ok(b"{}" if "soon" in head else b" " * 5000):
            writer.write(bytes([letter]))
            await asyncio.sleep(0 if "soon" in head else 0.1)

    async def scenario() -> None:
        async with client_of(talk, timeout=2.0) as (kube, _):
            assert await kube.request("GET", "/soon") == b"{}"
            began = asyncio.get_running_loop().time()
            with pytest.raises(ApiError) as refused:
                await kube.request("GET", "/late")
            assert refused.value.reason == "Timeout"
            assert asyncio.get_running_loop().time() - began < 30

    run_virtually(scenario())


def test_of_requests_that_nobody_answers_each_is_given_up_in_its_own_time() -> None:
    async def silent(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.hear(reader)
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with client_of(silent) as (kube, _):
            began = asyncio.get_running_loop().time()

            async def ask(after: float, timeout: float) -> float:
                await asyncio.sleep(after)
                kube.timeout = timeout
                with pytest.raises(ApiError) as refused:
                    await kube.request("POST", "/x")
                assert refused.value.reason == "Timeout"
                return asyncio.get_running_loop().time() - began

            ended = await asyncio.gather(ask(0, 60), ask(10, 60), ask(20, 20), ask(30, 60))
            assert [round(each) for each in ended] == [60, 70, 40, 90]

    run_virtually(scenario())


def test_after_a_timeout_no_other_kept_connection_is_trusted() -> None:
    """Where a way is cut without a word, all of them are; each would cost a timeout of its own."""

    async def scenario() -> None:
        cut = asyncio.Event()

        async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = server.connections
            while True:
                await server.hear(reader)
                await asyncio.sleep(0.02)  # so that each of several has a connection of its own
                if number <= 4 and cut.is_set():
                    await asyncio.Event().wait()
                writer.write(ok())

        async with client_of(talk, timeout=2.0) as (kube, server):
            await asyncio.gather(*(kube.bind("default", "a", b"{}") for _ in range(4)))
            assert server.connections == 4
            cut.set()
            with pytest.raises(ApiError):
                await kube.bind("default", "a", b"{}")
            await kube.bind("default", "a", b"{}")
            assert server.connections == 5

    run_virtually(scenario())


def test_a_redirect_is_a_refusal_and_not_an_answer() -> None:
    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.hear(reader)
        writer.write(ok(b"<html>moved</html>", "Location: /login", status="302 Found"))

    async def scenario() -> None:
        async with client_of(talk) as (kube, _):
            with pytest.raises(ApiError) as refused:
                await kube.bind("default", "a", b"{}")
            assert refused.value.code == 302

    run_virtually(scenario())


def test_a_large_answer_comes_packed() -> None:
    body = b'{"items":[' + b",".join(b'"%d"' % random.Random(1).getrandbits(900) for _ in range(4000)) + b"]}"

    async def talk(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await server.hear(reader)
        assert "\r\nAccept-Encoding: gzip\r\n" in head
        packed = gzip.compress(body, 0)
        writer.write(ok(packed, "Content-Encoding: gzip"))

    async def scenario() -> None:
        async with client_of(talk) as (kube, _):
            assert await kube.request("GET", "/api/v1/pods") == body

    run_virtually(scenario())


@pytest.mark.parametrize("server", ["", "localhost:6443", "https://", "ftp://a", "https://a:99999"])
def test_an_address_that_is_none_is_refused_in_one_line(server: str) -> None:
    with pytest.raises(BadInput, match="no address of an API server"):
        KubeClient(Access(server, None, lambda: ""))
