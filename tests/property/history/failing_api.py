"""The API server of a history: watches that can break, writes that can be refused or left unanswered.

``faults`` and ``outage`` say what goes wrong; ``bindings`` is told of every Binding as it comes in, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import msgspec
from kit.fake_cluster import KINDS, FakeCluster, Json, Store, parse

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError

NO_ANSWER = 30.0
"""Seconds after which a client gives up on an answer that never comes."""


@dataclass(slots=True)
class Fault:
    """What becomes of the next ``count`` Bindings. Code 0: no answer; ``done``: it was carried out all the same."""

    code: int
    count: int
    done: bool = False


class FailingApi(FakeCluster):
    def __init__(self, store: Store, clock: Clock, dice: Random) -> None:
        super().__init__(store, clock, dice)
        self.gate = self._gate
        self.deaf = self.outage = False
        self.graceful = False
        """Whether a deleted pod that has a node lives on until somebody lets it go."""
        self.faults: list[Fault] = []
        self.spared: list[Fault] = []
        """What becomes of the next deletions."""
        self.bindings: Callable[[Json, str, Json], None] = lambda pod, node, annotations: None
        self.failed: Callable[[Json, str], None] = lambda pod, node: None
        self.deleted: Callable[[Json], None] = lambda pod: None

    @property
    def heard(self) -> bool:
        """Whether the client hears of every change: all its watches are open."""
        return self.watched(*(KINDS.keys() - {"events", "configmaps"}))

    async def _gate(self, verb: str, path: str) -> None:
        lists = verb == "WATCH" or (verb == "GET" and "/" not in parse(path)[1])
        if self.outage or (self.deaf and lists):
            raise ApiError(0, "Unreachable", "connection refused")
        fault = _next(self.spared) if verb == "DELETE" else None
        if fault is not None:
            raise ApiError(fault.code, "Fault", "it is so")

    def _delete(self, kind: str, key: str, found: Json) -> None:
        if kind == "Pod":
            self.deleted(found)
            if self.graceful and found["spec"].get("nodeName"):
                self.store.patch("Pod", key, {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}})
                return
        super()._delete(kind, key, found)

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json") -> bytes:
        _, key, sub = parse(path)
        if sub != "binding":
            return await super().request(verb, path, params=params, body=body, content_type=content_type)
        said = msgspec.json.decode(body or b"{}")
        node, meta = said["target"]["name"], said["metadata"]
        pod = self.store.tables["Pod"].get(key)
        ours = pod is not None and pod["metadata"]["uid"] == meta.get("uid")
        if ours and pod is not None:
            self.bindings(pod, node, meta.get("annotations", {}))
        try:
            fault = None if self.outage else _next(self.faults)
            if fault is None or fault.done:
                await super().request(verb, path, body=body)
            if fault is not None:
                if fault.code == 0:
                    await self.clock.sleep(NO_ANSWER)
                raise ApiError(fault.code, "Fault", "it is so")
        except ApiError:
            if ours and pod is not None:
                self.failed(pod, node)
            raise
        return b"{}"


def _next(faults: list[Fault]) -> Fault | None:
    fault = faults[0] if faults else None
    if fault is not None:
        fault.count -= 1
        if fault.count <= 0:
            faults.pop(0)
    return fault
