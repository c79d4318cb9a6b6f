"""Requests to the API server. Implements ports.cluster.Cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json as jsonlib
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

import aiohttp
from yarl import URL

from pumice.adapters.kube.config import Access, load_kubeconfig
from pumice.adapters.kube.verbs import Verbs
from pumice.ports.clock import Clock, SystemClock
from pumice.ports.cluster import ApiError

TOO_MANY_RETRIES = 8  # client-go gives up after ten answers of 429


class KubeClient(Verbs):
    """A client of one API server. Use as ``async with KubeClient(access) as kube``.

    ``connections`` bounds the sockets, and with them the requests in flight. Answers of 429 are retried after the time
    that the server names; everything else is the caller's decision.
    """

    def __init__(self, access: Access, *, clock: Clock | None = None, dice: random.Random | None = None,
                 connections: int = 32, timeout: float = 30.0, user_agent: str = "pumice") -> None:
        self.access = access
        self.clock: Clock = clock or SystemClock()
        self.dice = dice or random.Random()
        self.timeout = aiohttp.ClientTimeout(total=timeout)
        self._connections, self._agent = connections, user_agent
        self._session: aiohttp.ClientSession | None = None
        self.requests: dict[str, int] = {}
        """Requests sent so far by verb, for reports of API writes per pod."""

    @classmethod
    def from_kubeconfig(cls, path: str | os.PathLike[str] = "", **options: Any) -> Self:
        return cls(load_kubeconfig(path), **options)

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # Watches hold a connection each, so they must not count against the bound on requests in flight.
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=55)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
            self._slots = asyncio.Semaphore(self._connections)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        token = self.access.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> aiohttp.ClientResponse:
        """Open a long answer (a watch, a log). ``idle`` is the longest silence in seconds. The caller closes it."""
        session = self._open()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle)
        try:
            answer = await session.get(self.access.server + path, params=params, headers=self._headers(),
                                       ssl=self.access.ssl or False, server_hostname=self.access.server_name,
                                       timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(error) from error
        if answer.status >= 400:
            body = await answer.read()
            answer.release()
            raise _refusal(answer.status, answer.headers, body)
        return answer

    @contextlib.asynccontextmanager
    async def websocket(self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str],
                        timeout: float) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket of a subresource (exec, attach). Raises ApiError where the server does not switch protocols."""
        session = self._open()
        address = URL(self.access.server + path).with_query(query)
        try:
            async with asyncio.timeout(timeout), session.ws_connect(
                address, headers={**self._headers(), "Accept": "*/*"}, protocols=protocols, ssl=self.access.ssl or True,
                max_msg_size=0,
            ) as socket:  # fmt: skip
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "UpgradeRefused", error.message) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(error) from error

    async def request(self, verb: str, path: str, *, params: Mapping[str, str] | None = None,
                      body: bytes | None = None, content_type: str = "application/json") -> bytes:
        """One request, one answer. Raises ApiError; code 0 means that nobody knows whether it was carried out."""
        session = self._open()
        for attempt in range(TOO_MANY_RETRIES + 1):
            self.requests[verb] = self.requests.get(verb, 0) + 1
            headers = self._headers()
            if body is not None:
                headers["Content-Type"] = content_type
            try:
                async with self._slots, session.request(
                    verb, self.access.server + path, params=params, data=body, headers=headers,
                    ssl=self.access.ssl or False, server_hostname=self.access.server_name, timeout=self.timeout,
                ) as answer:  # fmt: skip
                    raw = await answer.read()
                    if answer.status < 400:
                        return raw
                    refusal = _refusal(answer.status, answer.headers, raw)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _no_answer(error) from error
            if refusal.code != 429 or attempt == TOO_MANY_RETRIES:
                raise refusal
            await self.clock.sleep(refusal.retry_after * (1 + 0.2 * self.dice.random()))
        raise AssertionError("unreachable: the last attempt returns or raises")


def _refusal(code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The ApiError of a Status object, or of whatever text a proxy in between sent."""
    try:
        status = jsonlib.loads(body)
        reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
        details = status.get("details") or {}
    except (ValueError, AttributeError):
        reason, message, details = "", body[:200].decode(errors="replace").strip(), {}
    wait = headers.get("Retry-After") or details.get("retryAfterSeconds") or (1 if code == 429 else 0)
    try:
        seconds = max(0.0, min(60.0, float(wait)))
    except ValueError:
        seconds = 1.0
    return ApiError(code, reason or "Unknown", message or f"HTTP {code}", retry_after=seconds)


def _no_answer(error: BaseException) -> ApiError:
    if isinstance(error, TimeoutError):
        return ApiError(0, "Timeout", "the API server did not answer in time")
    return ApiError(0, "Unreachable", str(error) or type(error).__name__)
