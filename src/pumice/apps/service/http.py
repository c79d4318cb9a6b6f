"""A small HTTP server for a daemon's metrics and health."""

from __future__ import annotations

import errno
import logging
import os
import resource
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from pumice.metrics.text import CONTENT_TYPE, ProcessReading, process_families, render
from pumice.model.errors import BadInput
from pumice.wire.variables import BIND_ADDRESS

log = logging.getLogger("pumice.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(
    routes: Mapping[str, Handler], address: str, port: int, name: str, *, posts: Mapping[str, Handler] | None = None,
    tls: ssl.SSLContext | None = None, largest: int = 1 << 20,
) -> AsyncIterator[int]:  # fmt: skip
    """Serve GET on ``routes`` and POST on ``posts``, bodies of at most ``largest`` bytes, while the block runs; gives the port.
    Raises BadInput when the port is taken: whoever was told of it (a probe, a Service, a scrape) would ask somebody else; and
    when the address is not this machine's."""
    app = web.Application(client_max_size=largest)
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    for path, handler in (posts or {}).items():
        app.router.add_post(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, port, ssl_context=tls).start()
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            cause = "the port is in use; name another, or port 0 for any" if taken else error.strerror or error
            raise BadInput(f"{name}: cannot listen on {address}:{port}: {cause}") from error
        bound = int(runner.addresses[0][1])
        log.info("%s listening on %s://%s:%d", name, "http" if tls is None else "https", address, bound)
        yield bound
    finally:
        await runner.cleanup()


def host_and_port(address: str) -> tuple[str, int]:
    """``:8080`` (see ``any_address``) or ``127.0.0.1:8080``. Raises BadInput."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{address!r} is no address; write for example 127.0.0.1:8080 or :8080")
    return host or any_address(), int(port)


def any_address() -> str:
    """Return where a daemon listens that was told no address: everywhere, or where PUMICE_BIND_ADDRESS says. Pods that share
    their machine's network (all of them under ``pumice up``) keep to their own address by it, and so out of each other's way."""
    return os.environ.get(BIND_ADDRESS) or "0.0.0.0"


# -- The pages of a daemon: /metrics, /healthz and /readyz -----------------------------------------------------------


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



def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
