"""Startup, liveness and readiness probes of one running container: exec, httpGet, tcpSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pumice.adapters.probing import http_get, limited, tcp_connect
from pumice.cluster.runtime.spec import Runtime, StartFailed
from pumice.ports.clock import Clock

Json = Mapping[str, Any]
Probe = Callable[[], Awaitable[str]]  # empty: success, otherwise why not
_OUTPUT_MAX = 1024


def make_probe(probe: Json, container: Json, address: str, runtime: Runtime, container_id: str) -> Probe:
    """One attempt of a probe as a call. A kind that is not supported succeeds (grpc)."""
    timeout = float(probe.get("timeoutSeconds") or 1)
    if "exec" in probe:
        argv = tuple(probe["exec"].get("command") or ())
        return lambda: limited(_exec(runtime, container_id, argv), timeout)
    if "httpGet" in probe:
        get = probe["httpGet"]
        host, port = get.get("host") or address, _port(get["port"], container)
        url = f"{(get.get('scheme') or 'HTTP').lower()}://{host}:{port}{get.get('path') or '/'}"
        headers = {h["name"]: h["value"] for h in get.get("httpHeaders") or ()}
        return lambda: limited(http_get(url, headers), timeout)
    if "tcpSocket" in probe:
        host = probe["tcpSocket"].get("host") or address
        port = _port(probe["tcpSocket"]["port"], container)
        return lambda: limited(tcp_connect(host, port), timeout)
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


def _port(port: Any, container: Json) -> int:
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    named = {p.get("name"): p["containerPort"] for p in container.get("ports") or ()}
    return int(named.get(port, 0))
