"""A client of the embedded API server without sockets: ports.cluster.Cluster over ``ApiServer.handle``.

The same list-and-watch as over HTTP, so relists and resumed watches are the real ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pumice.adapters.kube.verbs import Verbs
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError
from pumice_lab.apiserver import ADMIN, ApiServer, Request, User, open_storage


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


async def memory_cluster(clock: Clock, rng: random.Random | None = None) -> DirectCluster:
    """A fresh API server in memory and its client."""
    api = ApiServer(open_storage(":memory:"), clock, rng or random.Random(0))
    await api.start()
    return DirectCluster(api, clock)
