"""How long the server waits for a client: nobody holds a socket for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler


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
