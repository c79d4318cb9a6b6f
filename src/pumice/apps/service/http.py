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
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web

from pumice.metrics.text import CONTENT_TYPE, ProcessReading, process_families, render
from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire.kubernetes import AUTHENTICATION, AUTHORIZATION
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


# -- Authentication and authorization of pages -----------------------------------------------------------------------

# A page about pods answers those who may read them, as the API server would.
# The bearer token is reviewed there, then the right of whom it belongs to; nothing is kept, so a withdrawn right
# counts at once.

TOKEN_REVIEWS = Resource(AUTHENTICATION, "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS = Resource(AUTHORIZATION, "v1", "subjectaccessreviews", namespaced=False)
LONGEST_TOKEN = 16 * 1024


@dataclass(frozen=True, slots=True)
class Denied:
    """The HTTP status and why."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Asks the API server about each request."""

    cluster: Cluster

    async def may_get_pod(self, authorization: str, namespace: str, name: str) -> Denied | None:
        """None when the bearer of this Authorization header may get the pod."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST_TOKEN:
            return Denied(401, "send a token of the cluster: Authorization: Bearer $(kubectl create token ACCOUNT)")
        try:
            user = await self._user(token)
            if user is None:
                return Denied(401, "the API server does not know this token")
            wanted = {"verb": "get", "group": "", "resource": "pods", "namespace": namespace, "name": name}
            if await self._allowed(user, wanted):
                return None
        except ApiError as error:
            return Denied(503, f"the API server reviews nobody now: {error}")
        return Denied(403, f"{user.get('username', '')} may not get pods in namespace {namespace}")

    async def _user(self, token: str) -> dict[str, Any] | None:
        body = {"apiVersion": f"{AUTHENTICATION}/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self.cluster.create(TOKEN_REVIEWS, body)).get("status") or {}
        user = status.get("user")
        return user if status.get("authenticated") is True and isinstance(user, dict) and user.get("username") else None

    async def _allowed(self, user: dict[str, Any], wanted: dict[str, str]) -> bool:
        spec = {"user": user["username"], "uid": user.get("uid", ""), "groups": user.get("groups") or [],
                "extra": user.get("extra") or {}, "resourceAttributes": wanted}  # fmt: skip
        body = {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self.cluster.create(ACCESS_REVIEWS, body)).get("status") or {}
        return status.get("allowed") is True and not status.get("denied")


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
