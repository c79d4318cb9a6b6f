"""The embedded API server in memory, behind a client that fails on request.

``fault`` sees every request first. It may return an ApiError that is raised instead, or a pair (ApiError, True): then the
request is carried out and its answer lost. One of the reason ``NO_ANSWER`` comes after the half minute for which a client waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kit.direct_cluster import Chunks, DirectCluster, started
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Json
from pumice.wire import kinds
from pumice.wire.document import safe_load_all
from pumice_lab.apiserver import ApiServer

Fault = Callable[[str, str], ApiError | tuple[ApiError, bool] | None]
NO_ANSWER, PATIENCE = "NoAnswer", 30.0
DEFINITIONS = Path(__file__).parents[1] / "deploy" / "manifests" / "crds"
SYSTEM = "volcano-system"


class FaultyCluster(DirectCluster):
    """``fault`` may be exchanged at any time."""

    fault: Fault = staticmethod(lambda verb, path: None)  # type: ignore[assignment]
    _line: _Line | None = None
    _silent_until = 0.0
    _forgotten = 0
    """Watches from before this version are refused: all is listed again."""

    def hang_up(self, *, forget: bool, seconds: float) -> bool:
        """Every watch ends, and none is answered for so long; with ``forget`` no version is remembered. Return whether one was
        open."""
        found = self._line is not None and self._line.hang_up()
        self._line, self._silent_until = None, self.clock.monotonic() + seconds
        if forget:
            self._forgotten = self.api.storage.revision
        return found

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        if self.clock.monotonic() < self._silent_until:
            raise ApiError(0, "Unreachable", "nobody answers")
        if int(params["resourceVersion"]) < self._forgotten:
            raise ApiError(410, "Expired", "too old resource version")
        found = await super().stream(path, params, idle=idle)
        self._line = self._line or _Line()
        found.content = Chunks(self._line.carried(found.content.iter_any()))
        return found

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json") -> bytes:
        found = self.fault(verb, path)
        error, carried_out = found if isinstance(found, tuple) else (found, found is None)
        if carried_out:
            answer = await super().request(verb, path, params=params, body=body, content_type=content_type)
        if error is None:
            return answer
        if error.reason == NO_ANSWER:
            await self.clock.sleep(PATIENCE)
        raise error

    async def put_node(self, obj: Json) -> None:
        """Create or replace a node with its status, as a kubelet does."""
        name = obj["metadata"]["name"]
        try:
            await self.create(kinds.NODES, {k: v for k, v in obj.items() if k != "status"})
        except ApiError as error:
            if error.code != 409:
                raise
            await self.patch(kinds.NODES, name, {"metadata": {"annotations": obj["metadata"]["annotations"]}})
        await self.patch(kinds.NODES, name, {"status": obj["status"]}, subresource="status")

    async def pods(self) -> dict[str, Json]:
        return {obj["metadata"]["name"]: obj for obj in (await self.list(kinds.PODS))["items"]}


class _Line:
    """All watches of a client end with it. Whoever reads one waits himself: a task for each chunk took as long as that."""

    def __init__(self) -> None:
        self._ended = False
        self._waits: dict[asyncio.Timeout, None] = {}

    def hang_up(self) -> bool:
        self._ended = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())
        return bool(self._waits)

    async def carried(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while not self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as wait:
                    self._waits[wait] = None
                    try:
                        chunk = await anext(chunks, b"")
                    finally:
                        del self._waits[wait]
                if not chunk or self._ended:
                    return
                yield chunk


async def faulty_cluster(clock: Clock, *, volcano_kinds: bool = True, kind: type[FaultyCluster] = FaultyCluster) -> FaultyCluster:
    """A fresh server with the namespaces that the scheduler knows, and Volcano's kinds unless told otherwise."""
    return kind(await started(clock, _with_volcanos_kinds if volcano_kinds else _with_namespaces), clock)


async def _with_volcanos_kinds(api: ApiServer) -> None:
    for path in sorted(DEFINITIONS.glob("*.yaml")):
        for obj in filter(None, safe_load_all(path.read_text(encoding="utf-8"))):
            await DirectCluster(api, api.clock).create(kinds.CRDS, obj)
    await _with_namespaces(api)


async def _with_namespaces(api: ApiServer) -> None:
    for name in ("default", "kube-system", SYSTEM):
        try:
            await DirectCluster(api, api.clock).create(kinds.NAMESPACES, {"metadata": {"name": name}})
        except ApiError as error:
            if error.code != 409:
                raise
