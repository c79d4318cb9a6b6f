"""The life of a page: a token, a client, the watches, the server, until a signal."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pumice.adapters.kube import Access, KubeClient
from pumice.apps.service.stopping import told_to_stop, until
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Cluster
from pumice.web.following import Configuration, Following, WallClock
from pumice.web.guard import Guard
from pumice.web.machine_site import Looked, MachineSite
from pumice.web.monitors import Monitors
from pumice.web.server import Server, served
from pumice.web.viewers import Hub, Viewers
from pumice.web.views import ClusterSite, Views

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Handed:
    """Things that a process is given by whoever starts it for a page: a socket that listens, the token, and the number of a pipe
    whose other end its parent holds."""

    listening: socket.socket
    token: str
    parent: int


def token() -> str:
    """A secret that nobody guesses, of characters that a URL keeps."""
    return secrets.token_urlsafe(32)


async def serve_cluster(
    access: Access, configured: Callable[[Cluster], Awaitable[Configuration]], host: str, port: int, say: Say,
    handed: Handed | None = None,
) -> None:
    """Serve a cluster's page until SIGINT or SIGTERM. Raises BadInput and Unavailable before there is anything to see."""
    stop = told_to_stop()
    if handed is not None:
        ended_with(handed.parent, stop)
    async with KubeClient(access, user_agent="pumice-web") as kube:
        following = Following(kube, configured)
        await following.start()
        monitors = Monitors(kube, following.clock, lambda path: kube.stream(path, {}, idle=3.0))
        site = ClusterSite(following, Views(following, monitors))
        guard = Guard(token() if handed is None else handed.token)
        async with served(Server(site, guard), host, port, None if handed is None else handed.listening) as bound:
            say(f"The page of {access.server} is at {address(host, bound, guard)}\nCtrl-C ends it.")
            await until(stop, following.run())


async def serve_viewers(
    access: Access, configured: Callable[[Cluster], Awaitable[Configuration]], host: str, port: int, say: Say
) -> None:  # fmt: skip
    """Serve a cluster's page from inside it to all who bring a token of theirs, until SIGINT or SIGTERM. Raises BadInput and
    Unavailable before there is anything to see."""
    stop = told_to_stop()
    async with KubeClient(access, user_agent="pumice-web") as kube:
        clock = WallClock()
        viewers = Viewers(kube, configured, Hub(kube), Monitors(kube, clock, direct=True))
        await viewers.start()
        try:
            server = Server(viewers.whole.site, Guard(token()), viewers=viewers)
            async with served(server, host, port) as bound:
                say(f"The page of {access.server} listens on port {bound}; who opens it brings a token of the cluster.")
                await until(stop, viewers.failed())
        finally:
            await viewers.close()


def ended_with(parent: int, stop: asyncio.Event) -> None:
    """Stop when the other end of this pipe is closed, however its holder ended. Nobody writes there."""
    loop = asyncio.get_running_loop()

    def alone() -> None:
        loop.remove_reader(parent)
        stop.set()

    loop.add_reader(parent, alone)


async def serve_machine(name: str, look: Callable[[], Looked], host: str, port: int, say: Say) -> None:
    """Serve the page of one machine until SIGINT or SIGTERM. Raises BadInput."""
    stop = told_to_stop()
    site = MachineSite(name, look, SystemClock())
    guard = Guard(token())
    server = Server(site, guard)
    async with served(server, host, port) as bound:
        say(f"The page of this machine is at {address(host, bound, guard)}\nCtrl-C ends it.")
        await until(stop, site.keep_fresh(lambda: server.streams > 0))


def address(host: str, port: int, guard: Guard) -> str:
    """Return the URL that a browser is given once."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={guard.token}"
