"""Probing a port."""

from __future__ import annotations

import asyncio

import pytest

from pumice_jobs.apps.controller.makers import http_answers, tcp_answers


@pytest.mark.parametrize(("host", "port"), [
    ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("", 1), ("no.such.invalid", 1), ("." * 300, 1),
])  # fmt: skip
def test_an_address_that_is_none_is_no_answer(host: str, port: int) -> None:
    assert asyncio.run(tcp_answers(host, port, 2.0))
    assert asyncio.run(http_answers(f"http://{host}:{port}/", {"A": "b"}, 2.0))


def test_headers_that_are_none_are_no_answer() -> None:
    assert asyncio.run(http_answers("http://127.0.0.1:1/", {"A\r\nB": "c\r\nd"}, 2.0))


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    requested: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append(await reader.readline())
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def story() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await http_answers(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, 5.0)

    assert (asyncio.run(story()), requested) == ("", [b"GET / HTTP/1.1\r\n"])
