"""An API server without sockets, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pumice_lab.apiserver import ApiServer, Request, Response, open_storage

Json = dict[str, Any]
T = TypeVar("T")


class HandClock:
    """Time stands still until somebody waits; then it jumps to the end of the shortest wait."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        for _ in range(20):  # whoever has work does it first
            await asyncio.sleep(0)
        self.time += seconds


@dataclass
class InProcess:
    """Calls on an ``ApiServer`` as a client would make them."""

    server: ApiServer
    clock: HandClock

    async def call(
        self, method: str, path: str, body: Any = None, media: str = "application/json", **query: str
    ) -> Response:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": media, "user-agent": "test/1"}
        return await self.server.handle(Request(method, path, {k: [v] for k, v in query.items()}, headers, data))

    async def create(self, path: str, body: Json) -> Json:
        response = await self.call("POST", path, body)
        assert response.code == 201, response.body
        return response.json()


@pytest.fixture
def with_api(tmp_path: Path) -> Callable[[Callable[[InProcess], Coroutine[Any, Any, T]]], T]:
    """Runs a coroutine function with a fresh server; called again, it starts the server anew on the same data."""

    def run(work: Callable[[InProcess], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            storage = open_storage(tmp_path / "state.db")
            clock = HandClock()
            server = ApiServer(storage, clock, random.Random(3))
            await server.start()
            try:
                return await work(InProcess(server, clock))
            finally:
                storage.close()

        return asyncio.run(main())

    return run
