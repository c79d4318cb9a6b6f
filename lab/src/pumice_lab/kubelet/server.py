"""The node's HTTP server: logs, exec, attach, forwarded ports. The API server is its client.

Exec and attach speak WebSocket, subprotocols v5.channel.k8s.io and v4.channel.k8s.io (Kubernetes: KEP-4006). Every
frame's first byte is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the final status, 4 resize; v5 adds 255, the close of a channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from pumice.ports.clock import Clock
from pumice.wire.times import moment
from pumice_lab.kubelet.logs import LogOptions, read_log
from pumice_lab.kubelet.port_forward import (
    CHANNELS,
    PROTOCOL,
    ChannelForward,
    Forward,
    PortForward,
    connector,
    ports_asked,
)
from pumice_lab.kubelet.usage import Usage
from pumice_lab.runtime.spec import Attached, ExecSession, StartFailed

if TYPE_CHECKING:
    from pumice_lab.kubelet.simulator import KubeletSimulator
    from pumice_lab.kubelet.worker import PodWorker


log = logging.getLogger("pumice.kubelet")
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_TRUE = ("1", "true")


class NodeServer:
    def __init__(self, simulator: KubeletSimulator) -> None:
        self.simulator = simulator
        self._usage = Usage(simulator.clock)
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen on the node's address and return the port; a taken port is replaced by a free one."""
        app = web.Application(middlewares=[self._authenticated])
        app.router.add_get("/healthz", _ok)
        app.router.add_get("/pods", self._pods)
        app.router.add_get("/stats/summary", self._summary)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for method in ("GET", "POST"):
            app.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._exec)
            app.router.add_route(method, "/exec/{namespace}/{pod}/{uid}/{container}", self._exec)
            app.router.add_route(method, "/attach/{namespace}/{pod}/{container}", self._attach)
        app.router.add_get("/portForward/{namespace}/{pod}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        settings = self.simulator.settings
        context = self._tls()
        for port in dict.fromkeys((settings.port, 0)):
            site = web.TCPSite(self._runner, settings.address, port, ssl_context=context)
            try:
                await site.start()
            except OSError as error:
                if not port:
                    raise
                log.warning("port is taken, using a free one port=%d cause=%s", port, error)
                continue
            break
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _tls(self) -> ssl.SSLContext | None:
        tls = self.simulator.settings.tls
        if tls is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """A certificate of the client CA or the bearer token; without either setting everybody on this address."""
        settings = self.simulator.settings
        guarded = bool(settings.server_token or (settings.tls and settings.tls.client_ca))
        if guarded and request.path != "/healthz":
            transport = request.transport
            certificate = transport.get_extra_info("peercert") if transport else None
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            token = bool(settings.server_token) and hmac.compare_digest(given, settings.server_token)
            if not certificate and not token:
                return web.Response(status=401, text="Unauthorized")
        answer: web.StreamResponse = await handler(request)
        return answer

    # -- logs -------------------------------------------------------------------------------------------------------

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        worker, name = self._container(request)
        query = request.query
        previous = query.get("previous", "") in _TRUE
        path = worker.log_file(name, previous=previous)
        if path is None or not path.exists():
            what = "previous terminated container" if previous else "container"
            state = "not found" if previous else "is waiting to start: ContainerCreating"
            raise web.HTTPBadRequest(text=f'{what} "{name}" in pod "{worker.pod["metadata"]["name"]}" {state}')
        options = _log_options(query, self.simulator.clock.now())
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            async for piece in read_log(path, options, lambda: not previous and worker.is_live(name), self.simulator.clock):
                await answer.write(piece)
            await answer.write_eof()
        return answer

    # -- exec and attach --------------------------------------------------------------------------------------------

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        worker, name = self._container(request)
        query = request.query
        argv = tuple(query.getall("command", ()))
        if not argv:
            raise web.HTTPBadRequest(text="you must specify at least 1 command for the container")
        ident = worker.container_id(name)
        if not ident:
            raise web.HTTPBadRequest(text=f"container {name} is not running")
        wants_input = _flag(query, "input", "stdin")
        socket = await _accept(request)
        try:
            session = await self.simulator.runtime.exec(ident, argv, tty=_flag(query, "tty"), stdin=wants_input)
        except StartFailed as error:
            await _say(socket, ERROR, _failure("InternalError", f"error executing command in container: {error}"))
            await socket.close()
            return socket
        await _converse(socket, session)
        return socket

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        """Attach to the container's output from now on, and to its stdin if it was given one."""
        worker, name = self._container(request)
        ident, path = worker.container_id(name), worker.log_file(name)
        if not ident or path is None:
            raise web.HTTPBadRequest(text=f"container {name} is not running")
        console = self.simulator.runtime.console(ident)
        socket = await _accept(request)
        session = AttachSession(console, path, lambda: worker.container_id(name) == ident, self.simulator.clock,
                                stdin_once=bool(worker.container(name).get("stdinOnce")))
        await _converse(socket, session)
        return socket

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        worker = self._worker(request)
        try:
            ports = ports_asked(request.query.getall("port", []))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"port-forward: {error}") from error
        socket = await _accept(request, (PROTOCOL, CHANNELS, "") if ports else (PROTOCOL,))
        connect = connector(worker.way_in)
        forward: Forward = PortForward(socket, connect)
        if socket.ws_protocol != PROTOCOL:  # kr8s names none and means channels
            forward = ChannelForward(socket, connect, ports)
        await forward.serve()
        return socket

    # -- small things -------------------------------------------------------------------------------------------------

    def _worker(self, request: web.Request) -> PodWorker:
        info = request.match_info
        worker = self.simulator.find(info["namespace"], info["pod"])
        if worker is None:
            raise web.HTTPNotFound(text=f'pod "{info["namespace"]}/{info["pod"]}" is not on this node')
        return worker

    def _container(self, request: web.Request) -> tuple[PodWorker, str]:
        info, worker = request.match_info, self._worker(request)
        if info["container"] not in worker.container_names():
            raise web.HTTPNotFound(text=f'container "{info["container"]}" is not in pod "{info["pod"]}"')
        return worker, info["container"]

    async def _summary(self, request: web.Request) -> web.Response:
        running = {uid: (worker.pod["metadata"], ids) for uid, worker in self.simulator.workers.items()
                   if (ids := {name: ident for name in worker.container_names() if (ident := worker.container_id(name))})}
        return web.json_response(await self._usage.summary(self.simulator.settings.node, running))

    async def _pods(self, request: web.Request) -> web.Response:
        return web.json_response({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.simulator.pods()})


async def _ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


def _flag(query: Any, *names: str) -> bool:
    return any(query.get(name, "") in _TRUE for name in names)


def _log_options(query: Any, now: float) -> LogOptions:
    try:
        since = now - float(query["sinceSeconds"]) if "sinceSeconds" in query else 0.0
        if "sinceTime" in query:
            if (found := moment(query["sinceTime"])) is None:
                raise ValueError(f"{query['sinceTime']!r} is no time")
            since = found
        return LogOptions(follow=_flag(query, "follow"), tail=int(query.get("tailLines", -1)), since=since,
                          timestamps=_flag(query, "timestamps"), limit=int(query.get("limitBytes", 0)),
                          stream={"Stdout": "stdout", "Stderr": "stderr"}.get(query.get("stream", ""), ""))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"log options: {error}") from error


async def _accept(request: web.Request, spoken: tuple[str, ...] = PROTOCOLS) -> web.WebSocketResponse:
    offered = [p.strip() for p in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise web.HTTPBadRequest(text="exec, attach and port-forward need a WebSocket; bare SPDY is not served")
    if not any(protocol in spoken for protocol in offered):
        raise web.HTTPForbidden(text=f"unable to upgrade: none of the subprotocols is one of {', '.join(filter(None, spoken))}")
    socket = web.WebSocketResponse(protocols=spoken, max_msg_size=0, compress=False)
    await socket.prepare(request)
    return socket


async def _converse(socket: web.WebSocketResponse, session: ExecSession) -> None:
    """Carry bytes both ways until the command ends, then tell how."""
    listening = asyncio.create_task(_listen(socket, session))
    try:
        async for channel, data in _output(session):
            await _say(socket, channel, data)
        code = await session.wait()
        await _say(socket, ERROR, _SUCCESS if code == 0 else _exit_status(code))
    except (ConnectionResetError, RuntimeError):
        session.kill()  # the client is gone
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    await socket.close()


async def _output(session: ExecSession) -> AsyncIterator[tuple[int, bytes]]:
    while (piece := await session.read()) is not None:
        yield piece


async def _listen(socket: web.WebSocketResponse, session: ExecSession) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            frame = message.data.encode()
        elif message.type is WSMsgType.BINARY:
            frame = message.data
        else:
            break
        if not frame:
            continue
        channel, data = frame[0], frame[1:]
        if channel == STDIN and data:
            await session.write(data)
        elif channel == RESIZE:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                size = json.loads(data)
                session.resize(int(size["Width"]), int(size["Height"]))
        elif channel == CLOSE and data[:1] == bytes([STDIN]):
            session.close_stdin()
    session.kill()  # closed by the client before the command ended


async def _say(socket: web.WebSocketResponse, channel: int, data: bytes) -> None:
    await socket.send_bytes(bytes([channel]) + data)


_SUCCESS = json.dumps({"metadata": {}, "status": "Success"}).encode()


def _exit_status(code: int) -> bytes:
    return json.dumps({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }).encode()  # fmt: skip


def _failure(reason: str, text: str) -> bytes:
    return json.dumps({"metadata": {}, "status": "Failure", "reason": reason, "message": text, "code": 500}).encode()


# -- An attach as a session like an exec ------------------------------------------------------------------------------

# A running container's output and, where it has them, its stdin and terminal.

class AttachSession:
    """Output of a terminal comes from it, other output from the log. ``live``: does the container still run?"""

    def __init__(self, console: Attached | None, log: Path, live: Callable[[], bool], clock: Clock, *,
                 stdin_once: bool) -> None:
        self._console, self._stdin_once = console, stdin_once
        self._queue: asyncio.Queue[bytes | None] | None = None
        self._log: AsyncIterator[bytes] | None = None
        if console is not None and console.tty:
            self._queue = console.subscribe()
        else:
            self._log = read_log(log, LogOptions(follow=True, tail=0), live, clock)

    async def read(self) -> tuple[int, bytes] | None:
        if self._queue is not None:
            data = await self._queue.get()
        else:
            assert self._log is not None
            data = await anext(self._log, None)
        return None if data is None else (1, data)

    async def write(self, data: bytes) -> None:
        if self._console is not None:
            await self._console.write(data)

    def close_stdin(self) -> None:
        if self._console is not None:
            self._console.close_stdin()

    def resize(self, columns: int, rows: int) -> None:
        if self._console is not None:
            self._console.resize(columns, rows)

    async def wait(self) -> int:
        return 0

    def kill(self) -> None:
        """Detach: the container goes on."""
        if self._stdin_once:
            self.close_stdin()
        if self._console is not None and self._queue is not None:
            self._console.unsubscribe(self._queue)
            self._queue.put_nowait(None)
