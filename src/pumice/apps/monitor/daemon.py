"""The monitor of one node: metrics of its cards and of the containers on them, collected when they are asked for."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from pumice.adapters.nvml import NvmlCards
from pumice.adapters.owners import ProcOwners
from pumice.adapters.region import ContainerFolders
from pumice.adapters.region.pages import pages_folder
from pumice.apps.monitor.accounts import AccountRounds
from pumice.apps.monitor.driver import PATIENCE, DriverWatch
from pumice.apps.monitor.feedback import FeedbackRounds
from pumice.apps.monitor.reader import NodeReader
from pumice.apps.monitor.views import view
from pumice.apps.service.device_config import follow_device_config, load_device_config
from pumice.apps.service.http import served
from pumice.apps.service.own_node import OwnNode
from pumice.effects.tasks import run_until
from pumice.metrics.monitor import monitor_page
from pumice.metrics.text import CONTENT_TYPE
from pumice.ports.cards import WatchedCards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster

log = logging.getLogger("pumice.monitor")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line or ``pumice up`` says. ``hook_path`` is the plugin's; ``containers_dir`` overrides the
    folder below it. ``legacy_metrics``: also the families with values in labels. ``nvml``: the library to load.
    ``feedback``: write priorities back to the regions; ``max_wait``: seconds after which who waits goes on for a round, 0: never.
    ``driver_patience``: seconds for which a page, or the end, waits for the driver.
    ``reload_every``: seconds between two looks at the ConfigMap."""

    node_name: str
    hook_path: Path = Path("/usr/local/vgpu")
    containers_dir: Path | None = None
    address: str = "0.0.0.0"
    port: int = 9394
    nvml: str = ""
    config_namespace: str = ""
    legacy_metrics: bool = True
    sweep_every: float = 60.0
    grace: float = 300.0
    feedback: bool = True
    feedback_every: float = 5.0
    max_wait: float = 60.0
    driver_patience: float = PATIENCE
    reload_every: float = 30.0

    @property
    def folders(self) -> Path:
        """Where the plugin makes a folder per container; older layouts have no ``vgpu`` between."""
        if self.containers_dir is not None:
            return self.containers_dir
        usual, older = self.hook_path / "vgpu" / "containers", self.hook_path / "containers"
        return older if older.is_dir() and not usual.is_dir() else usual


async def run(
    settings: Settings,
    *,
    cluster: Cluster,
    clock: Clock,
    dice: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    cards: WatchedCards | None = None,
    bound: asyncio.Future[int] | None = None,
) -> None:
    """Serve until ``stop``. ``ready`` is set when the page can be asked for, ``bound`` told the port that was taken.

    Without a driver the page has no cards, and tells of the containers all the same.
    """
    config = await load_device_config(settings.config_namespace, cluster, clock)
    own = OwnNode(cluster, settings.node_name, clock=clock, dice=dice, component="pumice-monitor")
    reader = NodeReader(lambda: settings.folders, own, config)
    driver = DriverWatch(lambda: NvmlCards(settings.nvml), cards, clock, settings.driver_patience)
    accounts = AccountRounds(reader, driver, ProcOwners(), own, settings.feedback_every)
    page = MetricsPage(own, reader, driver, accounts, settings.legacy_metrics)
    routes = {"/metrics": page.metrics, "/healthz": _well}
    try:
        async with served(routes, settings.address, settings.port, "monitor") as port:
            if bound is not None:
                bound.set_result(port)
            if ready is not None:
                ready.set()
            follow = follow_device_config(settings.config_namespace, cluster, clock, reader.configure, settings.reload_every)
            jobs = [*own.tasks(), _sweep(settings, own, clock), follow, accounts.run(clock)]
            if settings.feedback:
                jobs.append(FeedbackRounds(reader, own, settings.feedback_every, settings.max_wait).run(clock))
            await run_until(stop, *jobs)
    finally:
        driver.close()
        reader.close()


class MetricsPage:
    """Collected when it is asked for; several who ask within a second are told the same."""

    def __init__(self, own: OwnNode, reader: NodeReader, driver: DriverWatch, accounts: AccountRounds, legacy: bool) -> None:
        self._own, self._reader, self._driver, self._accounts, self._legacy = own, reader, driver, accounts, legacy

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=(await self.text()).encode(), headers={"Content-Type": CONTENT_TYPE})

    async def text(self) -> str:
        look = await self._driver.look(1.0)
        snapshot = await self._reader.snapshot(1.0)
        pods = {pod.uid: pod for pod in self._own.pods}
        shown = view(snapshot, look, self._accounts.found, pods, self._accounts.measured)
        return monitor_page(shown, self._own.clock.now(), legacy=self._legacy)


async def _sweep(settings: Settings, own: OwnNode, clock: Clock) -> None:
    """Remove the folders of pods that are gone, now and then; never before the pods are known."""
    await own.pods_synced.wait()
    while True:
        await clock.sleep(settings.sweep_every)
        alive = {pod.uid for pod in own.pods}
        for directory in (settings.folders, pages_folder(settings.folders)):
            swept = ContainerFolders(directory).sweep
            for path in await asyncio.to_thread(swept, alive, clock.now(), settings.grace):
                log.info("removed the folder of a pod that is gone path=%s", path)


async def _well(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")
