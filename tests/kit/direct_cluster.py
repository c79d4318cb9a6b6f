"""A client of the embedded API server without sockets: ports.cluster.Cluster over ``ApiServer.handle``.

The same list-and-watch as over HTTP, so relists and resumed watches are the real ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from pumice.adapters.kube.client import PATCH_TYPES
from pumice.adapters.kube.watch import list_and_watch
from pumice.cluster.apiserver import ADMIN, ApiServer, Request, User, open_storage
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Json, Resource, WatchEvent


class _Chunks:
    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream

    def iter_any(self) -> AsyncIterator[bytes]:
        return self._stream


class _Stream:
    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self.content = _Chunks(stream)

    def close(self) -> None:
        """Nothing to hang up: the generator is collected with its last reference."""


class DirectCluster:
    """``requests`` counts what was sent, by verb."""

    def __init__(self, api: ApiServer, clock: Clock, dice: random.Random | None = None, user: User = ADMIN) -> None:
        self.api, self.clock, self.dice, self.user = api, clock, dice or random.Random(0), user
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
        return answer.body

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        query = {key: [value] for key, value in params.items()}
        answer = await self.api.handle(Request("GET", path, query, {}, b"", self.user))
        if answer.code >= 400 or answer.stream is None:
            status = json.loads(answer.body)
            raise ApiError(answer.code, status.get("reason", ""), status.get("message", ""))
        return _Stream(answer.stream)

    async def _json(self, verb: str, path: str, obj: Any = None, **options: Any) -> Json:
        raw = await self.request(verb, path, body=None if obj is None else json.dumps(obj).encode(), **options)
        return json.loads(raw) if raw else {}

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        return await self._json("GET", resource.path(namespace, name))

    async def list(self, resource: Resource, namespace: str = "", *, label_selector: str = "",
                   field_selector: str = "") -> Json:
        params = {"labelSelector": label_selector, "fieldSelector": field_selector}
        return await self._json("GET", resource.path(namespace), params={k: v for k, v in params.items() if v})

    async def create(self, resource: Resource, obj: Json, namespace: str = "", *, subresource: str = "",
                     name: str = "") -> Json:
        namespace = namespace or obj.get("metadata", {}).get("namespace", "")
        return await self._json("POST", resource.path(namespace, name, subresource), obj)

    async def update(self, resource: Resource, obj: Json, *, subresource: str = "") -> Json:
        meta = obj["metadata"]
        return await self._json("PUT", resource.path(meta.get("namespace", ""), meta["name"], subresource), obj)

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "", *, subresource: str = "",
                    kind: Literal["merge", "json", "strategic", "apply"] = "merge",
                    params: Mapping[str, str] | None = None) -> Json:
        return await self._json("PATCH", resource.path(namespace, name, subresource), body, params=params,
                                content_type=PATCH_TYPES[kind])

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, grace: int | None = None,
                     uid: str = "", propagation: str = "") -> Json:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        return await self._json("DELETE", resource.path(namespace, name), options)

    async def bind(self, namespace: str, name: str, body: bytes) -> None:
        await self.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)

    def watch(self, resource: Resource, namespace: str = "", *, label_selector: str = "",
              field_selector: str = "") -> AsyncIterator[WatchEvent]:
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        return list_and_watch(self, resource.path(namespace), {k: v for k, v in selectors.items() if v},
                              clock=self.clock, dice=self.dice)


async def memory_cluster(clock: Clock, dice: random.Random | None = None) -> DirectCluster:
    """A fresh API server in memory and its client."""
    api = ApiServer(open_storage(":memory:"), clock, dice or random.Random(0))
    await api.start()
    return DirectCluster(api, clock)
