"""The pages of a node's plugins: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from aiohttp import web

from pumice.apps.node.card_watch import CardWatch
from pumice.apps.service.http import served
from pumice.metrics.text import CONTENT_TYPE, MetricFamily, render

STUCK = 90.0
"""Seconds without an answer of the driver after which the plugin counts as dead."""


@dataclass(slots=True)
class PluginHealth:
    """The health of one device plugin, filled in as it comes up. Until then it waits for a driver: not ready, but well, so that
    no kubelet kills it."""

    watch: CardWatch | None = None
    missing: Callable[[], list[str]] = lambda: ["the driver"]
    """Return what is not known yet to those who have to know it."""
    metrics: Callable[[], Awaitable[list[MetricFamily]]] | None = None

    @property
    def silent(self) -> float:
        return self.watch.stuck if self.watch else 0.0


@asynccontextmanager
async def plugin_pages(address: str, port: int, *plugins: PluginHealth) -> AsyncIterator[None]:
    """Serve them while the block runs; an empty ``address`` serves nothing."""

    async def healthz(request: web.Request) -> web.StreamResponse:
        if (silent := max(plugin.silent for plugin in plugins)) < STUCK:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"the driver has not answered for {silent:.0f} s\n")

    async def readyz(request: web.Request) -> web.StreamResponse:
        if missing := [name for plugin in plugins for name in plugin.missing()]:
            return web.Response(status=503, text=f"waiting for: {', '.join(missing)}\n")
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.StreamResponse:
        found: dict[str, MetricFamily] = {}
        for plugin in plugins:
            for family in await plugin.metrics() if plugin.metrics else ():
                found.setdefault(family.name, replace(family, samples=[])).samples.extend(family.samples)
        return web.Response(body=render(found.values()).encode(), headers={"Content-Type": CONTENT_TYPE})

    if not address:
        yield
        return
    async with served({"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}, address, port, "device plugin"):
        yield
