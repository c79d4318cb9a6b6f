"""An API server that only remembers, as a client of ours sees it: for tests with very many objects, and for small ones.

The list-and-watch is the real one. What it promises it shares with the embedded API server and the real one
(tests/contract/test_fake_cluster.py). It checks no object, and takes Events without serving them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

from pumice.adapters.kube.verbs import Verbs
from pumice.audit.amounts import key_of
from pumice.ports.clock import Clock, SystemClock
from pumice.ports.cluster import ApiError

KINDS = {"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "priorityclasses": "PriorityClass", "queues": "Queue",
         "podgroups": "PodGroup", "persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume",
         "configmaps": "ConfigMap", "events": "Event", "poddisruptionbudgets": "PodDisruptionBudget"}  # fmt: skip
PLURALS = {kind: plural for plural, kind in KINDS.items()}
WITH_STATUS = set(KINDS.values()) - {"PriorityClass", "ConfigMap"}
"""Kinds whose status is written through its own door. A node may bring one along."""
Gate = Callable[[str, str], Awaitable[None]]
_encode = msgspec.json.Encoder().encode


class FakeCluster(Verbs):
    """Implements ports.cluster.Cluster over a store.

    ``gate(verb, path)`` is awaited before every request: it may refuse by an ApiError, or take its time. A stream's verb is
    WATCH. ``way_back(verb, path)`` is awaited when a request was carried out: what it raises comes in place of the answer.
    """

    def __init__(self, store: Store | None = None, clock: Clock | None = None, rng: Random | None = None) -> None:
        self.store, self.clock, self.rng = store or Store(), clock or SystemClock(), rng or Random(0)
        self.gate: Gate = _open
        self.way_back: Gate = _open
        self.forgotten = 0
        """Watches from before this version are refused: all is listed again."""
        self.patches: list[tuple[str, str, Json]] = []
        """(plural, subresource, body) of every merge patch that came through the API."""
        self.events: list[Json] = []
        self.bound_at: dict[str, float] = {}
        """The clock's time of each Binding by the pod's name."""
        self._log: list[tuple[str, Json | None, Json, bytes]] = []
        """(change, before, after, line of a watch) of every change since version ``_since``, one a version."""
        self._since = self.store.version
        self._now = {(kind, key): obj for kind, table in self.store.tables.items() for key, obj in table.items()}
        self._listening: set[str] = set()
        self._news = asyncio.Event()
        self._epoch = 0
        self.store.heard.append(self._hear)

    # -- what the world does, past the API ------------------------------------------------------------------------

    def put(self, *objects: Json) -> None:
        """Store each as it is written."""
        for obj in objects:
            self.store.put(deepcopy(obj))

    def change(self, plural: str, name: str, patch: Json) -> None:
        """A merge patch of the whole object, its status too."""
        obj = self.found(plural, name)
        self.store.patch(obj["kind"], self.store.key(obj), patch)

    def remove(self, plural: str, name: str) -> None:
        obj = self.found(plural, name)
        self.store.delete(obj["kind"], self.store.key(obj))

    def all(self, plural: str) -> list[Json]:
        return list(self.store.tables[KINDS[plural]].values())

    def found(self, plural: str, name: str) -> Json:
        """The object of this name, in whichever namespace."""
        return next(obj for obj in self.all(plural) if obj["metadata"]["name"] == name)

    def notes(self, plural: str, name: str) -> dict[str, str]:
        found: dict[str, str] = self.found(plural, name)["metadata"].get("annotations", {})
        return found

    async def until(self, fits: Callable[[], bool], timeout: float = 120.0) -> None:
        """Wait for something that shows in the objects or the Events."""
        async with asyncio.timeout(timeout):
            while not fits():
                await self._news.wait()

    def hang_up(self, *, forget: bool = False) -> None:
        """Every watch ends; with ``forget`` no version is remembered, so that all is listed again."""
        self._epoch += 1
        self._listening.clear()
        if forget:
            self.forgotten = self.store.version
        self._stir()

    def watched(self, *plurals: str) -> bool:
        """Return whether a client watches all of these now."""
        return self._listening >= {KINDS[plural] for plural in plurals}

    # -- what a client calls ------------------------------------------------------------------------------------

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json") -> bytes:
        await asyncio.sleep(0)
        await self.gate(verb, path)
        answer = self._carry_out(verb, path, params, body, content_type)
        await self.way_back(verb, path)
        return answer

    def _carry_out(self, verb: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str) -> bytes:
        kind, key, sub = parse(path)
        if kind is None:
            raise ApiError(404, "NotFound", path)
        said = msgspec.json.decode(body or b"{}")
        found = self.store.tables[kind].get(key)
        match verb:
            case "POST" if sub == "binding":
                return self._bind(key, said)
            case "GET" if key.endswith("/") or not key:
                return self._list(kind, key.rstrip("/"), params or {})
            case "GET" if found is not None:
                return _encode(found)
            case "POST" if kind == "Event":
                self.events.append(said)
                self._stir()
                return _encode(said)
            case "POST":
                if kind in WITH_STATUS - {"Node"}:
                    said.pop("status", None)
                space = {"namespace": key.rstrip("/")} if key else {}
                obj = self.store.create({**said, "kind": kind, "metadata": {**said["metadata"], **space}})
                if obj is None:
                    raise ApiError(409, "AlreadyExists", f"{key}{said['metadata']['name']} already exists")
                return _encode(obj)
            case "PATCH" if found is not None:
                return self._patch(kind, key, sub, found, said, content_type)
            case "DELETE" if found is not None:
                _check(found, said.get("preconditions", {}))
                self._delete(kind, key, found)
                return b"{}"
        raise ApiError(404, "NotFound", f"{key} not found")

    def _list(self, kind: str, namespace: str, params: Mapping[str, str]) -> bytes:
        wanted = _selector(params)
        items = [obj for obj in self.store.tables[kind].values()
                 if (not namespace or obj["metadata"].get("namespace") == namespace) and wanted(obj)]  # fmt: skip
        return _encode({"metadata": {"resourceVersion": str(self.store.version)}, "items": items})

    def _patch(self, kind: str, key: str, sub: str, found: Json, change: Json, content_type: str) -> bytes:
        if not isinstance(change, dict):
            raise ApiError(415, "UnsupportedMediaType", content_type)
        meta = change.get("metadata", {})
        if meta.get("uid") not in (None, found["metadata"]["uid"]):
            raise ApiError(422, "Invalid", "metadata.uid: field is immutable")
        _check(found, meta)
        self.patches.append((PLURALS[kind], sub, change))
        if kind in WITH_STATUS:
            change = {part: value for part, value in change.items() if part != ("spec" if sub else "status")}
        reported = change.get("status", {}).get("conditions")
        if reported and "strategic" in content_type:
            old = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
            changed = {c["type"]: merged(old.get(c["type"]), c) for c in reported}
            change = merged(change, {"status": {"conditions": list({**old, **changed}.values())}})
        return _encode(self.store.patch(kind, key, change))

    def _delete(self, kind: str, key: str, found: Json) -> None:
        self.store.delete(kind, key)

    def _bind(self, key: str, body: Json) -> bytes:
        pod, meta = self.store.tables["Pod"].get(key), body["metadata"]
        if pod is None:
            raise ApiError(404, "NotFound", f"{key} not found")
        _check(pod, {"uid": meta.get("uid")})
        for reason, reported in ((pod["spec"].get("nodeName"), "is already assigned to a node"),
                             (pod["spec"].get("schedulingGates"), "has scheduling gates"),
                             (pod["metadata"].get("deletionTimestamp"), "is being deleted")):  # fmt: skip
            if reason:
                raise ApiError(409, "Conflict", f"{key} {reported}")
        self.bound_at[meta["name"]] = self.clock.monotonic()
        notes = meta.get("annotations", {})
        self.store.patch("Pod", key, {"spec": {"nodeName": body["target"]["name"]}, "metadata": {"annotations": notes}})
        return b"{}"

    # -- watches ------------------------------------------------------------------------------------------------

    def _hear(self, change: str, obj: Json) -> None:
        key = (obj["kind"], self.store.key(obj))
        self._log.append((change, self._now.get(key), obj, _encode({"type": change, "object": obj}) + b"\n"))
        if change == "DELETED":
            self._now.pop(key, None)
        else:
            self._now[key] = obj
        self._stir()

    def _stir(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        await asyncio.sleep(0)
        await self.gate("WATCH", path)
        kind, key, _ = parse(path)
        version = int(params.get("resourceVersion") or 0)
        if kind is None:
            raise ApiError(404, "NotFound", path)
        if version < self.forgotten:
            raise ApiError(410, "Expired", "too old resource version")
        return _Stream(self._lines(kind, key.rstrip("/"), version, _selector(params)))

    async def _lines(self, kind: str, namespace: str, at: int, wanted: Callable[[Json], bool]) -> AsyncIterator[bytes]:
        epoch = self._epoch
        self._listening.add(kind)
        while epoch == self._epoch:
            lines = []
            for change, before, obj, line in self._log[at - self._since :]:
                if obj["kind"] != kind or (namespace and obj["metadata"].get("namespace") != namespace):
                    continue
                was, now = before is not None and wanted(before), wanted(obj)
                if change == "DELETED" or was == now:
                    lines += [line] * now
                else:  # it comes to be among those that are watched, or leaves them
                    lines.append(_encode({"type": "ADDED" if now else "DELETED", "object": obj}) + b"\n")
            at = self.store.version
            if lines:
                yield b"".join(lines)
            else:
                await self._news.wait()


class _Stream:
    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines
        self.content = self

    def iter_any(self) -> AsyncIterator[bytes]:
        return self._lines

    def close(self) -> None:
        """Nothing to hang up."""


async def _open(verb: str, path: str) -> None:
    """Nothing stands in the way."""


def refusing(error: ApiError, times: int, verb: str = "PATCH") -> Gate:
    """A gate that answers the next requests of a verb with this error."""
    left = [times]

    async def gate(requested: str, path: str) -> None:
        if requested == verb and left[0]:
            left[0] -= 1
            raise error

    return gate


def _check(found: Json, expected: Mapping[str, Any]) -> None:
    for field in ("uid", "resourceVersion"):
        if expected.get(field) and expected[field] != found["metadata"][field]:
            raise ApiError(409, "Conflict", f"the {field} in the precondition does not match")


def _selector(params: Mapping[str, str]) -> Callable[[Json], bool]:
    """Return the objects that match a field selector of equal signs."""
    terms = [term.partition("=") for term in params.get("fieldSelector", "").split(",") if term]
    wanted = [(path.split("."), value.removeprefix("=")) for path, _, value in terms]

    def passes(obj: Json) -> bool:
        return all(str(obj.get(part, {}).get(field, "")) == value for (part, field), value in wanted)

    return passes


def parse(path: str) -> tuple[str | None, str, str]:
    """Kind, key and subresource of a path; a key that ends in a slash is all of a namespace."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    key = f"{namespace}/{name}" if namespace else name
    return KINDS.get(parts[0]), key, parts[2] if len(parts) > 2 else ""


# -- The API objects of a made-up cluster. Objects are values: a change makes a new one, so whoever keeps one


Json = dict[str, Any]


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386) as a new value."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


class Store:
    """Objects by kind and key, each with its uid and version; ``heard`` is told of every change."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Json]] = defaultdict(dict)
        self.version = 0
        self.heard: list[Callable[[str, Json], None]] = []

    key = staticmethod(key_of)

    def create(self, obj: Json) -> Json | None:
        """Store a new object under a new uid; None when the name is taken."""
        if self.key(obj) in self.tables[obj["kind"]]:
            return None
        meta = {"creationTimestamp": "2026-01-01T00:00:00Z", **obj["metadata"], "uid": f"uid-{self.version + 1}"}
        return self._put("ADDED", {**obj, "metadata": meta})

    def put(self, obj: Json) -> Json:
        """Store an object as it is written, its uid too. Another one of its name makes way."""
        kind, key = obj["kind"], self.key(obj)
        old = self.tables[kind].get(key, {}).get("metadata", {}).get("uid")
        uid = obj["metadata"].get("uid") or old or f"uid-{self.version + 1}"
        if old not in (None, uid):
            self.delete(kind, key)
            old = None
        return self._put("MODIFIED" if old else "ADDED", {**obj, "metadata": {**obj["metadata"], "uid": uid}})

    def patch(self, kind: str, key: str, patch: Json) -> Json | None:
        old = self.tables[kind].get(key)
        if old is None:
            return None
        new = merged(old, patch)
        return old if new == old else self._put("MODIFIED", new)

    def delete(self, kind: str, key: str) -> Json | None:
        old = self.tables[kind].pop(key, None)
        if old is None:
            return None
        self.version += 1
        gone = merged(old, {"metadata": {"resourceVersion": str(self.version)}})
        self._tell("DELETED", gone)
        return old

    def _put(self, change: str, obj: Json) -> Json:
        self.version += 1
        obj = merged(obj, {"metadata": {"resourceVersion": str(self.version)}})
        self.tables[obj["kind"]][self.key(obj)] = obj
        self._tell(change, obj)
        return obj

    def _tell(self, change: str, obj: Json) -> None:
        for listener in self.heard:
            listener(change, obj)
