"""Clients that do not read, do not write, or want very much: nobody waits for them, and what they held is given back."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from pumice_lab.apiserver import ADMIN, ApiServer, Request, Response, User, open_storage, serve, transport
from pumice_lab.apiserver.fairness import Turns
from pumice_lab.apiserver.http_types import SLICE, slices
from pumice_lab.apiserver.transport import Patience

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
Talk = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def served(work: Callable[[ApiServer, Talk], Awaitable[None]], patience: Patience | None = None) -> None:
    """Runs work on a listening server; its function sends a text on a new connection."""

    async def main() -> None:
        storage = open_storage(":memory:")
        api = ApiServer(storage)
        server = await serve(api, tokens={"secret": ADMIN, "other": User("other", groups=ADMIN.groups)}, patience=patience)
        writers: list[asyncio.StreamWriter] = []

        async def talk(text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
            writers.append(writer)
            writer.write(text.encode())
            return reader, writer

        try:
            await work(api, talk)
        finally:
            for writer in writers:
                writer.close()
            await server.close()
            storage.close()

    asyncio.run(main())


def get(path: str, token: str = "secret") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n"


def fill(api: ApiServer, count: int, size: int) -> None:
    for i in range(count):
        metadata = {"name": f"m{i:05}", "namespace": "default"}
        value = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a": "x" * size}}
        api.storage.put("v1/configmaps", "default", metadata["name"], value)


async def cut(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side ends the connection, within ten seconds."""
    async with asyncio.timeout(10):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
    return True


@pytest.mark.parametrize("beginning", ["", "GET /api HT", get(PODS)[:-2]])
def test_a_request_that_does_not_go_on_is_closed(beginning: str) -> None:
    async def work(api: ApiServer, talk: Talk) -> None:
        reader, _ = await talk(beginning)
        assert await cut(reader)

    served(work, Patience(head=0.2))


def test_a_body_that_does_not_arrive_is_a_408() -> None:
    async def work(api: ApiServer, talk: Talk) -> None:
        reader, _ = await talk(get(MAPS).replace("GET", "POST")[:-2] + "Content-Length: 100\r\n\r\n{")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")

    served(work, Patience(body=0.2))


def test_a_connection_between_requests_stays() -> None:
    async def work(api: ApiServer, talk: Talk) -> None:
        reader, writer = await talk(get("/version"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.5)
        writer.write(get("/api/v1/namespaces/none").encode())
        async with asyncio.timeout(10):
            while b"HTTP/1.1 404 " not in (line := await reader.readline()):
                assert line

    served(work, Patience(head=0.2))


@pytest.mark.parametrize("path", [f"{MAPS}?watch=1", MAPS])
def test_a_client_that_does_not_read_is_cut(path: str) -> None:
    async def work(api: ApiServer, talk: Talk) -> None:
        fill(api, 1500, 20_000)
        await api.storage.durable()
        reader, writer = await talk(get(path))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = 0
        async with asyncio.timeout(10):
            try:
                while data := await reader.read(1 << 16):
                    received += len(data)
            except ConnectionError:
                pass
        assert received < 1500 * 20_000 / 2

    served(work, Patience(stall=0.1))


def test_a_small_request_waits_for_slices_and_not_for_lists() -> None:
    async def work(api: ApiServer, talk: Talk) -> None:
        fill(api, 5000, 4_000)
        await api.storage.durable()
        lists = [await talk(get(MAPS)) for _ in range(10)]
        readers = [asyncio.create_task(_drain(reader)) for reader, _ in lists]
        await asyncio.sleep(0)
        done_before = []
        while not all(task.done() for task in readers):
            reader, writer = await talk(get("/version"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            done_before.append(sum(task.done() for task in readers))
        assert sum(done < 10 for done in done_before) >= 20, "so many small answers while the lists were sent"
        assert all(task.result() > 5000 * 4_000 for task in readers)

    served(work)


@pytest.mark.parametrize("path", [MAPS, f"{MAPS}?labelSelector=a%3Db", f"{MAPS}?watch=1"])
def test_a_turn_of_the_loop_makes_one_slice_however_many_long_answers_are_under_way(
        path: str, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    made: list[int] = []
    turn = 0

    def counting(parts: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in slices(parts):
            made.append(turn)
            yield chunk

    for module in ("transport", "verbs.watch"):
        monkeypatch.setattr(f"pumice_lab.apiserver.{module}.slices", counting)

    async def work(api: ApiServer, talk: Talk) -> None:
        def tick() -> None:
            nonlocal turn
            turn += 1
            ticking.append(loop.call_soon(tick))
            del ticking[:-1]

        fill(api, 2000, 1_000)
        await api.storage.durable()
        loop = asyncio.get_running_loop()
        ticking: list[asyncio.Handle] = []
        tick()
        lists = [await talk(get(path)) for _ in range(20)]
        readers = [asyncio.create_task(_drain(reader)) for reader, _ in lists]
        while len(made) < 100:
            await asyncio.sleep(0)
        ticking[0].cancel()
        for reader in readers:
            reader.cancel()
        assert len(made) == len(set(made))

    served(work)


def test_users_take_turns_and_so_do_the_answers_of_each() -> None:
    async def main() -> None:
        turns, order = Turns(), []

        async def answer(user: str, name: str) -> None:
            for _ in range(3):
                await turns.mine(user)
                order.append(name)

        async with asyncio.TaskGroup() as group:
            gone = group.create_task(answer("many", "cancelled"))
            for user, name in (("many", "a"), ("many", "b"), ("one", "c")):
                group.create_task(answer(user, name))
            await asyncio.sleep(0)
            gone.cancel()
        assert "".join(order) in ("acbcacbab", "cacbcabab")

    asyncio.run(main())


async def _drain(reader: asyncio.StreamReader) -> int:
    received = 0
    while data := await reader.read(1 << 16):
        received += len(data)
        if data.endswith(b"0\r\n\r\n"):
            break
    return received


async def _whole(stream: Any) -> list[bytes]:
    return [chunk async for chunk in stream]


def test_what_a_watch_begins_with_comes_in_slices() -> None:
    async def work(api: ApiServer, talk: Talk) -> None:
        from pumice_lab.apiserver import Request

        fill(api, 500, 2_000)
        await api.storage.durable()
        response = await api.handle(Request("GET", MAPS, {"watch": ["1"], "timeoutSeconds": ["1"]}))
        assert response.stream is not None
        chunks = await _whole(response.stream)
        assert max(len(chunk) for chunk in chunks) < 2 * SLICE
        assert sum(chunk.count(b"\n") for chunk in chunks) == 500

    served(work)


def test_of_hundreds_of_requests_that_one_user_sends_at_once_others_wait_for_few() -> None:
    order: list[str] = []

    async def work(api: ApiServer, talk: Talk) -> None:
        plain = api.handle

        async def handle(request: Request) -> Response:
            order.append(request.user.name)
            return await plain(request)

        api.handle = handle  # type: ignore[method-assign]
        connections = [await talk("") for _ in range(350)]
        _, last = await talk("")
        for _, writer in connections:
            writer.write(get(MAPS).encode())
        last.write(get(MAPS, "other").encode())
        for reader, _ in connections:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert len(order) == 351
        assert order.index("other") < 150

    served(work)


def test_a_turn_of_the_loop_takes_few_of_those_who_connect_at_once() -> None:
    """Each costs a handshake of TLS: five hundred in one turn are most of a second."""

    async def main() -> list[int]:
        storage = open_storage(":memory:")
        server = await serve(ApiServer(storage), tokens={})
        connected = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        taken = [len(server.connections)]
        while taken[-1] < 200:
            await asyncio.sleep(0)
            taken.append(len(server.connections))
        for each in connected:
            each.close()
        await server.close()
        storage.close()
        return taken

    taken = asyncio.run(main())
    assert max(after - before for before, after in pairwise(taken)) <= 32


def test_of_the_answers_that_one_user_does_not_read_so_many_are_held_as_kubernetes_answers_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two thousand lists of a namespace took a gigabyte."""
    monkeypatch.setattr(transport, "READS", 20)

    async def work(api: ApiServer, talk: Talk) -> None:
        fill(api, 300, 100_000)
        lines = [await talk(get(MAPS)) for _ in range(25)]
        first = [await reader.readline() for reader, _ in lines]
        assert Counter(line.split()[1] for line in first) == {b"200": 20, b"429": 5}
        assert b"Retry-After: 1" in await lines[first.index(b"HTTP/1.1 429 Too Many Requests\r\n")][0].readuntil(b"\r\n\r\n")
        reader, _ = await talk(get(MAPS, "other"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for _, writer in lines:
            writer.transport.abort()
        while True:  # what they held is given back
            reader, _ = await talk(get(f"{MAPS}/m00000"))
            if (await reader.readline()).startswith(b"HTTP/1.1 200"):
                return

    served(work)
