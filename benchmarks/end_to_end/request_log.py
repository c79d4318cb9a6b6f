"""The API server's record of writes, read while it grows: who created and bound which pod, when, by the server's clock."""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from pathlib import Path

import msgspec


class _Ref(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct):
    verb: str
    requestReceivedTimestamp: datetime.datetime
    stageTimestamp: datetime.datetime
    userAgent: str = ""
    objectRef: _Ref | None = None
    responseStatus: _Status | None = None


_decode = msgspec.json.Decoder(_Event).decode


class RequestLog:
    """The requests since the last ``mark``. All moments are the server's, in seconds.

    ``requested`` and ``created``: when the create of a pod was received and answered. ``bound``: when its Binding was answered.
    ``writes``: successful writes by the first word of the user agent; ``kinds``: the same by agent, verb and resource;
    ``refused``: others by agent and code.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.mark()

    def mark(self) -> None:
        """Forget what was read so far."""
        self.requested: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.bindings: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.refused: Counter[tuple[str, int]] = Counter()

    def read(self) -> None:
        """Take in what the server has written since."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(_decode(line))

    async def until_bound(self, names: set[str], seconds: float, pause: float = 0.05) -> None:
        """Raises TimeoutError that says how many are missing."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            self.read()
            if names <= self.bound.keys():
                return
            if asyncio.get_running_loop().time() > deadline:
                missing = sorted(names - self.bound.keys())
                raise TimeoutError(f"{len(missing)} of {len(names)} pods are not bound after {seconds} s: {missing[:3]}")
            await asyncio.sleep(pause)

    def delays_ms(self, names: set[str]) -> list[float]:
        """From a create that was answered to its Binding answered, sorted."""
        return sorted(max(0.0, self.bound[name] - self.created[name]) * 1000 for name in names)

    def _take(self, event: _Event) -> None:
        agent = event.userAgent.split("/", 1)[0] or "?"
        code = event.responseStatus.code if event.responseStatus else 0
        if code >= 400:
            self.refused[agent, code] += 1
            return
        self.writes[agent] += 1
        ref = event.objectRef
        what = "/".join(filter(None, (ref.resource, ref.subresource))) if ref else "?"
        self.kinds[f"{agent} {event.verb} {what}"] += 1
        if event.verb != "create" or ref is None or ref.resource != "pods":
            return
        if ref.subresource == "binding":
            self.bindings[ref.name] += 1
            self.bound.setdefault(ref.name, event.stageTimestamp.timestamp())
        elif not ref.subresource:
            self.requested[ref.name] = event.requestReceivedTimestamp.timestamp()
            self.created[ref.name] = event.stageTimestamp.timestamp()
