"""A scripted API server: a handler answers every request, and a client of it is at hand."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from kit.virtual_time import run_virtually

from pumice.adapters.kube import Access, KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import WatchEvent
from pumice.wire.kinds import PODS
from pumice.wire.objects import Pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: int, uid: str = "") -> dict[str, object]:
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta}


def page(*items: dict[str, object], version: int) -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": list(items)})


async def stream(
    request: web.Request, *frames: tuple[str, dict[str, object]], hold: bool = False
) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for kind, obj in frames:
        await answer.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
    if hold:
        await asyncio.Event().wait()
    return answer


@asynccontextmanager
async def serving(handler: Handler, timeout: float = 30.0) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    access = Access(f"http://127.0.0.1:{port}", None, lambda: "t")
    async with KubeClient(access, clock=SystemClock(), rng=random.Random(1), timeout=timeout) as kube:
        try:
            yield kube
        finally:
            await runner.cleanup()


async def collect(
    kube: KubeClient, count: int, kind: type[Pod] | None = None, *, uids: bool = False
) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []

    async def drain() -> None:
        async for event in kube.watch(PODS, kind=kind):
            seen.append((event.type, uid_of(event) if uids else name_of(event)))
            if len(seen) == count:
                return

    await asyncio.wait_for(drain(), 10)
    return seen


def collected(handler: Handler, count: int) -> list[tuple[str, str]]:
    """The first events that a watch of what the handler plays gives, in virtual time."""

    async def scenario() -> list[tuple[str, str]]:
        async with serving(handler) as kube:
            return await collect(kube, count)

    return run_virtually(scenario())


def name_of(event: WatchEvent) -> str:
    if isinstance(event.obj, Pod):
        return f"{event.obj.metadata.name} decoded"
    return str(json.loads(event.raw)["metadata"]["name"]) if event.raw else ""


def uid_of(event: WatchEvent) -> str:
    if isinstance(event.obj, Pod):
        return event.obj.metadata.uid
    return str(json.loads(event.raw)["metadata"]["uid"]) if event.raw else ""
