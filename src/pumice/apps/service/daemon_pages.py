"""The pages of a daemon: /metrics, /healthz and /readyz."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from pumice.apps.service.http import Handler
from pumice.apps.service.process import read_process
from pumice.metrics.process import process_families
from pumice.metrics.text import CONTENT_TYPE, render


def pages(
    metrics: Callable[[], Awaitable[bytes]], waiting_for: Callable[[], list[str]],
    problems: Callable[[], list[str]] = list,
) -> dict[str, Handler]:  # fmt: skip
    """Handlers by path. ``waiting_for`` names what is missing until decisions may be made; empty: ready. ``problems`` are told
    beside that."""

    async def show_metrics(_: web.Request) -> web.Response:
        own = render(process_families(read_process()))
        return web.Response(body=own.encode() + await metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        missing = waiting_for()
        if not missing:
            return web.Response(text="\n".join(["ok", *problems()]))
        return web.Response(status=503, text=f"waiting for: {', '.join(missing)}")

    return {"/metrics": show_metrics, "/healthz": healthz, "/readyz": readyz}
