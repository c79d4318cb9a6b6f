"""watch: the changes of a resource as a stream of JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from pumice.effects.tasks import any_done
from pumice_lab.apiserver.bodies import encode
from pumice_lab.apiserver.conversion import Unconverted
from pumice_lab.apiserver.errors import ApiFailure, bad_request, expired
from pumice_lab.apiserver.http_types import Response, slices
from pumice_lab.apiserver.resource_store import Stored, StoreEvent
from pumice_lab.apiserver.storage import Gone
from pumice_lab.apiserver.verbs.context import Call, metadata_view, table_view
from pumice_lab.apiserver.verbs.read import Filter, body_of, check_watch, metadata_only

BOOKMARK_EVERY = 60.0
DEFAULT_TIMEOUT = 1800.0  # between the 30 and 60 minutes of kube-apiserver's --min-request-timeout


def watch(call: Call) -> Response:
    """Starts a stream. An unusable resourceVersion is told inside of it (410 Gone as an ERROR event)."""
    request, storage = call.request, call.backend.storage
    wanted = Filter(call)
    check_watch(request)
    text = request.param("resourceVersion")
    initial = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else None
    try:
        asked = int(text or 0)
    except ValueError:
        raise bad_request(f"resourceVersion: Invalid value: {text!r}: must be a number") from None
    if initial is None:
        initial = asked == 0  # no version or "0": current objects come first as ADDED
    elif initial is False and asked == 0:
        asked = storage.revision
    problem = None if initial or asked <= storage.revision else _future(asked, storage.revision)
    timeout = float(request.number("timeoutSeconds") or DEFAULT_TIMEOUT)
    stream = _refuse(problem) if problem else _counted(call, _stream(call, wanted, asked, initial, timeout))
    return Response(200, stream=stream, content_type="application/json")


def _future(asked: int, revision: int) -> ApiFailure:
    return ApiFailure(504, "Timeout", f"Too large resource version: {asked}, current: {revision}")


async def _refuse(problem: ApiFailure) -> AsyncIterator[bytes]:
    yield encode({"type": "ERROR", "object": problem.status()}) + b"\n"


async def _counted(call: Call, stream: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    with call.backend.watches.opened(call.request.user.name):
        async with aclosing(stream):
            async for chunk in stream:
                yield chunk


async def _stream(call: Call, wanted: Filter, revision: int, initial: bool, timeout: float) -> AsyncGenerator[bytes, None]:
    storage, store = call.backend.storage, call.kind.storage
    clock, lines = call.backend.clock, _Lines(call)
    bookmarks = call.request.flag("allowWatchBookmarks")
    end = clock.monotonic() + timeout
    if initial:
        revision = storage.revision
        first = [stored for stored in storage.objects(store, wanted.namespace) if wanted(stored)]
        if problem := await lines.ready(first):
            yield problem
            return
        for chunk in slices(lines.line("ADDED", stored) for stored in first):
            yield chunk
        del first
        if bookmarks and call.request.flag("sendInitialEvents"):
            yield lines.bookmark(revision, initial_end=True)
    next_bookmark = clock.monotonic() + BOOKMARK_EVERY
    pause: asyncio.Future[None] | None = None  # one for many events: to begin it with each took longer than to tell of the event
    try:
        while True:
            try:
                events = storage.changes(store, revision)
            except Gone:
                message = f"too old resource version: {revision} ({storage.oldest})"
                yield encode({"type": "ERROR", "object": expired(message).status()}) + b"\n"
                return
            if events:
                revision = events[-1].revision
                if problem := await lines.ready([event.stored for event in events]):
                    yield problem
                    return
                for chunk in slices(filter(None, (lines.of(event, wanted) for event in events))):
                    yield chunk
                continue
            now = clock.monotonic()
            if now >= end:
                return
            if bookmarks and now >= next_bookmark:
                next_bookmark = now + BOOKMARK_EVERY
                # Everything up to the last flushed write has been sent, so that revision is safe to resume from.
                revision = max(revision, storage.settled)
                yield lines.bookmark(revision)
            if pause is None or pause.done():
                seconds = min(end, next_bookmark if bookmarks else end) - now
                pause = asyncio.ensure_future(clock.sleep(max(0.001, seconds)))  # a clock may not see less
            change = storage.next_change(store)
            try:
                await any_done(change, pause)
            finally:
                change.cancel()
            await call.backend.watches.woken(call.request.user.name)
    finally:
        if pause is not None:
            pause.cancel()


class _Lines:
    """Turns events into lines, in the form that this client wants."""

    def __init__(self, call: Call) -> None:
        self.call, self.kind = call, call.kind
        self.view, self.bare = table_view(call.request), metadata_view(call.request)
        self._columns_sent = False
        self._shareable = (
            not self.view and not self.bare and (call.kind.custom is None and call.kind.group != "events.k8s.io")
        )

    async def ready(self, those: list[Stored]) -> bytes:
        """Has them converted, where a webhook does that; the line that ends the watch where it cannot."""
        custom, request = self.kind.custom, self.call.request
        if custom is None or custom.webhook is None or self.bare:
            return b""
        request.conversion.answers.clear()  # what was needed before has been sent
        try:
            request.conversion.need(self.kind, [stored.value() for stored in those])
        except Unconverted as waits:
            try:
                await waits.settle(self.call.backend, request)
            except ApiFailure as problem:
                return encode({"type": "ERROR", "object": problem.status()}) + b"\n"
        return b""

    def of(self, event: StoreEvent, wanted: Filter) -> bytes | None:
        """The line for this client; a change into or out of the selection is an ADDED or DELETED. None: not its concern."""
        if event.change == "DELETED":
            before = event.previous
            return self.line("DELETED", event.stored, event) if before is not None and wanted(before) else None
        if wanted.empty and (not wanted.namespace or event.stored.namespace == wanted.namespace):
            return self.line(event.change, event.stored, event)
        now = wanted(event.stored)
        then = event.previous if event.previous is not None and wanted(event.previous) else None
        if now:
            change = "MODIFIED" if then else "ADDED"
            return self.line(change, event.stored, event if change == event.change else None)
        if then:
            return self.line("DELETED", then.told_at(event.revision))  # as the client knows it
        return None

    def line(self, change: str, stored: Stored, event: StoreEvent | None = None) -> bytes:
        if event is not None and self._shareable:
            if event.line is None:
                event.line = b'{"type":"%s","object":%s}\n' % (change.encode(), stored.data)
            return event.line
        if self.view:
            value = self.call.shown(stored.value())
            body = self.call.tables.single(self.kind, value, self.view, columns=not self._columns_sent)
            self._columns_sent = True
        elif self.bare:
            body = encode(metadata_only(stored))
        else:
            body = body_of(self.call, stored)
        return b'{"type":"%s","object":%s}\n' % (change.encode(), body)

    def bookmark(self, revision: int, initial_end: bool = False) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self.view:
            return b'{"type":"BOOKMARK","object":%s}\n' % self.call.tables.bookmark(metadata, self.view)
        kind, version = (self.kind.kind, self.kind.api_version)
        if self.bare:
            kind, version = "PartialObjectMetadata", "meta.k8s.io/v1"
        value = {"kind": kind, "apiVersion": version, "metadata": metadata}
        return encode({"type": "BOOKMARK", "object": value}) + b"\n"
