"""The verbs of the API in terms of one request: what every client of ours has in common.

Whoever inherits brings ``request`` and ``stream`` (HTTP, or a test's direct call) and its clock and random generator.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from pumice.adapters.kube.watch import WatchLimits, list_and_watch
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Json, Resource, WatchEvent
from pumice.wire.objects import decode

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

T = TypeVar("T")


class Verbs(ABC):
    """Implements ports.cluster.Cluster over ``request`` and ``stream``."""

    clock: Clock
    rng: random.Random
    watch_limits = WatchLimits()

    @abstractmethod
    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None,
                      body: bytes | None = None, content_type: str = "application/json") -> bytes:
        """One request, one answer. Raises ApiError."""

    @abstractmethod
    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        """Open a long answer; ``idle`` is the longest silence in seconds."""

    async def _json(self, verb: str, path: str, obj: Any = None, **options: Any) -> Json:
        return await self._decoded(dict, verb, path, obj, **options)

    async def _decoded(self, kind: type[T], verb: str, path: str, obj: Any = None, **options: Any) -> T:
        raw = await self.request(verb, path, body=None if obj is None else msgspec.json.encode(obj), **options)
        try:
            return decode(kind, raw or b"{}")
        except msgspec.MsgspecError as error:
            raise ApiError(0, "BadAnswer", f"{verb} {path}: {error}") from error

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        return await self._json("GET", resource.path(namespace, name))

    async def list(self, resource: Resource, namespace: str = "", *, label_selector: str = "",
                   field_selector: str = "") -> Json:
        params = {"labelSelector": label_selector, "fieldSelector": field_selector}
        return await self._json("GET", resource.path(namespace), params={k: v for k, v in params.items() if v})

    async def create(self, resource: Resource, obj: Json, namespace: str = "", *, subresource: str = "",
                     name: str = "") -> Json:
        namespace = namespace or str(obj.get("metadata", {}).get("namespace", ""))
        return await self._json("POST", resource.path(namespace, name, subresource), obj)

    async def create_as(self, resource: Resource, obj: Json, namespace: str, kind: type[T]) -> T:
        return await self._decoded(kind, "POST", resource.path(namespace), obj)

    async def update(self, resource: Resource, obj: Json, *, subresource: str = "") -> Json:
        meta = obj["metadata"]
        return await self._json("PUT", resource.path(meta.get("namespace", ""), meta["name"], subresource), obj)

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "", *, subresource: str = "",
                    kind: Literal["merge", "json", "strategic", "apply"] = "merge",
                    params: Mapping[str, str] | None = None) -> Json:
        return await self._json("PATCH", resource.path(namespace, name, subresource), body, params=params,
                                content_type=PATCH_TYPES[kind])

    async def patch_as(self, resource: Resource, name: str, body: Json, namespace: str, kind: type[T], *,
                       subresource: str = "") -> T:
        return await self._decoded(kind, "PATCH", resource.path(namespace, name, subresource), body,
                                   content_type=PATCH_TYPES["merge"])

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

    async def delete_collection(self, resource: Resource, namespace: str, *, label_selector: str) -> Json:
        return await self._json("DELETE", resource.path(namespace), params={"labelSelector": label_selector})

    async def bind(self, namespace: str, name: str, body: bytes) -> None:
        await self.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)

    def watch(self, resource: Resource, namespace: str = "", *, label_selector: str = "",
              field_selector: str = "", kind: type[Any] | None = None) -> AsyncIterator[WatchEvent]:
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        path = resource.path(namespace)
        wanted = {k: v for k, v in selectors.items() if v}
        return list_and_watch(self, path, wanted, clock=self.clock, rng=self.rng, kind=kind,
                              limits=self.watch_limits)
