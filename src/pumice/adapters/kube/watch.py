"""List, then watch for ever: what client-go calls a reflector.

An interrupted watch resumes at the last resource version; 410 means that this version is forgotten, so everything is
listed again and the difference is told as events. Source: Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import aiohttp
import msgspec
from msgspec import Raw, Struct

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, WatchEvent

log = logging.getLogger("pumice.kube.watch")

PAGE = 2000  # objects per list request
WATCH_SECONDS = 290  # the server ends a watch after this long; we resume
IDLE_SECONDS = 75.0  # bookmarks come about once a minute: a longer silence is a half-open connection
SHORT_WATCH_SECONDS = 1.0
BACKOFF_FIRST, BACKOFF_LAST = 0.05, 5.0


class _Meta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Object(Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    cont: str = msgspec.field(default="", name="continue")


class _List(Struct, gc=False):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[Raw] | None = None


class _Frame(Struct, gc=False):
    type: str
    object: Raw


class _Status(Struct, gc=False):
    code: int = 0
    reason: str = ""
    message: str = ""


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_frame = msgspec.json.Decoder(_Frame).decode
_decode_status = msgspec.json.Decoder(_Status).decode


class Transport(Protocol):
    """What a reflector needs of the client."""

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None) -> bytes: ...
    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> aiohttp.ClientResponse: ...


class _Expired(Exception):
    """The server forgot our resource version: list again."""


async def list_and_watch(client: Transport, path: str, selectors: Mapping[str, str], *, clock: Clock,
                         dice: random.Random) -> AsyncIterator[WatchEvent]:
    """Events of one kind, for ever. Ends only by cancellation or by a refusal that no waiting mends (401, 403, 404).

    Objects that vanished while we were not watching come as DELETED with their metadata only (name, namespace, uid).
    """
    known: dict[str, _Meta] = {}
    failures = 0
    version = ""
    while True:
        try:
            if not version:
                fresh: dict[str, _Meta] = {}
                async for meta, raw in _list(client, path, selectors):
                    if meta.uid:
                        before = known.get(meta.uid)
                        fresh[meta.uid] = meta
                        if before is None or before.resource_version != meta.resource_version:
                            yield WatchEvent("ADDED" if before is None else "MODIFIED", raw)
                    else:
                        version = meta.resource_version
                for meta in [meta for uid, meta in known.items() if uid not in fresh]:
                    yield WatchEvent("DELETED", msgspec.json.encode({"metadata": meta}))
                known = fresh
                yield WatchEvent("SYNCED", b"")
            began = clock.monotonic()
            async for frame in _watch(client, path, selectors, version, dice):
                failures = 0
                meta = _decode_object(frame.object).metadata
                version = meta.resource_version or version
                if frame.type == "DELETED":
                    known.pop(meta.uid, None)
                elif frame.type != "BOOKMARK":
                    known[meta.uid] = meta
                if frame.type in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
                    yield WatchEvent(frame.type, bytes(frame.object))  # type: ignore[arg-type]
            if clock.monotonic() - began < SHORT_WATCH_SECONDS:  # do not flood a server that ends watches at once
                await clock.sleep(BACKOFF_FIRST * (1 + dice.random()))
        except _Expired:
            log.info("relisting path=%s", path)
            version = ""
        except ApiError as error:
            if error.code in (401, 403, 404, 405):
                raise
            failures += 1
            wait = min(BACKOFF_LAST, BACKOFF_FIRST * 2 ** min(failures, 10)) * (0.5 + dice.random())
            log.warning("watch interrupted path=%s cause=%s retry_in=%.2fs", path, error, wait)
            await clock.sleep(wait)


async def _list(client: Transport, path: str, selectors: Mapping[str, str]) -> AsyncIterator[tuple[_Meta, bytes]]:
    """All objects page by page, then one item without uid whose resource version is the list's."""
    params = {**selectors, "limit": str(PAGE)}
    while True:
        try:
            page = _decode_list(await client.request("GET", path, params=params))
        except msgspec.MsgspecError as error:
            raise ApiError(0, "BadAnswer", f"list of {path}: {error}") from error
        except ApiError as error:
            if error.code == 410:
                raise _Expired from error
            raise
        for item in page.items or ():
            yield _decode_object(item).metadata, bytes(item)
        if not page.metadata.cont:
            yield _Meta(resource_version=page.metadata.resource_version), b""
            return
        params = {**params, "continue": page.metadata.cont}


async def _watch(client: Transport, path: str, selectors: Mapping[str, str], version: str,
                 dice: random.Random) -> AsyncIterator[_Frame]:
    """Frames of one watch request until the server ends it."""
    params = {**selectors, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version,
              "timeoutSeconds": str(WATCH_SECONDS + dice.randrange(WATCH_SECONDS))}
    try:
        answer = await client.stream(path, params, idle=IDLE_SECONDS)
    except ApiError as error:
        if error.code == 410:
            raise _Expired from error
        raise
    try:
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield _checked(line, path)
    except TimeoutError:
        log.info("watch was silent, resuming path=%s", path)
    except (aiohttp.ClientError, OSError) as error:
        raise ApiError(0, "Unreachable", str(error) or type(error).__name__) from error
    finally:
        answer.close()


def _checked(line: bytes, path: str) -> _Frame:
    try:
        frame = _decode_frame(line)
        if frame.type != "ERROR":
            return frame
        status = _decode_status(frame.object)
    except msgspec.MsgspecError as error:
        raise ApiError(0, "BadAnswer", f"watch of {path}: {error}") from error
    if status.code == 410:
        raise _Expired
    raise ApiError(status.code, status.reason, status.message)
