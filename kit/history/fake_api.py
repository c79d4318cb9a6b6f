"""An API server over a store, as a client sees it: lists, watches that can break, writes that can be refused or left unanswered.

It knows what the scheduler asks of it and nothing more. ``faults`` and ``outage`` say what goes wrong; ``bindings`` is told of
every Binding as it comes in, whatever becomes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from kit.history.store import Json, Store, merged
from pumice.adapters.kube.verbs import Verbs
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError

KINDS = {"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "priorityclasses": "PriorityClass", "queues": "Queue",
         "podgroups": "PodGroup", "persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume",
         "configmaps": "ConfigMap", "events": "Event"}  # fmt: skip
NO_ANSWER = 30.0
"""Seconds after which a client gives up on an answer that never comes."""
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Fault:
    """What becomes of the next ``count`` Bindings. Code 0: no answer; ``done``: it was carried out all the same."""

    code: int
    count: int
    done: bool = False


class _Stream:
    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines
        self.content = self

    def iter_any(self) -> AsyncIterator[bytes]:
        return self._lines

    def close(self) -> None:
        """Nothing to hang up."""


class FakeApi(Verbs):
    """Implements ports.cluster.Cluster over a store."""

    def __init__(self, store: Store, clock: Clock, dice: Random) -> None:
        self.store, self.clock, self.dice = store, clock, dice
        self.log: list[tuple[int, str, bytes]] = []
        """(version, kind, line of a watch) of every change."""
        self.forgotten = 0
        self.deaf = self.outage = False
        self.faults: list[Fault] = []
        self.bindings: Callable[[Json, str, Json], None] = lambda pod, node, annotations: None
        self.failed: Callable[[Json, str], None] = lambda pod, node: None
        self.deleted: Callable[[Json], None] = lambda pod: None
        self._listening: set[str] = set()
        self._news = asyncio.Event()
        self._epoch = 0
        store.heard.append(self._hear)

    def _hear(self, change: str, obj: Json) -> None:
        line = _encode({"type": change, "object": obj}) + b"\n"
        self.log.append((self.store.version, obj["kind"], line))
        self._stir()

    def _stir(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def hang_up(self, *, forget: bool = False) -> None:
        """Every watch ends; with ``forget`` no version is remembered, so that all is listed again."""
        self._epoch += 1
        self._listening.clear()
        if forget:
            self.forgotten = self.store.version
        self._stir()

    @property
    def heard(self) -> bool:
        """Whether the client hears of every change: all its watches are open."""
        return self._listening >= set(KINDS.values()) - {"Event", "ConfigMap"}

    # -- what a client calls ------------------------------------------------------------------------------------

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json") -> bytes:
        await asyncio.sleep(0)
        kind, key, sub = _parse(path)
        if sub == "binding":
            return await self._binding(key, msgspec.json.decode(body or b"{}"))
        if self.outage or (self.deaf and verb == "GET" and "/" not in key):
            raise ApiError(0, "Unreachable", "connection refused")
        if kind is None:
            raise ApiError(404, "NotFound", path)
        found = self.store.tables[kind].get(key)
        match verb:
            case "GET" if key.endswith("/") or not key:
                return self._list(kind, key.rstrip("/"))
            case "GET" if found is not None:
                return _encode(found)
            case "POST":
                made = msgspec.json.decode(body or b"{}")
                if kind == "Event":
                    return _encode(made)
                obj = self.store.create({**made, "kind": kind})
                if obj is None:
                    raise ApiError(409, "AlreadyExists", key)
                return _encode(obj)
            case "PATCH" if found is not None:
                return self._patch(kind, key, found, msgspec.json.decode(body or b"{}"), content_type)
            case "DELETE" if found is not None:
                wanted = msgspec.json.decode(body or b"{}").get("preconditions", {}).get("uid")
                if wanted and wanted != found["metadata"]["uid"]:
                    raise ApiError(409, "Conflict", key)
                if kind == "Pod":
                    self.deleted(found)
                self.store.delete(kind, key)
                return b"{}"
        raise ApiError(404, "NotFound", key)

    async def _json(self, verb: str, path: str, obj: Any = None, **options: Any) -> Json:
        raw = await self.request(verb, path, body=None if obj is None else _encode(obj), **options)
        found: Json = msgspec.json.decode(raw) if raw else {}
        return found

    def _list(self, kind: str, namespace: str) -> bytes:
        items = [obj for obj in self.store.tables[kind].values()
                 if not namespace or obj["metadata"].get("namespace") == namespace]  # fmt: skip
        return _encode({"metadata": {"resourceVersion": str(self.store.version)}, "items": items})

    def _patch(self, kind: str, key: str, found: Json, change: Json, content_type: str) -> bytes:
        uid = change.get("metadata", {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            raise ApiError(409, "Conflict", key)
        told = change.get("status", {}).get("conditions")
        if told and "strategic" in content_type:
            old = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
            change = merged(change, {"status": {"conditions": list({**old, **{c["type"]: c for c in told}}.values())}})
        return _encode(self.store.patch(kind, key, change))

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        await asyncio.sleep(0)
        if self.outage or self.deaf:
            raise ApiError(0, "Unreachable", "connection refused")
        kind, _, _ = _parse(path)
        version = int(params.get("resourceVersion") or 0)
        if kind is None:
            raise ApiError(404, "NotFound", path)
        if version < self.forgotten:
            raise ApiError(410, "Expired", "too old resource version")
        return _Stream(self._lines(kind, version))

    async def _lines(self, kind: str, version: int) -> AsyncIterator[bytes]:
        epoch, at = self._epoch, 0
        self._listening.add(kind)
        while epoch == self._epoch:
            lines = []
            while at < len(self.log):
                told, of, line = self.log[at]
                if of == kind and told > version:
                    lines.append(line)
                at += 1
            if lines:
                yield b"".join(lines)
            else:
                await self._news.wait()

    # -- Bindings -----------------------------------------------------------------------------------------------

    async def _binding(self, key: str, body: Json) -> bytes:
        node, annotations = body["target"]["name"], body["metadata"].get("annotations", {})
        pod = self.store.tables["Pod"].get(key)
        ours = pod is not None and pod["metadata"]["uid"] == body["metadata"].get("uid")
        if ours and pod is not None:
            self.bindings(pod, node, annotations)
        try:
            return await self._bind(key, body, node, annotations)
        except ApiError:
            if ours and pod is not None:
                self.failed(pod, node)
            raise

    async def _bind(self, key: str, body: Json, node: str, annotations: Json) -> bytes:
        if self.outage:
            raise ApiError(0, "Unreachable", "connection refused")
        fault = self.faults[0] if self.faults else None
        if fault is not None:
            fault.count -= 1
            if fault.count <= 0:
                self.faults.pop(0)
        if fault is None or fault.done:
            pod = self.store.tables["Pod"].get(key)
            if pod is None:
                raise ApiError(404, "NotFound", key)
            if pod["metadata"]["uid"] != body["metadata"].get("uid") or pod["spec"].get("nodeName"):
                raise ApiError(409, "Conflict", key)
            if pod["spec"].get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
                raise ApiError(409, "Conflict", key)
            self.store.patch("Pod", key, {"spec": {"nodeName": node}, "metadata": {"annotations": annotations}})
        if fault is not None:
            if fault.code == 0:
                await self.clock.sleep(NO_ANSWER)
            raise ApiError(fault.code, "Fault", "it is so")
        return b"{}"


def _parse(path: str) -> tuple[str | None, str, str]:
    """Kind, key and subresource of a path; a key that ends in a slash is all of a namespace."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    key = f"{namespace}/{name}" if namespace else name
    return KINDS.get(parts[0]), key, parts[2] if len(parts) > 2 else ""
