"""Whatever is sent to the API server is answered: no request of anybody is an error of the server's own."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from typing import Any

import pytest
from kit.seeds import chosen_seed
from kit.virtual_time import VirtualClock, run_virtually
from lab.tests.property.doors import Doors

from pumice_lab.apiserver import ApiServer, Request, Response, open_storage

SEED = chosen_seed()


class _Told(logging.Handler):
    """The server's log of its own errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def run(count: int, seed: int) -> Counter[int]:
    """How often which code was answered. Raises AssertionError with the request that the server could not answer."""
    reported = _Told()
    log = logging.getLogger("pumice.cluster.apiserver")
    log.addHandler(reported)
    try:
        return run_virtually(_knock(count, seed, reported))
    finally:
        log.removeHandler(reported)


async def _knock(count: int, seed: int, reported: _Told) -> Counter[int]:
    storage = open_storage(":memory:")
    server = ApiServer(storage, VirtualClock(), random.Random(seed), mounts_tokens=True)
    await server.start()
    doors, codes = Doors(random.Random(seed), server.backend), Counter[int]()
    try:
        for number in range(count):
            request = doors.request()
            said = (number, request.method, request.path, request.query, request.headers, request.body)
            response = await server.handle(request)
            codes[response.code] += 1
            assert not reported.records, (
                said,
                reported.records[0].exc_text or reported.records[0].getMessage(),
                reported.records[0].exc_info,
            )
            assert await _is_whole(request, response), (said, response.whole())
    finally:
        storage.close()
    return codes


async def _is_whole(request: Request, response: Response) -> bool:
    """Return whether an answer can be read, and is none that only the server is to blame for."""
    if response.stream is not None:
        first = asyncio.ensure_future(anext(response.stream, b""))
        await asyncio.wait((first,), timeout=0.1)
        if not first.done():
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        lines: Any = [] if first.cancelled() else first.result().splitlines()
        await response.stream.aclose()  # type: ignore[attr-defined]
        return all(json.loads(line)["type"] in ("ADDED", "BOOKMARK", "ERROR", "MODIFIED", "DELETED") for line in lines)
    body = response.whole()
    if response.code == 500 and json.loads(body)["message"].startswith("Internal error occurred: "):
        return "webhook" in json.loads(body)["message"]
    return not body or not response.content_type.startswith("application/json") or json.loads(body) is not None


def test_every_request_gets_an_answer() -> None:
    print(f"PUMICE_SEED={SEED}")
    codes = run(2_000, SEED)
    assert codes[201] > 30
    assert codes[200] > 100


@pytest.mark.soak
@pytest.mark.timeout(20_000)
def test_a_million_requests_get_an_answer() -> None:
    print(f"PUMICE_SEED={SEED}")
    for part in range(50):
        run(20_000, SEED + part)
