"""Carries logs, exec, attach and forwarded ports between a client and a kubelet: plain HTTP for logs, WebSocket frames for the
others.

Bare SPDY, which Kubernetes is leaving, is refused with 400; kubectl 1.31 and later use WebSockets, and SPDY inside of them for
ports.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
from aiohttp import WSMsgType, web

from pumice_lab.apiserver.errors import ApiFailure, bad_request
from pumice_lab.apiserver.http_types import Response, Tunnel, failure

log = logging.getLogger("pumice.cluster.apiserver.tunnel")
ANSWER_SECONDS = 5.0
LONGEST_WORD = 4096
"""Bytes of a refusal."""
LONGEST_MESSAGE = 32 << 20
"""Bytes, unpacked. kubectl's have 32 KiB; without a bound a few compressed ones would take all memory."""
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io",
             "SPDY/3.1+portforward.k8s.io")  # fmt: skip


class Tunnels:
    """One client session for all kubelets. ``identity``: certificate and key that it shows to them."""

    def __init__(self, identity: tuple[Path, Path] | None = None) -> None:
        self._identity = identity
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Kubelets of this machine sign their own certificates; the connection never leaves it.
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if self._identity is not None:
                context.load_cert_chain(*self._identity)
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            timeout = aiohttp.ClientTimeout(total=None, connect=5, sock_read=None)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def gather(self, tunnels: Sequence[Tunnel], join: Callable[[list[tuple[str, bytes]]], Response]) -> Response:
        """Return the merged answers of those that give one in time, each with its node."""
        bodies = await asyncio.gather(*(self._fetch(tunnel) for tunnel in tunnels))
        try:
            return join([(tunnel.node, body) for tunnel, body in zip(tunnels, bodies, strict=True) if body])
        except ApiFailure as problem:
            return failure(problem)

    async def _fetch(self, tunnel: Tunnel) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._client().get(tunnel.url) as answer:
                return await answer.read() if answer.status == 200 else b""
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            log.debug("no answer node=%s cause=%s", tunnel.node, problem)
            return b""

    async def carry(self, http: web.BaseRequest, tunnel: Tunnel) -> web.StreamResponse:
        upgrade = http.headers.get("Upgrade", "").lower()
        try:
            if upgrade == "websocket":
                return await self._websocket(http, tunnel)
            if upgrade:  # also by a kubectl whose WebSocket was refused
                spoken = f"{upgrade} is not spoken here; use WebSockets (kubectl 1.31 or later)"
                return _refused(bad_request(f"unable to upgrade: {await self._word(tunnel) or spoken}"))
            if "/containerLogs/" not in tunnel.url:
                return _refused(bad_request("exec, attach and port-forward need an upgraded connection (WebSocket)"))
            return await self._http(http, tunnel)
        except aiohttp.WSServerHandshakeError as problem:
            return _refused(bad_request(f"unable to upgrade: {await self._word(tunnel) or problem.message}"))
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return _refused(ApiFailure(500, "InternalError", f"error dialing backend: {tunnel.node}: {problem}"))

    async def _word(self, tunnel: Tunnel) -> str:
        """The kubelet's on why it serves no such connection; empty where it only wants another protocol."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._client().get(tunnel.url) as answer:
                if answer.status < 400:
                    return ""
                text = (await answer.content.read(LONGEST_WORD)).decode(errors="replace").strip()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return f"error dialing backend: {tunnel.node}: {problem}"
        return "" if "upgrade" in text.lower() or "websocket" in text.lower() else text

    async def _http(self, http: web.BaseRequest, tunnel: Tunnel) -> web.StreamResponse:
        async with self._client().get(tunnel.url) as answer:
            if answer.status != 200:
                text = (await answer.text()).strip()
                reason = "NotFound" if answer.status == 404 else "BadRequest"
                return _refused(ApiFailure(answer.status, reason, text or f"the kubelet answered {answer.status}"))
            kind = answer.headers.get("Content-Type", "text/plain")
            result = web.StreamResponse(status=200, headers={"Content-Type": kind})
            result.enable_chunked_encoding()
            await result.prepare(http)
            try:
                async for chunk in answer.content.iter_any():
                    await result.write(chunk)
                await result.write_eof()
            except (ConnectionError, asyncio.CancelledError):
                answer.close()
            return result

    async def _websocket(self, http: web.BaseRequest, tunnel: Tunnel) -> web.StreamResponse:
        offered = [p.strip() for p in http.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        spoken = [p for p in PROTOCOLS if p in offered]
        async with self._client().ws_connect(tunnel.url, protocols=spoken, max_msg_size=LONGEST_MESSAGE) as kubelet:
            chosen = (kubelet.protocol,) if kubelet.protocol else ()
            client = web.WebSocketResponse(protocols=chosen, max_msg_size=LONGEST_MESSAGE)
            await client.prepare(http)
            pumps = [asyncio.ensure_future(_pump(client, kubelet)), asyncio.ensure_future(_pump(kubelet, client))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await client.close()
            return client


Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _pump(source: Socket, sink: Socket) -> None:
    async for message in source:
        if message.type == WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type == WSMsgType.TEXT:
            await sink.send_str(message.data)
        else:
            return


def _refused(problem: ApiFailure) -> web.Response:
    response = failure(problem)
    return web.Response(status=response.code, body=response.body, headers={"Content-Type": "application/json"})
