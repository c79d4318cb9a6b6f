"""Keeps one endpoint known to the kubelet: serve, register, and begin again when the kubelet or its stream is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from pumice.adapters.kubelet.endpoint import Endpoint, Handler, Options, PluginError, Presence, register, watch
from pumice.effects.tasks import first
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock

log = logging.getLogger("pumice.kubelet")

SOCKET_LOOK_SECONDS = 1.0
FOLLOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Transport:
    """The way between plugin and kubelet: gRPC over unix sockets, unless both sides are played in one process."""

    endpoint: Callable[[Path, str, Handler, Options], Endpoint] = Endpoint
    register: Callable[[Path, str, str, Options], Awaitable[None]] = register
    watch: Callable[[Path, Clock], AbstractAsyncContextManager[Presence]] = watch


GRPC = Transport()


@dataclass(slots=True)
class Registration:
    """One resource at one kubelet. ``done`` is set while the kubelet has taken our registration and follows our list,
    ``count`` counts how often it has, and ``on_return`` is called each time but the first."""

    endpoint: Endpoint
    resource: str
    kubelet: Path
    options: Options
    done: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0
    on_return: Callable[[], None] = lambda: None
    transport: Transport = GRPC

    async def keep(self, clock: Clock) -> None:
        """Run until cancelled. Raises BadInput when the folder is not there or no socket can be made in it."""
        if not self.kubelet.parent.is_dir():
            raise BadInput(f"{self.kubelet.parent}: no such folder; is this the kubelet's device-plugins folder?")
        pause = 1.0
        async with self.transport.watch(self.kubelet, clock) as presence:
            while True:
                # The order matters: a kubelet that starts while we listen anew deletes our new socket too.
                presence.started.clear()
                try:
                    await self.endpoint.start()
                    if await self._registered(presence.started, clock):
                        pause = 1.0
                        await first(presence.started.wait(), self.endpoint.lost.wait(), self._socket_gone(clock))
                    else:
                        await first(presence.started.wait(), clock.sleep(pause))
                        pause = min(2 * pause, 30.0)
                finally:
                    self.done.clear()
                    await self.endpoint.stop()

    async def _socket_gone(self, clock: Clock) -> None:
        """Return when our socket file is no longer there.

        Another plugin of the resource takes the name over when it starts and removes it when it ends; the kubelet then has
        nobody, and tells the one that was there before nothing. While the other runs, its file stands here: we wait.
        """
        while self.endpoint.path.exists():
            await clock.sleep(SOCKET_LOOK_SECONDS)
        log.info("our socket is gone, registering again endpoint=%s", self.endpoint.name)

    async def _registered(self, restarted: asyncio.Event, clock: Clock) -> bool:
        if not self.kubelet.exists():
            log.info("waiting for the kubelet socket=%s", self.kubelet)
            await first(restarted.wait(), clock.sleep(30.0))
            return False
        call = asyncio.ensure_future(self.transport.register(self.kubelet, self.endpoint.name, self.resource, self.options))
        try:
            if await first(asyncio.shield(call), restarted.wait()) == 1:
                return False
            await call
        except PluginError as error:
            log.warning("%s", error)
            return False
        finally:
            call.cancel()
        # A kubelet that dies right after its answer opens no stream, so no stream's end would tell of its death.
        came = await first(self.endpoint.followed.wait(), restarted.wait(), clock.sleep(FOLLOW_SECONDS))
        if came == 2:
            log.warning("the kubelet took the registration of %s and does not follow its list", self.resource)
        if came != 0:
            return False
        self.count += 1
        if self.count > 1:
            self.on_return()
        self.done.set()
        log.info("registered resource=%s endpoint=%s", self.resource, self.endpoint.name)
        return True
