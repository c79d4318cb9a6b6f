"""Requests to the API server. Implements ports.cluster.Cluster."""

from __future__ import annotations

import asyncio
import json as jsonlib
import os
import random
import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from pumice.adapters.kube.config import Access, load_kubeconfig
from pumice.adapters.kube.connections import Answer, BadAnswer, Connections
from pumice.adapters.kube.verbs import Verbs
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock, SystemClock
from pumice.ports.cluster import ApiError

if TYPE_CHECKING:
    import aiohttp  # imported where an answer is streamed: a command that asks once starts without it, in a fifth less time
    from yarl import URL

TOO_MANY_RETRIES = 8  # client-go gives up after ten answers of 429
UNPACKED_ASIDE = 256 * 1024
"""Bytes of a compressed answer from which on it is unpacked in a thread."""
PLAIN = "/~:@!$&'()*+,;="
"""Characters that a path keeps unescaped, beside letters, digits and ``_.-`` (RFC 3986)."""
PLAIN_IN_QUERY = ","
"""And in a query: a selector may name hundreds of values."""
_plain_path = re.compile(f"[A-Za-z0-9_.{re.escape(PLAIN)}-]*").fullmatch


class KubeClient(Verbs):
    """A client of one API server. Use as ``async with KubeClient(access) as kube``.

    ``connections`` bounds the sockets, and with them the requests in flight. Answers of 429 are retried after the time
    that the server names; everything else is the caller's decision.
    """

    def __init__(self, access: Access, *, clock: Clock | None = None, rng: random.Random | None = None,
                 connections: int = 32, timeout: float = 30.0, user_agent: str = "pumice") -> None:
        self.access = access
        self.clock: Clock = clock or SystemClock()
        self.rng = rng or random.Random()
        self.timeout = timeout
        self._connections, self._agent = connections, user_agent
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(connections)
        self._base = base = _server_url(access.server)
        self._tls = (access.ssl or ssl.create_default_context()) if base.scheme == "https" else None
        self._lanes = Connections(base.host or "", base.port or 443, self._tls, access.server_name)
        self._prefix, self._token, self._fields = base.raw_path.rstrip("/"), "", b""
        self.requests: dict[str, int] = {}
        """Requests sent so far by verb, for reports of API writes per pod."""

    @classmethod
    def from_kubeconfig(cls, path: str | os.PathLike[str] = "", **options: Any) -> Self:
        return cls(load_kubeconfig(path), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None or self._session.closed:
            # Watches hold a connection each, so they must not count against the bound on requests in flight.
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=55)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._slots = asyncio.Semaphore(self._connections)
        await self._lanes.close()

    def _headers(self, token: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> aiohttp.ClientResponse:
        """Open a long answer (a watch, a log). ``idle`` is the longest silence in seconds. The caller closes it."""
        import aiohttp

        session = self._open()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle)
        try:
            answer = await session.get(self.access.server + path, params=params, headers=self._headers(self.access.token()),
                                       ssl=self._tls or False, server_hostname=self.access.server_name,
                                       timeout=timeout)
            body = await answer.read() if answer.status >= 400 else b""
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(error) from error
        if answer.status >= 400:
            raise _refusal(answer.status, answer.headers.get("Retry-After", ""), body)
        return answer

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None,
                      body: bytes | None = None, content_type: str = "application/json") -> bytes:
        """One request, one answer. Raises ApiError; code 0 means that nobody knows whether it was carried out."""
        message = self._message(verb, self._target(path, params), body, content_type)
        for attempt in range(TOO_MANY_RETRIES + 1):
            self.requests[verb] = self.requests.get(verb, 0) + 1
            try:
                async with self._slots:
                    answer = await self._lanes.ask(verb, message, self.timeout)
                content = await _content(answer)
            except (BadAnswer, OSError) as error:
                raise _no_answer(error) from error
            if 200 <= answer.status < 300:
                return content
            refusal = _refusal(answer.status, answer.field("Retry-After"), content)
            if refusal.code != 429 or attempt == TOO_MANY_RETRIES:
                raise refusal
            await self.clock.sleep(refusal.retry_after * (1 + 0.2 * self.rng.random()))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _target(self, path: str, params: Mapping[str, str] | None) -> str:
        """Path and query as they stand in a request, what is not plain in them quoted."""
        quoted = path if _plain_path(path) else quote(path, safe=PLAIN)
        return self._prefix + (f"{quoted}?{urlencode(params, safe=PLAIN_IN_QUERY)}" if params else quoted)

    def _message(self, verb: str, target: str, body: bytes | None, content_type: str) -> bytes:
        token = self.access.token()
        if token != self._token or not self._fields:
            self._token = token
            fields = {"Host": self._base.host_port_subcomponent or "", **self._headers(token), "Accept-Encoding": "gzip"}
            self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
        first = f"{verb} {target} HTTP/1.1\r\n".encode()
        if body is None:
            return b"%s%s\r\n" % (first, self._fields)
        length = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return b"".join((first, self._fields, length, body))


def _server_url(text: str) -> URL:
    """Raises BadInput."""
    from yarl import URL

    try:
        url = URL(text)
        if url.scheme in ("http", "https") and url.host:
            return url
    except ValueError:
        pass
    raise BadInput(f"the server {text!r} is no address of an API server; write for example https://10.0.0.1:6443")


async def _content(answer: Answer) -> bytes:
    """The body, unpacked. Raises BadAnswer."""
    if len(answer.body) < UNPACKED_ASIDE:
        return answer.content()
    return await asyncio.to_thread(answer.content)


def _refusal(code: int, wait: str | float, body: bytes) -> ApiError:
    """The ApiError of a Status object, or of whatever text a proxy in between sent."""
    try:
        status = jsonlib.loads(body)
        reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
        details = status.get("details") or {}
    except (ValueError, AttributeError):
        reason, message, details = "", body[:200].decode(errors="replace").strip(), {}
    wait = wait or details.get("retryAfterSeconds") or (1 if code == 429 else 0)
    try:
        seconds = max(0.0, min(60.0, float(wait)))
    except ValueError:
        seconds = 1.0
    return ApiError(code, reason or "Unknown", message or f"HTTP {code}", retry_after=seconds)


def _no_answer(error: BaseException) -> ApiError:
    if isinstance(error, TimeoutError):
        return ApiError(0, "Timeout", "the API server did not answer in time")
    return ApiError(0, "Unreachable", str(error) or type(error).__name__)
