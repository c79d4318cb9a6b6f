"""Startup, liveness and readiness probes of one running container: exec, httpGet, tcpSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from pumice.effects.vocabulary import Severity
from pumice.ports.clock import Clock
from pumice_lab.kubelet.records import Record
from pumice_lab.runtime.spec import Runtime, StartFailed

Json = Mapping[str, Any]
Probe = Callable[[], Awaitable[str]]  # empty: success, otherwise why not
_OUTPUT_MAX = 1024


def make_probe(probe: Json, container: Json, address: str, runtime: Runtime, container_id: str) -> Probe:
    """One attempt of a probe as a call. A kind that is not supported succeeds (grpc)."""
    timeout = float(probe.get("timeoutSeconds") or 1)
    if "exec" in probe:
        argv = tuple(probe["exec"].get("command") or ())
        return lambda: _limited(_exec(runtime, container_id, argv), timeout)
    if "httpGet" in probe:
        get = probe["httpGet"]
        host, port = get.get("host") or address, _port(get["port"], container)
        url = f"{(get.get('scheme') or 'HTTP').lower()}://{host}:{port}{get.get('path') or '/'}"
        headers = {h["name"]: h["value"] for h in get.get("httpHeaders") or ()}
        return lambda: _limited(_http(url, headers), timeout)
    if "tcpSocket" in probe:
        host = probe["tcpSocket"].get("host") or address
        port = _port(probe["tcpSocket"]["port"], container)
        return lambda: _limited(_tcp(host, port), timeout)
    return _succeed


async def watch_probe(probe: Json, attempt: Probe, clock: Clock, report: Callable[[bool, str], None]) -> None:
    """Call ``report(healthy, text)`` whenever a threshold is reached, for ever."""
    await clock.sleep(float(probe.get("initialDelaySeconds") or 0))
    needed = {True: int(probe.get("successThreshold") or 1), False: int(probe.get("failureThreshold") or 3)}
    run, last = 0, None
    while True:
        text = await attempt()
        good = not text
        run = run + 1 if good == last else 1
        last = good
        if run >= needed[good]:
            report(good, text)
        await clock.sleep(float(probe.get("periodSeconds") or 10))


async def _limited(attempt: Awaitable[str], seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):  # wait_for forgets a cancellation that comes together with the answer (Python 3.11)
            return await attempt
    except TimeoutError:
        return f"command timed out after {seconds:g}s"


async def _succeed() -> str:
    return ""


async def _exec(runtime: Runtime, container_id: str, argv: tuple[str, ...]) -> str:
    try:
        session = await runtime.exec(container_id, argv, tty=False, stdin=False)
    except StartFailed as error:
        return error.message
    output = b""
    try:
        while (piece := await session.read()) is not None:
            output = (output + piece[1])[:_OUTPUT_MAX]
        code = await session.wait()
    except asyncio.CancelledError:
        session.kill()
        raise
    return "" if code == 0 else output.decode(errors="replace").strip() or f"exit code {code}"


async def _http(url: str, headers: Mapping[str, str]) -> str:
    try:
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as answer:
            return "" if 200 <= answer.status < 400 else f"HTTP probe failed with statuscode: {answer.status}"
    except (aiohttp.ClientError, OSError) as error:
        return f'Get "{url}": {error}'


async def _tcp(host: str, port: int) -> str:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return f"dial tcp {host}:{port}: {error.strerror or error}"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ""


def _port(port: Any, container: Json) -> int:
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    named = {p.get("name"): p["containerPort"] for p in container.get("ports") or ()}
    return int(named.get(port, 0))


# -- The probes of a pod's running containers, and what their results mean -------------------------------------------



class PodHealth:
    """The probes of a pod. ``changed`` is called when a record was changed; ``tell`` (type, reason, text, container) writes an
    event.

    Containers that a probe wants restarted are collected in ``restarts``.
    """

    def __init__(self, runtime: Runtime, clock: Clock, address: str, changed: Callable[[], None],
                 tell: Callable[[Severity, str, str, str], None]) -> None:
        self.runtime, self.clock, self.address, self.changed, self.tell = runtime, clock, address, changed, tell
        self.restarts: set[str] = set()
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def start(self, record: Record, container: Json) -> None:
        """A startup probe comes first; the others wait for it."""
        if record.kind == "init" or record.state != "running":
            return
        record.started = not container.get("startupProbe")
        if startup := container.get("startupProbe"):
            self._probe(record, container, "Startup", startup)
        else:
            self._start_others(record, container)

    def stop(self, name: str) -> None:
        for task in self._tasks.pop(name, ()):
            if task is not asyncio.current_task():
                task.cancel()

    def stop_all(self) -> None:
        for name in list(self._tasks):
            self.stop(name)

    def take_restarts(self) -> set[str]:
        wanted, self.restarts = self.restarts, set()
        return wanted

    def _start_others(self, record: Record, container: Json) -> None:
        if readiness := container.get("readinessProbe"):
            self._probe(record, container, "Readiness", readiness)
        else:
            record.ready = True
        if liveness := container.get("livenessProbe"):
            self._probe(record, container, "Liveness", liveness)

    def _probe(self, record: Record, container: Json, kind: str, probe: Json) -> None:
        attempt = make_probe(probe, container, self.address, self.runtime, record.container_id)

        def report(good: bool, text: str) -> None:
            self._on_result(record, container, kind, good, text)

        task = asyncio.create_task(watch_probe(probe, attempt, self.clock, report), name=f"{kind} {record.name}")
        self._tasks.setdefault(record.name, []).append(task)

    def _on_result(self, record: Record, container: Json, kind: str, good: bool, text: str) -> None:
        if not good:
            self.tell("Warning", "Unhealthy", f"{kind} probe failed: {text}", record.name)
        match kind, good:
            case "Readiness", _ if record.ready != good:
                record.ready = good
            case "Startup", True if not record.started:
                record.started = True
                self.stop(record.name)
                self._start_others(record, container)
            case ("Liveness" | "Startup"), False:
                self.tell("Normal", "Killing", f"Container {record.name} failed {kind.lower()} probe, will be restarted",
                          record.name)
                self.restarts.add(record.name)
            case _:
                return
        self.changed()
