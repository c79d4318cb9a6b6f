"""List, then watch for ever: what client-go calls a reflector.

An interrupted watch resumes at the last resource version; 410 means that this version is forgotten, so everything is
listed again and the difference is told as events. Source: Kubernetes API concepts, "Efficient detection of changes".
Lists come in pages: the next one is on its way while the consumer works through the last.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import aiohttp
import msgspec

from pumice.adapters.kube.decoder import Form, Meta, Page, decode_status, form_of
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, WatchEvent

log = logging.getLogger("pumice.kube.watch")

PAGE = 1000  # objects per list request
TURN = 100  # objects told before others on the loop, the next page among them, get a turn
GONE_AT_LEAST = 5000
WATCH_SECONDS = 290  # the server ends a watch after this long; we resume
IDLE_SECONDS = 75.0  # bookmarks come about once a minute: a longer silence is a half-open connection
SHORT_WATCH_SECONDS = 1.0
LONGEST_LINE = 64 * 2**20  # bytes; etcd takes objects of 1.5 MB
BACKOFF_FIRST, BACKOFF_LAST = 0.05, 5.0


class Transport(Protocol):
    """What a reflector needs of the client."""

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None) -> bytes: ...
    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> aiohttp.ClientResponse: ...


class _Expired(Exception):
    """The server forgot our resource version: list again."""


async def list_and_watch(client: Transport, path: str, selectors: Mapping[str, str], *, clock: Clock,
                         dice: random.Random, kind: type[Any] | None = None) -> AsyncIterator[WatchEvent]:
    """Events of one kind, for ever. Ends only by cancellation, by 404 (the kind is not installed, or not any more: what was
    told comes as DELETED first), or by 401, 403 and 405 before the first list was complete; later these are waited out, for
    whoever began again from nothing would never hear of what vanished meanwhile.

    Objects that vanished while we were not watching come as DELETED with their metadata only (name, namespace, uid).
    A name has one bearer at a time: where another object was made under the name of one that vanished, the old one's DELETED
    comes before the new one's ADDED, and what is said of the old one afterwards is not passed on.
    """
    form = form_of(kind)
    known: dict[str, str] = {}
    """Of every object that was told: by namespace and name its uid and version, in one string because there are so many."""
    failures = gone = 0
    version = ""
    synced = False
    while True:
        try:
            if not version:
                fresh: set[str] = set()
                listed = ""
                async with aclosing(_pages(client, path, selectors, form)) as pages:
                    async for page in pages:
                        for number, (meta, raw, obj) in enumerate(page.entries):
                            key, told = _name(meta), _told(meta)
                            before = known.get(key)
                            fresh.add(key)
                            if before is not None and _uid(before) != meta.uid:
                                yield _gone(key, before)
                                before = None
                            if before != told:
                                known[key] = told
                                yield WatchEvent("ADDED" if before is None else "MODIFIED", raw, obj)
                            if number % TURN == TURN - 1:
                                await asyncio.sleep(0)
                        listed = page.version
                for key in [key for key in known if key not in fresh]:
                    yield _gone(key, known.pop(key))
                del fresh
                version, synced = listed, True  # only now: a list that broke off is begun again
                yield WatchEvent("SYNCED", b"")
            began = clock.monotonic()
            async for type_, meta, raw, obj in _watch(client, path, selectors, version, dice, form):
                failures = 0
                version = meta.resource_version or version
                if type_ in ("ADDED", "MODIFIED", "DELETED"):
                    key = _name(meta)
                    before = known.get(key)
                    another = before is not None and _uid(before) != meta.uid
                    if type_ == "DELETED":
                        if another:
                            continue
                        known.pop(key, None)
                        gone += 1
                        if gone > GONE_AT_LEAST + len(known) // 2:
                            known, gone = dict(known), 0  # a dict keeps the places of what was deleted, and doubles
                    else:
                        if before is not None and another:
                            yield _gone(key, before)
                        known[key] = _told(meta)
                    yield WatchEvent(type_, raw, obj)  # type: ignore[arg-type]
                elif type_ == "BOOKMARK":
                    yield WatchEvent("BOOKMARK", raw, obj)
            if clock.monotonic() - began < SHORT_WATCH_SECONDS:  # do not flood a server that ends watches at once
                await clock.sleep(BACKOFF_FIRST * (1 + dice.random()))
        except _Expired:
            log.info("relisting path=%s", path)
            version = ""
            failures += 1
            if failures > 1:  # a server that forgets every version at once must not be listed in a circle
                await clock.sleep(_backoff(failures, dice))
        except ApiError as error:
            if error.code == 404:
                for key in list(known):
                    yield _gone(key, known.pop(key))
            if error.code == 404 or (error.code in (401, 403, 405) and not synced):
                raise
            failures += 1
            wait = max(_backoff(failures, dice), error.retry_after)
            rarely = logging.DEBUG if failures & (failures - 1) else logging.WARNING  # an hour's outage is 11 lines, not 1,000
            log.log(rarely, "watch interrupted path=%s times=%d cause=%s retry_in=%.2fs", path, failures, error, wait)
            await clock.sleep(wait)


def _backoff(failures: int, dice: random.Random) -> float:
    return min(BACKOFF_LAST, BACKOFF_FIRST * 2.0 ** min(failures, 10)) * (0.5 + dice.random())


def _gone(key: str, told: str) -> WatchEvent:
    namespace, _, name = key.partition("/")
    return WatchEvent("DELETED", msgspec.json.encode({"metadata": Meta(name, namespace, _uid(told))}))


def _name(meta: Any) -> str:
    return f"{meta.namespace}/{meta.name}"


def _told(meta: Any) -> str:
    return f"{meta.uid}/{meta.resource_version}"


def _uid(told: str) -> str:
    return told.rpartition("/")[0]


async def _pages(client: Transport, path: str, selectors: Mapping[str, str], form: Form) -> AsyncGenerator[Page, None]:
    """A list page by page; while one is worked through, the next is fetched."""
    params = {**selectors, "limit": str(PAGE)}
    fetching = asyncio.ensure_future(client.request("GET", path, params=params))
    try:
        while True:
            try:
                page = form.page(await fetching)
            except msgspec.MsgspecError as error:
                raise ApiError(0, "BadAnswer", f"list of {path}: {error}") from error
            except ApiError as error:
                if error.code == 410:
                    raise _Expired from error
                raise
            if not page.cont:
                yield page
                return
            fetching = asyncio.ensure_future(client.request("GET", path, params={**params, "continue": page.cont}))
            yield page
    finally:
        if not fetching.cancel() and not fetching.cancelled():
            fetching.exception()  # nobody waits for this page any more


async def _watch(client: Transport, path: str, selectors: Mapping[str, str], version: str, dice: random.Random,
                 form: Form) -> AsyncIterator[tuple[str, Any, bytes, Any]]:
    """(type, metadata, raw bytes, object) of the lines of one watch request until the server ends it."""
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
                    yield _checked(line, path, form)
            if len(rest) > LONGEST_LINE:
                raise ApiError(0, "BadAnswer", f"watch of {path}: a line does not end")
    except TimeoutError:
        log.info("watch was silent, resuming path=%s", path)
    except (aiohttp.ClientError, OSError) as error:
        raise ApiError(0, "Unreachable", str(error) or type(error).__name__) from error
    finally:
        answer.close()


def _checked(line: bytes, path: str, form: Form) -> tuple[str, Any, bytes, Any]:
    try:
        found = form.line(line)
        if found[0] != "ERROR":
            return found
        status = decode_status(found[2])
    except msgspec.MsgspecError as error:
        raise ApiError(0, "BadAnswer", f"watch of {path}: {error}") from error
    if status.code == 410:
        raise _Expired
    raise ApiError(status.code, status.reason, status.message)
