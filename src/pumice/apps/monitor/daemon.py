"""The monitor of one node: metrics of its cards and of the containers on them, collected when they are asked for."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from pumice.adapters.nvml import NvmlCards
from pumice.adapters.region import ContainerFolders
from pumice.adapters.region.pages import pages_folder
from pumice.apps.monitor.feedback import FeedbackRounds
from pumice.apps.service.device_config import follow_device_config, load_device_config
from pumice.apps.service.http import served
from pumice.apps.service.own_node import OwnNode
from pumice.apps.service.tasks import run_until
from pumice.metrics.monitor import ContainerView, Granted, monitor_page
from pumice.metrics.text import CONTENT_TYPE
from pumice.model.amount import MIB
from pumice.node.pods import NodePod
from pumice.node.vgpu.grants import granted
from pumice.ports.cards import CardReading, Cards, CardsUnavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.region import BadRegion, RegionSnapshot
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.handed_out import handed_to
from pumice.wire.nvidia_vgpu import PodDevice

log = logging.getLogger("pumice.monitor")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line or ``pumice up`` says. ``hook_path`` is the plugin's; ``containers_dir`` overrides the
    folder below it. ``legacy_metrics``: also the families with values in labels. ``nvml``: the library to load.
    ``feedback``: write priorities back to the regions; ``max_wait``: seconds after which who waits goes on for a round, 0: never.
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
    cards: Cards | None = None,
    bound: asyncio.Future[int] | None = None,
) -> None:
    """Serve until ``stop``. ``ready`` is set when the page can be asked for, ``bound`` told the port that was taken.

    Without a driver the page has no cards, and tells of the containers all the same.
    """
    config = await load_device_config(settings.config_namespace, cluster, clock)
    own = OwnNode(cluster, settings.node_name, clock=clock, dice=dice, component="pumice-monitor")
    page = MetricsPage(settings, config, own, cards)
    routes = {"/metrics": page.metrics, "/healthz": _well}
    try:
        async with served(routes, settings.address, settings.port, "monitor") as port:
            if bound is not None:
                bound.set_result(port)
            if ready is not None:
                ready.set()
            follow = follow_device_config(settings.config_namespace, cluster, clock, page.configure, settings.reload_every)
            jobs = [*own.tasks(), page.sweep(clock), follow]
            if settings.feedback:
                rounds = FeedbackRounds(
                    lambda: ContainerFolders(settings.folders), own, page.granted, settings.feedback_every, settings.max_wait
                )
                jobs.append(rounds.run(clock))
            await run_until(stop, *jobs)
    finally:
        page.close()


class MetricsPage:
    """Collects at scrape time. What it reads from files and NVML it reads in a thread of its own."""

    def __init__(self, settings: Settings, config: NvidiaConfig, own: OwnNode, cards: Cards | None) -> None:
        self._settings, self._config, self._own = settings, config, own
        self._cards, self._given = cards, cards is not None
        self._thread = ThreadPoolExecutor(1, "monitor")
        self._warned = ""

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        now = self._own.clock.now()
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._thread, self._collect, self._own.pods, now)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    def configure(self, config: NvidiaConfig) -> None:
        """From the next scrape on, resource names and units are those."""
        if config != self._config:
            log.info("device configuration changed")
            self._config = config

    def granted(self, pod: NodePod) -> dict[str, tuple[PodDevice, ...]]:
        """The devices of its containers."""
        node, config = self._own.node, self._config
        published = node.metadata.annotations.get(names.HANDED_OUT, "") if node is not None else ""
        handed = handed_to(published, pod.uid)
        return granted(pod, self._settings.node_name, config.resource_count_name, config.resource_memory_name, handed)

    async def sweep(self, clock: Clock) -> None:
        """Remove the folders of pods that are gone, now and then; never before the pods are known."""
        await self._own.pods_synced.wait()
        while True:
            await clock.sleep(self._settings.sweep_every)
            alive = {pod.uid for pod in self._own.pods}
            for directory in (self._settings.folders, pages_folder(self._settings.folders)):
                swept = ContainerFolders(directory).sweep
                for path in await asyncio.to_thread(swept, alive, clock.now(), self._settings.grace):
                    log.info("removed the folder of a pod that is gone path=%s", path)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._cards is not None and not self._given:
            self._cards.close()

    def _collect(self, pods: Sequence[NodePod], now: float) -> str:
        readings = self._readings()
        order = {reading.uuid: reading.index for reading in readings}
        regions, troubles = self._regions()
        views = [view for pod in pods if not pod.finished for view in self._views(pod, regions, order)]
        return monitor_page(readings, views, now, legacy=self._settings.legacy_metrics, troubles=troubles)

    def _readings(self) -> tuple[CardReading, ...]:
        try:
            if self._cards is None:
                self._cards = NvmlCards(self._settings.nvml)
            return self._cards.readings()
        except CardsUnavailable as error:
            if str(error) != self._warned:
                log.warning("no cards: %s", error)
                self._warned = str(error)
            return ()

    def _regions(self) -> tuple[dict[tuple[str, str], RegionSnapshot], int]:
        folders = ContainerFolders(self._settings.folders)
        found: dict[tuple[str, str], RegionSnapshot] = {}
        troubles = 0
        for key, path in folders.containers().items():
            try:
                region = folders.read(path)
            except BadRegion as error:
                troubles += not error.early
                log.debug("%s", error)
                continue
            if region is not None:
                found[key] = region
        return found, troubles

    def _views(
        self, pod: NodePod, regions: dict[tuple[str, str], RegionSnapshot], order: dict[str, int]
    ) -> list[ContainerView]:
        config, meta = self._config, pod.metadata
        given = self.granted(pod)
        unit = MIB * max(1, config.gpu_memory_factor)
        views = []
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            region = regions.get((pod.uid, container.name))
            devices = sorted(given.get(container.name, ()), key=lambda device: order.get(device.uuid, 99))
            if region is None and not devices:
                continue
            limits = [Granted(device.uuid, device.memory * unit) for device in devices]
            views.append(ContainerView(meta.namespace, meta.name, container.name, limits, region))
        return views


async def _well(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok\n")
