"""The API objects of a made-up cluster. Objects are values: a change makes a new one, so whoever keeps one keeps that moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

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

    @staticmethod
    def key(obj: Json) -> str:
        meta = obj["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])

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
