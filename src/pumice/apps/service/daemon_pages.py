"""The pages of a daemon: /metrics, /healthz and /readyz."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from pumice.apps.service.http import Handler
from pumice.metrics.text import CONTENT_TYPE, ProcessReading, process_families, render


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


# -- What the system tells of this process ----------------------------------------------------------------------------


SELF = Path("/proc/self")
_MACHINE_STARTED = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
"""Unix seconds, from which a process's start is counted."""


def read_process(place: Path = SELF) -> ProcessReading | None:
    """None where the system does not tell (/proc is Linux's)."""
    try:
        stat = (place / "stat").read_text().rpartition(")")[2].split()  # a program's name may hold anything
        descriptors = len(os.listdir(place / "fd"))
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    return ProcessReading(
        cpu_seconds=(int(stat[11]) + int(stat[12])) / ticks,
        resident=int(stat[21]) * os.sysconf("SC_PAGE_SIZE"),
        virtual=int(stat[20]),
        started=round(_MACHINE_STARTED + int(stat[19]) / ticks, 2),
        open_files=descriptors,
        most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
