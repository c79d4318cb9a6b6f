"""A client of the embedded API server without sockets: ports.cluster.Cluster over ``ApiServer.handle``.

The same list-and-watch as over HTTP, so relists and resumed watches are the real ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from kit.virtual_time import EPOCH
from pumice.adapters.kube.verbs import Verbs
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError
from pumice_lab.apiserver import ADMIN, ApiServer, Request, User, open_storage
from pumice_lab.apiserver.disk import Row


class Chunks:
    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream

    def iter_any(self) -> AsyncIterator[bytes]:
        return self._stream


class _Stream:
    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self.content = Chunks(stream)

    def close(self) -> None:
        """Nothing to hang up: the generator is collected with its last reference."""


class DirectCluster(Verbs):
    """``requests`` counts what was sent, by verb."""

    def __init__(self, api: ApiServer, clock: Clock, rng: random.Random | None = None, user: User = ADMIN) -> None:
        self.api, self.clock, self.rng, self.user = api, clock, rng or random.Random(0), user
        self.requests: dict[str, int] = {}

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json") -> bytes:
        self.requests[verb] = self.requests.get(verb, 0) + 1
        query = {key: [value] for key, value in (params or {}).items()}
        headers = {"content-type": content_type, "user-agent": "test"}
        answer = await self.api.handle(Request(verb, path, query, headers, body or b"", self.user))
        if answer.code >= 400:
            status = json.loads(answer.body)
            raise ApiError(answer.code, status.get("reason", ""), status.get("message", ""))
        return answer.whole()

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        query = {key: [value] for key, value in params.items()}
        answer = await self.api.handle(Request("GET", path, query, {}, b"", self.user))
        if answer.code >= 400 or answer.stream is None:
            status = json.loads(answer.body)
            raise ApiError(answer.code, status.get("reason", ""), status.get("message", ""))
        return _Stream(answer.stream)


async def memory_cluster(clock: Clock) -> DirectCluster:
    """A fresh API server in memory and its client."""
    return DirectCluster(await started(clock), clock)


Furnish = Callable[[ApiServer], Awaitable[None]]
_starts: dict[Furnish, tuple[list[Row], Any]] = {}


async def _nothing(api: ApiServer) -> None:
    pass


async def started(clock: Clock, furnish: Furnish = _nothing) -> ApiServer:
    """An API server in memory that has started and was furnished. Where virtual time begins, what that writes is the same for
    each test: it is played once, and read by later servers as after a restart; their numbers go on as if they had played it."""
    rng, storage = random.Random(0), open_storage(":memory:")
    if clock.now() != EPOCH:
        return await _play(ApiServer(storage, clock, rng), furnish)
    if furnish not in _starts:
        first = await _play(ApiServer(open_storage(":memory:"), clock, rng), furnish)
        stored = ((event.revision, event.change, event.stored) for event in first.storage._history)
        rows = [(revision, of.resource, of.namespace, of.name, change, of.data) for revision, change, of in stored]
        _starts[furnish] = rows, rng.getstate()
    rows, state = _starts[furnish]
    storage._disk.write(rows, [], 0)
    storage._open()
    rng.setstate(state)
    api = ApiServer(storage, clock, rng)
    await api.start()
    return api


async def _play(api: ApiServer, furnish: Furnish) -> ApiServer:
    await api.start()
    await furnish(api)
    return api
