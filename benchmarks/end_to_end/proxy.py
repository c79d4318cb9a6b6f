"""A proxy between a scheduler and its API server that makes the server hostile: refused writes, storms of node updates.

    python -m benchmarks.end_to_end.proxy KUBECONFIG PORT

PUT /-/weather with {"refuse": 0.05, "storm": 5000} sets the part of the writes that is refused, without being carried out, by
turns with 409 and with 429 (Retry-After 1 s), and the node updates a second that are added to every watch on nodes; GET says how
many of both there were. Every tenth update of the storm changes what the node offers (its pods), the others are heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from benchmarks.end_to_end.server import ROOT, Server
from pumice.adapters.kube.config import load_kubeconfig
from pumice_lab.free_ports import free_port

WEATHER = "/-/weather"
PASSED_ON = ("Authorization", "Content-Type", "User-Agent", "Accept")
TICK = 0.02


class Proxy:
    """``refuse`` and ``storm`` as in the module's text."""

    def __init__(self, kubeconfig: Path) -> None:
        self.access = load_kubeconfig(kubeconfig)
        self.refuse, self.storm, self.refused, self.updates = 0.0, 0, 0, 0
        self.rng = random.Random(7)
        self._lines: list[bytes] = []

    async def serve(self, port: int) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, keepalive_timeout=3600)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.Event().wait()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == WEATHER:
            return await self._weather(request)
        body = await request.read()
        if request.method != "GET" and self.rng.random() < self.refuse:
            self.refused += 1
            return _refusal((409, 429)[self.refused % 2])
        headers = {key: request.headers[key] for key in PASSED_ON if key in request.headers} | {"Accept-Encoding": "identity"}
        try:
            async with self._session.request(
                request.method, self.access.server + request.path_qs, data=body or None, headers=headers,
                ssl=self.access.ssl or False, timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            ) as answer:  # fmt: skip
                if "watch" in request.query and answer.status == 200:
                    return await self._watch(request, answer)
                kept = {key: answer.headers[key] for key in ("Content-Type", "Retry-After") if key in answer.headers}
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=str(error))

    async def _watch(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Whole lines only, so that the storm's lines fall between the server's."""
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        storm = asyncio.create_task(self._blow(stream)) if request.path == "/api/v1/nodes" else None
        rest = b""
        try:
            async for chunk in answer.content.iter_any():
                whole, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    await stream.write(whole + newline)
        except ConnectionError:
            pass  # the scheduler hung up
        finally:
            if storm is not None:
                storm.cancel()
        return stream

    async def _blow(self, stream: web.StreamResponse) -> None:
        began, sent, at = time.monotonic(), 0, 0
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(TICK)
                if not self.storm:
                    began, sent = time.monotonic(), 0
                    continue
                due = int((time.monotonic() - began) * self.storm) - sent
                lines = [self._lines[(at + i) % len(self._lines)] for i in range(due)]
                at, sent, self.updates = at + due, sent + due, self.updates + due
                await stream.write(b"".join(lines))

    async def _weather(self, request: web.Request) -> web.Response:
        if request.method == "PUT":
            wanted = await request.json()
            if wanted.get("storm") and not self._lines:
                await self._gather()  # before the storm begins, or it would blow nothing
            self.refuse, self.storm = wanted.get("refuse", 0.0), wanted.get("storm", 0)
        return web.json_response({"refused": self.refused, "updates": self.updates})

    async def _gather(self) -> None:
        """The storm's lines: two rounds over the nodes, so that what changes in the first changes back in the second."""
        headers = {"Authorization": f"Bearer {self.access.token()}", "Accept-Encoding": "identity"}
        url = self.access.server + "/api/v1/nodes"
        async with self._session.get(url, headers=headers, ssl=self.access.ssl or False) as answer:
            nodes = json.loads(await answer.read())["items"]
        for turn in range(2):
            for index, node in enumerate(nodes):
                beat = f"2026-01-01T00:00:{turn:02}Z"
                node["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]
                if index % 10 == 0:
                    node["status"]["allocatable"]["pods"] = str(111 - turn)
                self._lines.append(json.dumps({"type": "MODIFIED", "object": node}).encode() + b"\n")


class Weather:
    """The proxy's controls and the kubeconfig that leads through it."""

    def __init__(self, server: Server, port: int) -> None:
        self.kubeconfig = server.directory / "proxied.kubeconfig"
        self._url = f"http://127.0.0.1:{port}{WEATHER}"
        config = yaml.safe_load(server.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        self.kubeconfig.write_text(yaml.safe_dump(config))

    async def set(self, *, refuse: float = 0.0, storm: int = 0) -> None:
        await self._ask("PUT", {"refuse": refuse, "storm": storm})

    async def counts(self) -> dict[str, int]:
        return await self._ask("GET")

    async def _ask(self, verb: str, body: Any = None) -> Any:
        async with aiohttp.ClientSession() as session, session.request(verb, self._url, json=body) as answer:
            return await answer.json()


@asynccontextmanager
async def proxy(server: Server) -> AsyncIterator[Weather]:
    """A proxy process before this server, calm at first."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.end_to_end.proxy", str(server.kubeconfig), str(port), cwd=ROOT, env=dict(os.environ),
        stdin=subprocess.DEVNULL)  # fmt: skip
    weather = Weather(server, port)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    await weather.counts()
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
        yield weather
    finally:
        process.terminate()
        await process.wait()


def _refusal(code: int) -> web.Response:
    reason = {409: "Conflict", 429: "TooManyRequests"}[code]
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": "injected"}
    return web.json_response(body, status=code, headers={"Retry-After": "1"} if code == 429 else {})


if __name__ == "__main__":
    asyncio.run(Proxy(Path(sys.argv[1])).serve(int(sys.argv[2])))
