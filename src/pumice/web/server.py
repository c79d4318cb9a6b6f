"""The HTTP server of the page: who may see it, what it answers, and the streams by which pages learn that there is news.

Nothing here writes to the cluster: all is GET but the form that exchanges the token for a cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import resource
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

from aiohttp import web

from pumice.model.errors import BadInput
from pumice.web.guard import HEADERS, Guard, host_of
from pumice.web.rendering import Templates, static
from pumice.web.rights import Unknown
from pumice.web.viewers import HEADER, Viewers, token_of
from pumice.web.views import Missing, Query, Shown

log = logging.getLogger("pumice.web")

STREAMS, CONNECTIONS, SPARE = 1000, 3000, 100
"""Pages that are told of news at once, and connections; whoever comes later is told to come again, and loads the page by hand.
``SPARE`` more hear so; from then on nobody is let in. As many files are left to whatever else the process opens."""
IDLE = 20.0
"""Seconds for which a connection may say nothing, or not end what it asks."""
PAGES_KEPT, PAGE_BYTES = 200, 32 << 20
PING, STUCK = 15.0, 10.0
"""Seconds between two signs of life on a stream, and for which a reader may not read. A page has three times as long."""
QUICKEST, SLOWEST, SHARE = 1.0, 20.0, 0.03
"""Seconds between two pieces of news, and the part of a core that pages drawn anew may take: the dearer they are, the rarer."""


def processor_time() -> float:
    """Return the seconds of this thread and of all children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + children.ru_utime + children.ru_stime


class Site(Protocol):
    """The subject of the page: of a cluster, or of one machine."""

    @property
    def views(self) -> Mapping[str, Callable[[Query], Awaitable[Shown]]]: ...
    @property
    def version(self) -> int: ...
    def state(self) -> Mapping[str, Any]:
        """Return what stands on each page: since when figures are old, what is not known, and why."""
        ...


SITE: web.RequestKey[tuple[Site, int]] = web.RequestKey("site", tuple)
"""Of a request: the pages that it is answered from, and their number."""


@dataclass(slots=True)
class _Kept:
    version: int
    at: float
    status: int
    body: bytes
    tag: str


@dataclass(slots=True)
class Server:
    """One page server. ``cookie`` is the cookie's name: cookies know no ports."""

    site: Site
    guard: Guard
    cookie: str = "pumice-web"
    news: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0
    streams_at_most: int = STREAMS
    connections_at_most: int = CONNECTIONS
    spent: float = 0.0
    """Seconds of processor time that pages took since the last news: what views and their children worked out, and drawing."""
    told: int = -1
    viewers: Viewers | None = None
    """In a cluster: who looks is known by his own token, and sees what he may list. There is neither cookie nor token of ours."""
    _templates: Templates = field(default_factory=Templates)
    _pages: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _drawing: dict[str, asyncio.Future[_Kept]] = field(default_factory=dict)
    _begun: float = 0.0
    """``processor_time`` when the first of those being drawn was begun."""
    _connections: Callable[[], int] = lambda: 0

    # -- who may see it -----------------------------------------------------------------------------------------

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._checked], client_max_size=4096)
        app.router.add_get("/static/{name}", self._static)
        app.router.add_get("/login", self._login_page)
        app.router.add_post("/login", self._login)
        if self.viewers is not None:
            app.router.add_get("/healthz", self._healthz)
            app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/events", self._events)
        app.router.add_get("/{page:[a-z]*}", self._page)
        return app

    @web.middleware
    async def _checked(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
                       ) -> web.StreamResponse:  # fmt: skip
        answer = await self._answer(request, handler)
        if not answer.prepared:
            for name, value in HEADERS.items():
                answer.headers[name] = value
            answer.headers.setdefault("Cache-Control", "no-store")
            answer.headers["Server"] = "pumice"
            try:
                async with asyncio.timeout(3 * STUCK):
                    await answer.prepare(request)
                    await answer.write_eof()
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError from None
        return answer

    async def _answer(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
                      ) -> web.StreamResponse:  # fmt: skip
        if self.viewers is None and not self.guard.answers_to(request.host):
            return web.Response(status=421, text=f"this page does not answer to {host_of(request.host)[:100]!r}\n")
        if self._connections() > self.connections_at_most:
            return web.Response(status=503, text="too many connections\n", headers={"Retry-After": "30", "Connection": "close"})
        try:
            if self.viewers is not None:
                return await self._viewed(request, handler, self.viewers)
            request[SITE] = self.site, 0
            if request.path.startswith(("/static/", "/login")):
                return await handler(request)
            if "token" in request.query:
                return self._exchange(request)
            if self._known(request):
                return await handler(request)
        except web.HTTPException as error:
            return self._error(error.status, error.reason)
        except ConnectionResetError:
            raise
        except TimeoutError:
            return self._error(408, "what was asked did not end in time")
        except Exception:
            log.exception("a page could not be made path=%s", request.path)
            return self._error(500, "this page could not be made; the log says why")
        page = self._templates.render("login", {"next": _relative(request), "wrong": False, "title": "Token"})
        return web.Response(status=401, text=page, content_type="text/html")

    async def _viewed(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
                      viewers: Viewers) -> web.StreamResponse:  # fmt: skip
        if request.path.startswith("/static/") or request.path in ("/healthz", "/readyz"):
            return await handler(request)
        if request.path == "/login":
            return self._error(404, "there is no such page")
        try:
            book = await viewers.of(token_of(request.headers))
        except Unknown as unknown:
            answer = self._error(503, str(unknown))
            answer.headers["Retry-After"] = "10"
            return answer
        if book is not None:
            request[SITE] = book.site, book.number
            return await handler(request)
        words = {"wrong": bool(token_of(request.headers)), "title": "Token"}
        return web.Response(status=401, text=self._templates.render("viewer", words), content_type="text/html")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        """Ready when all that can be listed is: nothing is shown before as if it were all."""
        ready = self.viewers is not None and self.viewers.ready
        return web.Response(status=200 if ready else 503, text="ok\n" if ready else "not all is listed yet\n")

    def _known(self, request: web.Request) -> bool:
        cookie = request.cookies.get(self.cookie, "")
        return self.guard.knows_cookie(cookie) or self.guard.knows_header(request.headers.get("Authorization", ""))

    def _exchange(self, request: web.Request) -> web.Response:
        """The token out of the URL: it shall stand in no history, log or Referer."""
        if not self.guard.knows(request.query["token"]):
            page = self._templates.render("login", {"next": "", "wrong": True, "title": "Token"})
            return web.Response(status=401, text=page, content_type="text/html")
        answer = web.Response(status=303, headers={"Location": _relative(request) or "./"})
        self._give_cookie(answer)
        return answer

    def _give_cookie(self, answer: web.Response) -> None:
        answer.set_cookie(self.cookie, self.guard.cookie, httponly=True, samesite="Lax", path="/")

    async def _login_page(self, request: web.Request) -> web.Response:
        page = self._templates.render("login", {"next": "", "wrong": False, "title": "Token"})
        return web.Response(text=page, content_type="text/html")

    async def _login(self, request: web.Request) -> web.Response:
        origin = request.headers.get("Origin", "")
        if origin and origin != "null" and host_of(origin.partition("://")[2]) != host_of(request.host):
            return self._error(403, "the token was sent by another site")
        async with asyncio.timeout(STUCK):
            form = await request.post()
        token, after = form.get("token", ""), form.get("next", "")
        if not isinstance(token, str) or not self.guard.knows(token.strip()):
            page = self._templates.render("login", {"next": after if isinstance(after, str) else "", "wrong": True,
                                                    "title": "Token"})  # fmt: skip
            return web.Response(status=401, text=page, content_type="text/html")
        answer = web.Response(status=303, headers={"Location": _safe(after if isinstance(after, str) else "")})
        self._give_cookie(answer)
        return answer

    # -- pages --------------------------------------------------------------------------------------------------

    async def _static(self, request: web.Request) -> web.Response:
        found = static(request.match_info["name"])
        if found is None:
            return self._error(404, "there is no such file")
        return web.Response(body=found[0], content_type=found[1], charset="utf-8", headers={"Cache-Control": "max-age=300"})

    async def _page(self, request: web.Request) -> web.Response:
        name = request.match_info["page"]
        site, number = request[SITE]
        view = site.views.get(name)
        if view is None:
            return self._error(404, "there is no such page")
        query = {key: value[:500] for key, value in request.query.items()}
        kept = await self._kept(f"{number}/{name}?{urlencode(sorted(query.items()))}", site, name, view, query)
        if request.headers.get("If-None-Match") == kept.tag:
            return web.Response(status=304, headers={"ETag": kept.tag})
        headers = {"ETag": kept.tag, "Vary": f"Cookie, Authorization, {HEADER}", "Cache-Control": "no-cache, private"}
        return web.Response(status=kept.status, body=kept.body, content_type="text/html", charset="utf-8", headers=headers)

    async def _kept(self, url: str, site: Site, name: str, view: Callable[[Query], Awaitable[Shown]], query: Query) -> _Kept:
        """However many look at one page, it is drawn once for a state of the cluster."""
        found = self._pages.get(url)
        if found is not None and (found.version == site.version or time.monotonic() - found.at < QUICKEST / 2):
            self._pages.move_to_end(url)
            if time.monotonic() - found.at < PING:  # ages go on where nothing else does
                return found
        waiting = self._drawing.get(url)
        if waiting is None:
            if not self._drawing:
                self._begun = processor_time()
            waiting = self._drawing[url] = asyncio.ensure_future(self._draw(site, name, view, query))
            waiting.add_done_callback(lambda done: self._drawn(url, done))
        return await asyncio.shield(waiting)

    def _drawn(self, url: str, done: asyncio.Future[_Kept]) -> None:
        self._drawing.pop(url, None)
        if not self._drawing:
            self.spent += processor_time() - self._begun
        if done.cancelled() or done.exception() is not None:
            return
        old = self._pages.pop(url, None)
        self._bytes += len(done.result().body) - (len(old.body) if old is not None else 0)
        self._pages[url] = done.result()
        while len(self._pages) > PAGES_KEPT or self._bytes > PAGE_BYTES:
            _, gone = self._pages.popitem(last=False)
            self._bytes -= len(gone.body)

    async def _draw(self, site: Site, name: str, view: Callable[[Query], Awaitable[Shown]], query: Query) -> _Kept:
        version = site.version
        try:
            shown = await view(query)
        except Missing as missing:
            shown = Shown("missing", "Not found", {"text": str(missing)}, 404)
        words = {**site.state(), **shown.words, "title": shown.title, "here": name}
        body = self._templates.render(shown.template, words).encode("utf-8", "replace")
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        return _Kept(version, time.monotonic(), shown.status, body, tag)

    def _error(self, status: int, text: str) -> web.Response:
        """Say nothing of what is shown: it is answered to anybody."""
        words = {"title": "Not found" if status == 404 else "Refused", "text": text}
        return web.Response(status=status, text=self._templates.render("refused", words), content_type="text/html")

    # -- news ---------------------------------------------------------------------------------------------------

    async def tell(self) -> None:
        """Wake the streams when something has changed, and seldom enough; for ever."""
        while True:
            pause = min(SLOWEST, max(QUICKEST, self.spent / SHARE))
            self.spent = min(max(0.0, self.spent - pause * SHARE), SLOWEST * SHARE)  # what one pause cannot make up for
            await asyncio.sleep(pause)
            if self.site.version != self.told:
                self.told = self.site.version
                self.news.set()
                self.news = asyncio.Event()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events. A stream holds no queue: who reads slowly hears of the last news only, who does not read is cut
        off."""
        if self.streams >= self.streams_at_most:
            return web.Response(status=503, text="too many pages are open\n", headers={"Retry-After": "60"})
        self.streams += 1
        try:
            answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store",
                                                 "X-Accel-Buffering": "no"})  # nginx would keep news back
            await answer.prepare(request)
            if request.transport is not None:
                request.transport.set_write_buffer_limits(high=1024)
            said, site = -1, request[SITE][0]
            while await self._still(request):
                news, version = self.news, self.told if self.viewers is None else site.version
                async with asyncio.timeout(STUCK):
                    await answer.write(f"data: {version}\n\n".encode() if version != said else b": here\n\n")
                said = version
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PING):
                        await news.wait()
            return answer
        except (TimeoutError, ConnectionResetError):
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None
        finally:
            self.streams -= 1

    async def _still(self, request: web.Request) -> bool:
        """Return whether whoever reads a stream may still have it: a token ends, and rights do, while a page is open."""
        if self.viewers is None:
            return True
        try:
            book = await self.viewers.of(token_of(request.headers))
        except Unknown:
            return True  # he hears of news, and is told the reason where he asks for the page
        return book is not None and book.number == request[SITE][1]


def _relative(request: web.Request) -> str:
    """The page that was asked for without the token, relative to where it lies."""
    query = urlencode([(key, value) for key, value in request.query.items() if key != "token"])
    page = request.match_info.get("page", "")
    return f"{page}?{query}" if query else page


def _safe(after: str) -> str:
    """A page of ours: one word and a query. Anything else leads to the first page."""
    page = after.partition("?")[0]
    return after if page.isascii() and page.isalpha() and after.isprintable() and len(after) < 2000 else "./"


@asynccontextmanager
async def served(server: Server, host: str, port: int, given: socket.socket | None = None) -> AsyncIterator[int]:
    """Serve while the block runs; gives the port. ``given`` is a socket that listens already, in place of the address. Raises
    BadInput where the address cannot be had."""
    server.connections_at_most, server.streams_at_most = _bounds(server)
    runner = web.AppRunner(server.application(), access_log=None, logger=_silent(), keepalive_timeout=IDLE, shutdown_timeout=0.5,
                           handler_cancellation=True)  # fmt: skip
    await runner.setup()
    handler = runner.server
    assert handler is not None
    server._connections = lambda: len(handler.connections)

    def met() -> asyncio.Protocol:
        return handler() if server._connections() < server.connections_at_most + SPARE else _Full()

    telling = asyncio.ensure_future(server.tell())
    try:
        try:
            loop = asyncio.get_running_loop()
            listening = await (loop.create_server(met, host, port, backlog=128) if given is None else
                               loop.create_server(met, sock=given, backlog=128))  # fmt: skip
        except OSError as error:
            raise BadInput(f"--listen-address {host}:{port}: {error.strerror or error}") from None
        bound = int(listening.sockets[0].getsockname()[1])
        server.cookie = f"pumice-web-{bound}"
        try:
            yield bound
        finally:
            listening.close()
    finally:
        telling.cancel()
        await runner.cleanup()


class _Full(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _bounds(server: Server) -> tuple[int, int]:
    """Connections and streams, as far as this process may open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = server.connections_at_most + 2 * SPARE
    if soft == resource.RLIM_INFINITY:
        soft = wanted
    elif soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    connections = max(10, min(server.connections_at_most, soft - 2 * SPARE))
    return connections, min(server.streams_at_most, max(1, connections // 2))


def _silent() -> logging.Logger:
    """Of requests that are none: what cannot be read may hold the token, and would stand in the log."""
    return logging.Logger("pumice.web.requests", logging.CRITICAL + 1)
