"""A small HTTP server for a daemon's metrics and health."""

from __future__ import annotations

import errno
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

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
    """Where a daemon listens that was told no address: everywhere, or where PUMICE_BIND_ADDRESS says. Pods that share their
    machine's network (all of them under ``pumice up``) keep to their own address by it, and so out of each other's way."""
    return os.environ.get(BIND_ADDRESS) or "0.0.0.0"
