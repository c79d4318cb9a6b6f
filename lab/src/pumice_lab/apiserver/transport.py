"""The socket: aiohttp with TLS and bearer tokens, a thin shell around ``ApiServer.handle``."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pumice_lab.apiserver.errors import ApiFailure, too_large, too_many_requests, unauthorized, unsupported_media_type
from pumice_lab.apiserver.fairness import Turns
from pumice_lab.apiserver.http_types import SLICE, Request, Response, User, failure, slices
from pumice_lab.apiserver.server import ApiServer
from pumice_lab.apiserver.tunnel import Tunnels

BODY_LIMIT = 3 * 1024 * 1024  # of kube-apiserver
REQUESTS_AT_ONCE = 64
"""Requests of one user that a turn of the loop begins with, more than a client has under way."""
READS, WRITES = 400, 200
"""Requests of one user that may be under way (kube-apiserver has these for all: --max-requests-inflight, --max-mutating-requests-
inflight): each holds a body or an answer, which may be large."""
ACCEPTED, BACKLOG = 16, 512
"""Connections that one turn of the loop accepts, and those that the kernel keeps until then."""
TLS_RECORD = 16 * 1024
"""Bytes that a connection reads at once: what TLS sends at once (RFC 8446, 5.1). asyncio keeps 256 KiB for each, idle or not."""


@dataclass(slots=True)
class Served:
    """A listening server. ``url`` is where it listens; ``close`` ends all connections."""

    url: str
    port: int
    _runner: web.AppRunner
    _shell: _Shell

    @property
    def connections(self) -> list[RequestHandler]:
        """Those that are open."""
        assert self._runner.server is not None
        return list(self._runner.server.connections)

    async def close(self) -> None:
        await self._shell.close()
        await self._runner.cleanup()


async def serve(
    api: ApiServer,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    tokens: Mapping[str, User] | None = None,
    kubelet_identity: tuple[Path, Path] | None = None,
    patience: Patience | None = None,
) -> Served:
    """Listens until closed. ``kubelet_identity``: certificate and key for calls to kubelets (logs, exec). From then on every TLS
    connection of the process reads a record at a time.

    Port 0 takes a free one. Raises OSError when the port is taken."""
    sslproto.SSLProtocol.max_size = TLS_RECORD
    api.tokens.add(tokens or {})
    await api.start()
    patience = patience or Patience()
    shell = _Shell(api, kubelet_identity, patience)
    server = PatientServer(
        shell.serve, patience, request_factory=_request, handler_cancellation=True, access_log=None, keepalive_timeout=600,
        auto_decompress=False,
    )
    app_runner = web.ServerRunner(server, shutdown_timeout=1)
    await app_runner.setup()
    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    site = web.SockSite(app_runner, listening, ssl_context=tls, backlog=ACCEPTED)
    await site.start()
    listening.listen(BACKLOG)
    actual = app_runner.addresses[0][1]
    scheme = "https" if tls else "http"
    return Served(f"{scheme}://{host}:{actual}", actual, app_runner, shell)  # type: ignore[arg-type]


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=BODY_LIMIT
    )


class _Shell:
    def __init__(self, api: ApiServer, kubelet_identity: tuple[Path, Path] | None, patience: Patience) -> None:
        self.api, self.tunnels, self.patience, self.turns = api, Tunnels(kubelet_identity), patience, Turns()
        self.requests = Turns(at_once=REQUESTS_AT_ONCE)
        self._under_way: Counter[tuple[str, bool]] = Counter()
        """Requests by user and whether they read, until their answer is sent or a watch or a tunnel begins."""
        self._streams: set[asyncio.Task[Any]] = set()  # watches and tunnels, which would otherwise outlive the server

    async def close(self) -> None:
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await self.tunnels.close()

    async def serve(self, http: web.BaseRequest) -> web.StreamResponse:
        user = self.api.tokens.user(_authorization(http))
        if user is None:
            return _plain(failure(unauthorized()))
        kind = user.name, http.method in ("GET", "HEAD")
        if self._under_way[kind] >= (READS if kind[1] else WRITES):
            return _plain(failure(too_many_requests()))
        self._under_way[kind] += 1
        try:
            request = await _read(http, user, self.patience.body)
            if isinstance(request, web.Response):
                return request
            await self.requests.mine(user.name)
            response = await self.api.handle(request)
            if response.gathered is not None:
                response = await self.tunnels.gather(*response.gathered)
            if response.tunnel is None and response.stream is None:
                return _plain(response) if response.parts is None else await self._long(http, response, user.name)
        finally:
            self._under_way[kind] -= 1
            if not self._under_way[kind]:
                del self._under_way[kind]
        return await self._long(http, response, user.name)

    async def _long(self, http: web.BaseRequest, response: Response, user: str) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            if response.tunnel is not None:
                return await self.tunnels.carry(http, response.tunnel)
            return await self._stream(http, response, user)
        finally:
            self._streams.discard(task)

    async def _stream(self, http: web.BaseRequest, response: Response, user: str) -> web.StreamResponse:
        result = web.StreamResponse(status=response.code, headers=_headers(response))
        result.enable_chunked_encoding()
        stream = response.stream if response.parts is None else _sliced(response.parts)
        assert stream is not None
        try:
            await result.prepare(http)
            await self.turns.mine(user)
            async for chunk in stream:
                async with asyncio.timeout(self.patience.stall):
                    await result.write(chunk)
                # A turn for everybody else: a client that takes all at once would never pause us.
                long = response.parts is not None or len(chunk) >= SLICE
                await (self.turns.mine(user) if long else asyncio.sleep(0))
            await result.write_eof()
        except TimeoutError:
            if http.transport is not None:
                http.transport.abort()  # what it did not take is given back
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client went away, or the server stops
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
        return result


def _authorization(http: web.BaseRequest) -> str:
    header = http.headers.get("Authorization", "")
    if header:
        return header
    # A browser cannot set headers on a WebSocket; Kubernetes lets it send the token as a subprotocol.
    for protocol in http.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith("base64url.bearer.authorization.k8s.io."):
            encoded = protocol.strip().rpartition(".")[2]
            try:
                return "Bearer " + base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            except ValueError:
                return "Bearer"  # a token that nobody has
    return ""


async def _read(http: web.BaseRequest, user: User, seconds: float) -> Request | web.Response:
    body = b""
    if http.body_exists:
        if http.headers.get("Content-Encoding", "identity").lower() != "identity":
            return _plain(failure(unsupported_media_type("bodies are read as they are, without a Content-Encoding")))
        try:
            async with asyncio.timeout(seconds):
                body = await http.read()
        except TimeoutError:
            message = f"the body did not arrive within {seconds:.0f} seconds"
            return _plain(failure(ApiFailure(408, "Timeout", message)))
        except web.HTTPRequestEntityTooLarge:
            return _plain(failure(too_large(f"limit is {BODY_LIMIT}")))
    query: dict[str, list[str]] = {}
    for key, value in http.query.items():
        query.setdefault(key, []).append(value)
    headers = {key.lower(): value for key, value in http.headers.items()}
    for key in headers:
        if key.startswith("impersonate-"):
            headers[key] = "\n".join(http.headers.getall(key))
    return Request(http.method, http.path, query, headers, body, user)


def _headers(response: Response) -> dict[str, str]:
    return {"Content-Type": response.content_type, "Cache-Control": "no-cache, private", **response.headers}


def _plain(response: Response) -> web.Response:
    result = web.Response(status=response.code, body=response.body, headers=_headers(response))
    for warning in response.warnings:
        text = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        result.headers.add("Warning", f'299 - "{text}"')
    return result


async def _sliced(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in slices(parts):
        yield chunk


# -- How long the server waits for a client ---------------------------------------------------------------------------

# Nobody holds a socket for ever.

@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds."""

    head: float = 32.0  # of a request, as kube-apiserver waits for it
    body: float = 60.0
    stall: float = 30.0
    """A client that takes not a slice of its answer in that time is gone."""


class PatientServer(web.Server):
    """A server whose connections are closed when a request begins and does not go on."""

    def __init__(self, handler: Any, patience: Patience, **more: Any) -> None:
        super().__init__(handler, **more)
        self._head = patience.head

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._head, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ("_head", "_waiting")

    def __init__(self, server: web.Server, head: float, **more: Any) -> None:
        super().__init__(server, **more)
        self._head = head
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._waiting = self._loop.call_later(self._head, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._current_request is not None:
            self._forget()
        elif self._waiting is None:  # a piece of the next request's head
            self._waiting = self._loop.call_later(self._head, self._give_up)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _forget(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        transport: Any = self.transport
        if transport is not None and self._current_request is None:
            transport.abort()
