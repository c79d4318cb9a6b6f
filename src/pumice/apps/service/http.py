"""A small HTTP server for a daemon's metrics and health."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from pumice.model.errors import BadInput

log = logging.getLogger("pumice.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(routes: Mapping[str, Handler], address: str, port: int, name: str) -> AsyncIterator[int]:
    """Serve GET on ``routes`` while the block runs; gives the port. A port in use is replaced by a free one, which is
    logged. Raises BadInput when the address is not this machine's."""
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, port).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise BadInput(f"{name}: cannot listen on {address}:{port}: {error.strerror or error}") from error
            log.warning("%s: port %d on %s is in use; taking a free one", name, port, address)
            await web.TCPSite(runner, address, 0).start()
        bound = int(runner.addresses[0][1])
        log.info("%s listening on http://%s:%d", name, address, bound)
        yield bound
    finally:
        await runner.cleanup()


def host_and_port(address: str) -> tuple[str, int]:
    """``:8080`` or ``127.0.0.1:8080``. Raises BadInput."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{address!r} is no address; write for example 127.0.0.1:8080 or :8080")
    return host or "0.0.0.0", int(port)
