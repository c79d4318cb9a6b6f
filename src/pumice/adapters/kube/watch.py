"""List, then watch for ever: what client-go calls a reflector.

An interrupted watch resumes at the last resource version; 410 means that this version is forgotten, so everything is
listed again and the difference is told as events. Source: Kubernetes API concepts, "Efficient detection of changes".
Lists come in pages: the next one is on its way while the consumer works through the last.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw, Struct, defstruct, field

from pumice.effects.backoff import Backoff
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, WatchEvent

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger("pumice.kube.watch")

PAGE = 1000  # objects per list request
TURN = 100  # objects told before others on the loop, the next page among them, get a turn
GONE_AT_LEAST = 5000
WATCH_SECONDS = 290  # the server ends a watch after this long; we resume
SHORT_WATCH_SECONDS = 1.0
BACKOFF = Backoff(0.05, 5.0)


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """The limits after which a watch is given up and opened again."""

    idle: float = 75.0
    """Seconds; bookmarks come about once a minute: a longer silence is a half-open connection."""
    longest_line: int = 64 * 2**20
    """Bytes; etcd takes objects of 1.5 MB."""


class Transport(Protocol):
    """The part of the client that a reflector needs."""

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None) -> bytes: ...
    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> aiohttp.ClientResponse: ...


class _Expired(Exception):
    """The server forgot our resource version: list again."""


async def list_and_watch(client: Transport, path: str, selectors: Mapping[str, str], *, clock: Clock, rng: random.Random,
                         kind: type[Any] | None = None, limits: WatchLimits | None = None) -> AsyncIterator[WatchEvent]:
    """Events of one kind, for ever. Ends only by cancellation, by 404 (the kind is not installed, or not any more: what was
    told comes as DELETED first), or by 401, 403 and 405 before the first list was complete; later these are waited out, for
    whoever began again from nothing would never hear of what vanished meanwhile.

    Objects that vanished while we were not watching come as DELETED with their metadata only (name, namespace, uid).
    A name has one bearer at a time: where another object was made under the name of one that vanished, the old one's DELETED
    comes before the new one's ADDED, and what is said of the old one afterwards is not passed on.
    """
    form, limits, reported = form_of(kind), limits or WatchLimits(), _Told()
    failures = 0
    version = ""
    synced = False
    while True:
        try:
            if not version:
                listed = ""
                reported.begin()
                async with aclosing(_pages(client, path, selectors, form)) as pages:
                    async for page in pages:
                        for number, entry in enumerate(page.entries):
                            for event in reported.listed(*entry):
                                yield event
                            if number % TURN == TURN - 1:
                                await asyncio.sleep(0)
                        listed = page.version
                for event in reported.not_listed():
                    yield event
                version, synced = listed, True  # only now: a list that broke off is begun again
                yield WatchEvent("SYNCED", b"")
            began = clock.monotonic()
            async for line in _watch(client, path, selectors, version, rng, form, limits):
                failures = 0
                version = line[1].resource_version or version
                for event in reported.watched(*line):
                    yield event
            if clock.monotonic() - began < SHORT_WATCH_SECONDS:  # do not flood a server that ends watches at once
                await clock.sleep(BACKOFF.first * (1 + rng.random()))
        except _Expired:
            log.info("relisting path=%s", path)
            version = ""
            failures += 1
            if failures > 1:  # a server that forgets every version at once must not be listed in a circle
                await clock.sleep(BACKOFF.pause(failures, rng))
        except ApiError as error:
            if error.code == 404:
                for event in reported.all_gone():
                    yield event
            if error.code == 404 or (error.code in (401, 403, 405) and not synced):
                raise
            failures += 1
            wait = BACKOFF.pause(failures, rng, least=error.retry_after)
            rarely = logging.DEBUG if failures & (failures - 1) else logging.WARNING  # an hour's outage is 11 lines, not 1,000
            log.log(rarely, "watch interrupted path=%s times=%d cause=%s retry_in=%.2fs", path, failures, error, wait)
            await clock.sleep(wait)


class _Told:
    """The objects that the consumer knows, and the events that follow from the server's answer."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        """By namespace and name the uid and version, in one string because there are so many."""
        self._fresh: set[str] = set()
        self._deleted = 0

    def begin(self) -> None:
        """A list begins."""
        self._fresh = set()

    def listed(self, meta: Any, raw: bytes, obj: Any) -> tuple[WatchEvent, ...]:
        key, reported = _name(meta), _moment(meta)
        before = self._known.get(key)
        self._fresh.add(key)
        if before == reported:
            return ()
        self._known[key] = reported
        if before is None:
            return (WatchEvent("ADDED", raw, obj, listed=True),)
        if _uid(before) == meta.uid:
            return (WatchEvent("MODIFIED", raw, obj, listed=True),)
        return _gone(key, before), WatchEvent("ADDED", raw, obj, listed=True)

    def not_listed(self) -> Iterator[WatchEvent]:
        """The list is complete: whoever was not in it is gone."""
        for key in [key for key in self._known if key not in self._fresh]:
            yield _gone(key, self._known.pop(key))
        self._fresh = set()

    def all_gone(self) -> Iterator[WatchEvent]:
        for key in list(self._known):
            yield _gone(key, self._known.pop(key))

    def watched(self, type_: str, meta: Any, raw: bytes, obj: Any) -> Iterator[WatchEvent]:
        """One line of a watch."""
        if type_ in ("ADDED", "MODIFIED", "DELETED"):
            key = _name(meta)
            before = self._known.get(key)
            another = before is not None and _uid(before) != meta.uid
            if type_ == "DELETED":
                if another:
                    return
                self._known.pop(key, None)
                self._deleted += 1
                if self._deleted > GONE_AT_LEAST + len(self._known) // 2:
                    self._known, self._deleted = dict(self._known), 0  # a dict keeps the places of what was deleted, and doubles
            else:
                if before is not None and another:
                    yield _gone(key, before)
                self._known[key] = _moment(meta)
            yield WatchEvent(type_, raw, obj) if obj is None else WatchEvent(type_, b"", obj)  # type: ignore[arg-type]
        elif type_ == "BOOKMARK":
            yield WatchEvent("BOOKMARK", raw, obj)


def _gone(key: str, reported: str) -> WatchEvent:
    namespace, _, name = key.partition("/")
    return WatchEvent("DELETED", msgspec.json.encode({"metadata": Meta(name, namespace, _uid(reported))}))


def _name(meta: Any) -> str:
    return f"{meta.namespace}/{meta.name}"


def _moment(meta: Any) -> str:
    return f"{meta.uid}/{meta.resource_version}"


def _uid(reported: str) -> str:
    return reported.rpartition("/")[0]


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


async def _watch(client: Transport, path: str, selectors: Mapping[str, str], version: str, rng: random.Random,
                 form: Form, limits: WatchLimits) -> AsyncIterator[tuple[str, Any, bytes, Any]]:
    """(type, metadata, raw bytes, object) of the lines of one watch request until the server ends it."""
    import aiohttp

    params = {**selectors, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version,
              "timeoutSeconds": str(WATCH_SECONDS + rng.randrange(WATCH_SECONDS))}
    try:
        answer = await client.stream(path, params, idle=limits.idle)
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
            if len(rest) > limits.longest_line:
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


# -- The bytes of lists and watches, decoded --------------------------------------------------------------------------

# At once into a kind where one is named, else as far as the metadata. Fifty thousand pods are hundreds of megabytes: reading
# every byte once instead of three times is most of a quick start.

class Meta(Struct, rename="camel", gc=False):
    """The metadata by which objects are told apart."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Object(Struct, gc=False):
    metadata: Meta = field(default_factory=Meta)


class _ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    cont: str = field(default="", name="continue")


class _List(Struct, gc=False):
    metadata: _ListMeta = field(default_factory=_ListMeta)
    items: list[Raw] | None = None


class _Frame(Struct, gc=False):
    type: str
    object: Raw


class Status(Struct, gc=False):
    """The reason for which a server ends a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_frame = msgspec.json.Decoder(_Frame).decode
decode_status = msgspec.json.Decoder(Status).decode

Entry = tuple[Any, bytes, Any]
"""(metadata, raw bytes, decoded object) of one object; either bytes or object is there."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. ``cont`` is empty on the last one."""

    entries: Iterator[Entry]
    version: str
    cont: str


@dataclass(frozen=True, slots=True)
class Form:
    """Decoders of lists and watch lines of one kind."""

    _list: Callable[[bytes], Any] | None
    _line: Callable[[bytes], Any] | None

    def page(self, raw: bytes) -> Page:
        """Raises msgspec.MsgspecError when this is no list. An object that is not of the kind spoils no other: then all
        come as bytes."""
        if self._list is not None:
            try:
                found = self._list(raw)
            except msgspec.ValidationError:
                pass
            else:
                entries: Iterator[Entry] = ((obj.metadata, b"", obj) for obj in found.items or ())
                return Page(entries, found.metadata.resource_version, found.metadata.cont)
        found = _decode_list(raw)
        entries = ((_decode_object(item).metadata, bytes(item), None) for item in found.items or ())
        return Page(entries, found.metadata.resource_version, found.metadata.cont)

    def line(self, raw: bytes) -> tuple[str, Any, bytes, Any]:
        """(type, metadata, raw bytes, decoded object) of one line of a watch; the bytes are the whole line where the object is
        decoded. Raises msgspec.MsgspecError."""
        if self._line is not None:
            try:
                found = self._line(raw)
            except msgspec.ValidationError:
                pass  # an object that is not of the kind, or the Status of an error
            else:
                if found.type != "ERROR":
                    return found.type, found.object.metadata, raw, found.object
        found = _decode_frame(raw)
        return found.type, _decode_object(found.object).metadata, bytes(found.object), None


def form_of(kind: Any | None) -> Form:
    """The form of a kind (a Struct with ``metadata``); None: metadata and bytes only."""
    return Form(None, None) if kind is None else _form(kind)


@cache
def _form(kind: Any) -> Form:
    metadata = ("metadata", _ListMeta, field(default_factory=_ListMeta))
    pages = defstruct(f"{kind.__name__}List", [metadata, ("items", list[kind] | None, None)], gc=False)
    line = defstruct(f"{kind.__name__}Event", [("type", str), ("object", kind)], gc=False)
    return Form(msgspec.json.Decoder(pages, strict=False).decode, msgspec.json.Decoder(line, strict=False).decode)
