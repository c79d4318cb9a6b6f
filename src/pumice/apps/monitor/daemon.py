"""The monitor of one node: metrics of its cards and of the containers on them, collected when they are asked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import msgspec
from aiohttp import web

from pumice.adapters.nvml import NvmlCards
from pumice.adapters.owners import ProcOwners
from pumice.adapters.region import ContainerFolders
from pumice.adapters.region.folders import core_limits_on, hold_back, pages_folder
from pumice.adapters.region.reader import header_of
from pumice.adapters.region.writer import write_feedback, write_pulse
from pumice.apps.monitor.accounts import AccountRounds, suspects
from pumice.apps.monitor.reader import PATIENCE, ContainerUsage, DriverWatch, Look, NodeReader, Snapshot
from pumice.apps.service.device_config import follow_device_config, load_device_config
from pumice.apps.service.http import served
from pumice.apps.service.own_node import OwnNode
from pumice.devices.nvidia_vgpu.node.allocations import goes_first
from pumice.devices.nvidia_vgpu.node.inventory import place_of, type_of
from pumice.effects.tasks import run_until
from pumice.metrics.monitor import CardView, ContainerView, MonitorView, Trouble, UnaccountedView, monitor_page
from pumice.metrics.text import CONTENT_TYPE
from pumice.model.errors import Unavailable
from pumice.node.accounts import Key, Unaccounted
from pumice.node.feedback import Tenant, Word, feedback
from pumice.node.history import EVERY, History, Point
from pumice.node.pods import NodePod
from pumice.ports.cards import InstanceReading, WatchedCards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.region import BadRegion, DeviceUse
from pumice.ports.slices import Place
from pumice.wire import bursts
from pumice.wire.nvidia_vgpu import PodDevice

log = logging.getLogger("pumice.monitor")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings from the command line or ``pumice up``. ``hook_path`` is the plugin's; ``containers_dir`` overrides the
    folder below it. ``legacy_metrics``: also the families with values in labels. ``nvml``: the library to load. ``feedback``:
    write priorities back to the regions; ``max_wait``: seconds after which who waits goes on for a round, 0: never.
    ``driver_patience``: seconds for which a page, or the end, waits for the driver. ``reload_every``: seconds between two
    looks at the ConfigMap."""

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
        """Return where the plugin makes a folder per container; older layouts have no ``vgpu`` between."""
        if self.containers_dir is not None:
            return self.containers_dir
        usual, older = self.hook_path / "vgpu" / "containers", self.hook_path / "containers"
        return older if older.is_dir() and not usual.is_dir() else usual


async def run(
    settings: Settings,
    *,
    cluster: Cluster,
    clock: Clock,
    rng: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    cards: WatchedCards | None = None,
    bound: asyncio.Future[int] | None = None,
) -> None:
    """Serve until ``stop``. ``ready`` is set when the page can be asked for, ``bound`` told the port that was taken.

    Without a driver the page has no cards, and tells of the containers all the same.
    """
    config = await load_device_config(settings.config_namespace, cluster, clock)
    own = OwnNode(cluster, settings.node_name, clock=clock, rng=rng, component="pumice-monitor")
    reader = NodeReader(lambda: settings.folders, own, config)
    driver = DriverWatch(lambda: NvmlCards(settings.nvml), cards, clock, settings.driver_patience)
    accounts = AccountRounds(reader, driver, ProcOwners(), own, settings.feedback_every)
    page = MetricsPage(own, reader, driver, accounts, settings.legacy_metrics)
    hour = HistoryRounds(own, reader, driver, accounts)
    routes = {"/metrics": page.metrics, "/history": hour.page, "/healthz": _well}
    try:
        async with served(routes, settings.address, settings.port, "monitor") as port:
            if bound is not None:
                bound.set_result(port)
            if ready is not None:
                ready.set()
            follow = follow_device_config(settings.config_namespace, cluster, clock, reader.configure, settings.reload_every)
            jobs = [*own.tasks(), _sweep(settings, own, clock), follow, accounts.run(clock), hour.run(clock)]
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


class HistoryRounds:
    """Notes the use of each share every ``EVERY`` seconds, from what other rounds have read anyway, and tells the last hour of a
    pod's shares to whoever asks: the figures that the metrics tell of now."""

    def __init__(self, own: OwnNode, reader: NodeReader, driver: DriverWatch, accounts: AccountRounds) -> None:
        self._own, self._reader, self._driver, self._accounts = own, reader, driver, accounts
        self.history = History()

    async def run(self, clock: Clock) -> None:
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        while True:
            await self.round(clock.now())
            await clock.sleep(EVERY)

    async def round(self, now: float) -> None:
        snapshot, look = await self._reader.snapshot(EVERY / 2), await self._driver.look(EVERY / 2)
        shown = view(snapshot, look, (), {}, self._accounts.measured)
        self.history.add(now, {
            (each.namespace, each.pod, each.container, card.uuid): Point(
                card.use.total if card.use is not None else None,
                card.use.sm if card.use is not None and card.slice_ is None else None, card.limit, card.cores)
            for each in shown.containers for card in each.cards
        })  # fmt: skip

    async def page(self, request: web.Request) -> web.StreamResponse:
        found = self.history.of(request.query.get("namespace", ""), request.query.get("pod", ""))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")


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


# -- From what was read to what the page shows ------------------------------------------------------------------------


Slots = Mapping[Place, InstanceReading]


def view(snapshot: Snapshot, look: Look, found: Iterable[Unaccounted], pods: Mapping[str, NodePod],
         measured: Mapping[tuple[Key, str], int] = MappingProxyType({})) -> MonitorView:  # fmt: skip
    """``pods``: who is there now, by UID; what is found of others is not shown any more. ``measured``: what the driver counts of
    containers that have no region."""
    names = {reading.uuid: reading.name for reading in look.readings}
    slots = {Place(one.card, one.profile, one.start): one for one in look.instances}
    told = (usage for usage in snapshot.usages.values() if usage.of is None or usage.of.first)
    containers = [_container(usage, snapshot, look.order, names, slots, measured) for usage in told]
    unaccounted = []
    for one in found:
        if one.owner is None:
            unaccounted.append(UnaccountedView(one.card, one.memory))
        elif (pod := pods.get(one.owner[0])) is not None:
            unaccounted.append(UnaccountedView(one.card, one.memory, pod.metadata.namespace, pod.metadata.name, one.owner[1]))
    troubles = []
    for key, sign in suspects(snapshot):
        meta = snapshot.usages[key].pod.metadata
        troubles.append(Trouble(meta.namespace, meta.name, key[1], sign.value))
    return MonitorView(
        look.readings, containers, look.instances, [process.card for process in look.processes], unaccounted, troubles,
        sum(bool(usage.trouble) for usage in snapshot.usages.values()), snapshot.strangers, look.silent,
    )  # fmt: skip


def _container(usage: ContainerUsage, snapshot: Snapshot, order: Mapping[str, int], names: Mapping[str, str], slots: Slots,
               measured: Mapping[tuple[Key, str], int]) -> ContainerView:  # fmt: skip
    meta, report = usage.pod.metadata, usage.report
    devices = usage.devices
    if len(devices) > 1:  # the order in which the container sees its cards
        devices = tuple(sorted(devices, key=lambda device: order.get(device.uuid, 99)))
    cards = [_card(usage, device, snapshot, names, slots, measured) for device in devices]
    touched = report is not None or any(card.slice_ is not None for card in cards)
    last = report.last_kernel if report is not None else 0
    claim, request = (usage.of.claim, usage.of.request) if usage.of is not None else ("", "")
    return ContainerView(meta.namespace, meta.name, usage.container.name, cards, touched, last, claim, request)


def _card(usage: ContainerUsage, device: PodDevice, snapshot: Snapshot, names: Mapping[str, str], slots: Slots,
          measured: Mapping[tuple[Key, str], int]) -> CardView:  # fmt: skip
    limit = device.memory * usage.unit
    if device.slot >= 0:
        place = Place(device.uuid, device.profile, device.slot) if usage.of is not None else (
            place_of(snapshot.config, type_of(names.get(device.uuid, "")), device))  # fmt: skip
        slice_ = slots.get(place) if isinstance(place, Place) else None
        use = DeviceUse(total=slice_.memory_used) if slice_ is not None else DeviceUse()
        return CardView(device.uuid, limit, device.cores, use, slice_)
    if usage.mps or (usage.of is not None and usage.of.whole):
        reported = measured.get(((usage.pod.uid, usage.container.name), device.uuid))
        return CardView(device.uuid, limit, device.cores, DeviceUse(total=reported) if reported is not None else None)
    region = usage.report.cards.get(device.uuid) if usage.report is not None else None
    share = next((one.share for one in usage.of.shares if one.card == device.uuid), "") if usage.of is not None else ""
    return CardView(device.uuid, limit, device.cores, region.use if region is not None else DeviceUse(), share=share)


# -- The monitor's word to the containers -----------------------------------------------------------------------------

# Less important work waits for more important work on the same card, and a container that is alone at work runs without its
# core limit (HAMi volcano-vgpu-device-plugin cmd/vgpu-monitor, HAMi cmd/vGPUmonitor/feedback.go). Each round reads every
# region afresh, decides (``node.feedback``), and writes only what changes, four bytes at a time.

FLOOR = 5
"""Percent of its cards' time that a container without a core limit keeps while it is held back."""


def _floor(usage: ContainerUsage) -> int:
    """Return the percent of its cards' time that a held-back container keeps: its core limit, else ``FLOOR``."""
    return min((device.cores for device in usage.devices if device.cores > 0), default=FLOOR)


def _limited(tenant: Tenant, word: Word | None) -> bool:
    return tenant.limited if word is None or word.limited is None else word.limited


class FeedbackRounds:
    """The rounds that hold or free low-priority processes. ``reader`` tells which cards a pod's containers were given, and
    what their regions say: a region is written by its tenant, and says neither cards nor priority for certain. Only containers
    that were given cards and have not ended are spoken to. Those that have one share of a claim together are one tenant, as
    important as the most important of them that has begun. ``max_wait``: seconds that launches wait at the most before they go
    on for a round; 0: without end."""

    def __init__(self, reader: NodeReader, own: OwnNode, every: float = 5.0, max_wait: float = 60.0) -> None:
        self._reader, self._own, self._every = reader, own, every
        self._patience = max(1, round(max_wait / every)) if max_wait > 0 and every > 0 else 0
        self._waited: dict[Key, int] = {}
        self._warned: set[Path] = set()
        self._turn, self._over = threading.Lock(), False
        self._bursting: Set[Key] | None = None
        """Containers whose limits page may name a burst; None: each may, an earlier monitor may have written it."""
        self.waiting: frozenset[Key] = frozenset()
        """The containers whose launches wait since the last round."""

    async def run(self, clock: Clock) -> None:
        """Rounds for ever; when it ends nobody is left waiting for a word that would not come."""
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        try:
            while True:
                await clock.sleep(self._every)
                snapshot = await self._reader.snapshot()
                await asyncio.to_thread(self.round, snapshot)
        finally:
            with self._turn:  # a round may still be under way in its thread
                self._over = True
                self._release(self._reader.last)

    def round(self, snapshot: Snapshot) -> None:
        """One round over these containers."""
        with self._turn:
            if not self._over:
                self._round(snapshot)

    def _round(self, snapshot: Snapshot) -> None:
        tenants, paths = self._tenants(snapshot)
        words = feedback(tenants, patience=self._patience)
        for key, word in words.items():
            self._write(paths[key], word.recent, word.limited)
        reported = {key: tenant.recent for key, tenant in tenants.items()}
        reported |= {key: word.recent for key, word in words.items() if word.recent is not None}
        waiting = frozenset(key for key, recent in reported.items() if recent < 0)
        for key in waiting:
            self._beat(paths[key], self._every, _floor(snapshot.usages[key]))
        bursting = {key: word.burst for key, word in words.items() if word.burst}
        off = {key for key, tenant in tenants.items() if not _limited(tenant, words.get(key))}
        was = reported.keys() if self._bursting is None else self._bursting
        for key in bursting.keys() | off | ((was & reported.keys()) - waiting):
            hold_back(paths[key], 0, self._every, bursting.get(key, 0))
        self._bursting = frozenset(bursting) | ((was - reported.keys()) & snapshot.usages.keys())
        for key in (self.waiting & reported.keys()) - waiting:
            self._beat(paths[key], None)
        for uid, container in sorted(waiting ^ self.waiting):
            log.info("container %s pod_uid=%s container=%s",
                     "waits for more important work" if (uid, container) in waiting else "goes on", uid, container)  # fmt: skip
        self.waiting = waiting
        self._waited = {key: self._waited.get(key, 0) + 1 for key in waiting}
        self._warned.intersection_update(paths.values())

    def _tenants(self, snapshot: Snapshot) -> tuple[Mapping[Key, Tenant], dict[Key, Path]]:
        tenants: dict[Key, Tenant] = {}
        paths: dict[Key, Path] = {}
        keys: dict[Path, Key] = {}
        for key, usage in snapshot.usages.items():
            if usage.report is None or usage.path is None or usage.ended:
                continue
            first, priority = goes_first(usage.pod, usage.container), -usage.pod.priority
            if (one := keys.get(usage.path)) is not None:
                if usage.pod.started(usage.container.name):
                    known = tenants[one]
                    tenants[one] = replace(known, priority=min(priority, known.priority), goes_first=first or known.goes_first)
                continue
            recent, limited = usage.report.recent_kernel, core_limits_on(usage.path)
            limited = usage.report.utilization_switch != 0 if limited is None else limited
            uuids = tuple(device.uuid for device in usage.devices)
            cores = tuple(device.cores for device in usage.devices)
            burst = bursts.cores_of(usage.pod.annotations) if snapshot.config.bursts and usage.of is None else 0
            tenants[key] = Tenant(uuids, priority, recent, limited, self._waited.get(key, 0), first, cores, burst)
            paths[key], keys[usage.path] = usage.path, key
        return tenants, paths

    def _write(self, path: Path, recent: int | None, limited: bool | None) -> None:
        try:
            write_feedback(path, recent, limited)
        except (BadRegion, Unavailable) as error:
            if path not in self._warned:
                self._warned.add(path)
                log.warning("no feedback: %s", error)

    def _beat(self, path: Path, every: float | None, floor: int = 0) -> None:
        """Tell a container that is held back that the monitor lives, else it goes on by itself: on its limits page, which leaves
        it its floor, or in its region."""
        hold_back(path, floor, every or self._every)
        with contextlib.suppress(Unavailable):
            write_pulse(path, every)

    def _release(self, snapshot: Snapshot) -> None:
        """Everybody who may have been told to wait, by this round or the one under way when the end came."""
        for usage in snapshot.usages.values():
            if usage.path is None or usage.ended:
                continue
            with contextlib.suppress(BadRegion):
                if header_of(usage.path).recent_kernel < 0:
                    self._write(usage.path, 0, None)
                    self._beat(usage.path, None)
