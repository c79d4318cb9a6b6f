"""The plugin of one node's Ascend NPUs that are cut on demand, in MindCluster's mode (MindCluster ascend-device-plugin)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pumice.adapters.bookings.claims import held_by_claims, unclaimed
from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.checkpoint import allocated_devices
from pumice.apps.node.card_watch import open_cards
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.npu_metrics import npu_page
from pumice.apps.node.performing import Slicer
from pumice.apps.node.plugin import run_plugins
from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.own_node import OwnNode
from pumice.devices.ascend_mindcluster.node.allocator import ChipAllocator
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper, State, foreign, ids_text, realised, report
from pumice.effects.tasks import first
from pumice.effects.vocabulary import Event
from pumice.metrics.text import MetricFamily
from pumice.model.errors import BadInput, Unavailable
from pumice.model.hardware.npu import SliceKind, driver_chips, slice_kinds
from pumice.node.protocol import Conflict, Partition, Serve
from pumice.ports.cards import CardFacts, Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.slices import Place, Vnpus
from pumice.wire import names
from pumice.wire.device_reports import render_own_devices
from pumice.wire.kinds import CONFIGMAPS
from pumice.wire.mindcluster import NPU_CORE


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """The settings of the plugin. ``dcmi``: file or folder of the driver's library, empty for the system's. ``sweep``: which
    slices that nobody holds are destroyed (off, owned, all); ``dry_run`` tells of them only. ``look_every``: seconds between
    two looks at what the kubelet has written down. ``journal``: the folder of the books."""

    dcmi: str = ""
    sweep: str = "owned"
    dry_run: bool = False
    look_every: float = 5.0
    journal: Path = Path("/usr/local/hami-vnpu-core")


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None,
) -> None:  # fmt: skip
    """Serve until ``stop``. Raises PumiceError on what a person has to mend."""
    cards = await open_cards(partial(DcmiCards, settings.dcmi), settings.wait_for_driver, clock, stop)
    if cards is None:
        return
    found = {card.name for card in await asyncio.to_thread(cards.facts)}
    kind = need_chips(found, (await asyncio.to_thread(cards.products)).values() if isinstance(cards, DcmiCards) else ())
    device_type = mindcluster(settings, kind, cluster)
    await run_plugins(settings, device_type, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)


def need_chips(found: Collection[str], products: Iterable[str] = ()) -> SliceKind:
    """Return the kind that is cut on demand. Raises BadInput where the driver lists none, or two chips on one card (the Atlas
    300I Duo)."""
    kinds = slice_kinds().values()
    if pairs := [product for product in products if any(kind.paired and kind.paired in product for kind in kinds)]:
        raise BadInput(f"{pairs[0]}: two chips on one card are not cut on demand; --mode hami shares them")
    for kind in kinds:
        if kind.driver in found:
            return kind
    listed = ", ".join(sorted(found)) or "(none: the driver lists no NPU)"
    known = ", ".join(kind.driver for kind in kinds)
    raise BadInput(f"chips of type {listed} are not cut on demand, only {known}; --mode hami shares others")


def mindcluster(
    settings: Settings, kind: SliceKind, cluster: Cluster, cards: Cards | None = None, vnpus: Vnpus | None = None
) -> ServedDevices:
    """The chips as the plugin server takes them. ``cards`` and ``vnpus`` are the driver's unless given."""
    driver = vnpus or DcmiVnpus(settings.dcmi)
    journal = FileJournal(settings.journal / f"{kind.name}.cut.json")
    keeper = ChipKeeper(kind.name, driver, journal, settings.sweep, dry=settings.dry_run, slices=lambda _: kind.slices)
    claimed = partial(held_by_claims, settings.booking_dirs)
    chips = ChipAllocator(settings.node_name, kind, driver_chips()[kind.driver].size.cores, claimed)

    async def allocator() -> ChipAllocator:
        return chips

    async def metrics(opened: Cards, own: OwnNode) -> list[MetricFamily]:
        return await npu_page(opened, driver, settings.journal, kind.name, own)

    def slicer(own: WrittenNode, allocated: object) -> ChipSlices:
        return ChipSlices(kind, keeper, chips, cluster, settings.device_plugin_dir, settings.look_every, own, claimed)

    return ServedDevices("pumice-mindcluster-plugin", allocator, partial(DcmiCards, settings.dcmi, kind.driver), cards,
                 slicer=slicer, metrics=metrics)  # fmt: skip


REPORT_AGAIN_SECONDS: Final = 300.0
REPORT_PAUSE_SECONDS: Final = 1.0
"""Seconds after which a report is written though it says the same, and between two of them (MindCluster ascend-device-plugin)."""


class ChipReports:
    """One node's ConfigMap, written when it has something else to say, and once in a while."""

    def __init__(self, kind: str, cluster: Cluster, own: OwnNode) -> None:
        self._kind, self._cluster, self._own = kind, cluster, own
        self._said: Any = None
        self._since = float("-inf")

    async def announce(self, chips: Mapping[int, str], unhealthy: Mapping[str, str], state: State) -> None:
        """``chips``: UUIDs by physical id; ``unhealthy``: why some take no pods, by UUID."""
        clock = self._own.clock
        info = report(self._kind, chips, unhealthy, state, int(clock.now()))
        if info["DeviceList"] == self._said and clock.monotonic() < self._since + REPORT_AGAIN_SECONDS:
            return
        try:
            await self._write(render_own_devices(self._own.name, info))
        except ApiError as error:
            log.warning("the report of this node's chips was not written: %s", error)
            return
        self._said, self._since = info["DeviceList"], clock.monotonic()

    async def _write(self, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        try:
            await self._cluster.patch(CONFIGMAPS, meta["name"], body, meta["namespace"])
        except ApiError as error:
            if error.code != 404:
                raise
            await self._cluster.create(CONFIGMAPS, body, meta["namespace"])


log = logging.getLogger("pumice.node")


class ChipSlices(Slicer):
    """Slices made for pods, and whole chips. ``folder``: of the kubelet's own record, looked at every so many seconds."""

    def __init__(
        self, kind: SliceKind, keeper: ChipKeeper, chips: ChipAllocator, cluster: Cluster, folder: Path, every: float,
        own: WrittenNode, claimed: Callable[[], Mapping[str, str]] = dict,
    ) -> None:  # fmt: skip
        super().__init__(own, partial(allocated_devices, folder, NPU_CORE), "vnpus")
        self._kind, self._keeper, self._chips, self._every, self._claimed = kind, keeper, chips, every, claimed
        self._state = State()
        self._strangers: dict[str, int] = {}
        self._beside = False
        self._failed: dict[Place, str] = {}
        self._would: set[Place] = set()
        self._reports = ChipReports(kind.name, cluster, own)

    async def start(self, cards: Iterable[CardFacts]) -> None:
        self._chips.show(tuple(cards))
        await self._sweep(await self._record())

    async def keep(self) -> None:
        clock, looked = self._own.clock, float("-inf")
        while True:
            changed = self._own.node_changed.wait()
            if clock.monotonic() >= looked + self._every:
                looked, record = clock.monotonic(), await self._record()
                await self._sweep(record)
                await self._tell_pods(record)
            await self._reports.announce(self._chips.chips, self._chips.unhealthy, self._state)
            await clock.sleep(REPORT_PAUSE_SECONDS)
            await first(changed, clock.sleep(max(0.0, looked + self._every - clock.monotonic())))

    async def partition(self, wanted: Partition) -> Serve | Conflict:
        await self._record()
        cards = list(self._chips.chips.values())
        try:
            given, self._state = await self._call(
                lambda: self._keeper.give(wanted.places, wanted.pod.uid, wanted.ids, cards, self._owners)
            )
        except Unavailable as error:
            return Conflict(wanted.pod, str(error), self._owners.vanishing)
        await self._tell_node(self._state)
        return wanted.then(given)

    # -- looks -----------------------------------------------------------------------------------------------------------

    async def _record(self) -> dict[str, str]:
        """The kubelet's record as it is now: who holds cores, and its ids of each pod by the UID."""
        found = await self._ask()
        return {uid: ids_text(ids) for (uid, _), ids in (found or {}).items()}

    async def _sweep(self, record: Mapping[str, str]) -> None:
        """Chips that claims hold have slices of these, which their driver keeps."""
        cards = unclaimed(self._chips.chips.values(), self._claimed())
        live = {pod.uid for pod in self._own.pods if not pod.finished}
        try:
            self._state = await self._call(lambda: self._keeper.sweep(cards, self._owners, record, live))
        except Unavailable as error:
            log.error("slices are left as they are: %s", error)
            return
        await self._tell_node(self._state)

    # -- what is told ----------------------------------------------------------------------------------------------------

    async def _tell_pods(self, record: Mapping[str, str]) -> None:
        for patch in realised(self._own.pods, record, self._state, self._chips.chips, self._kind):
            if await self._own.perform_soon(patch, f"telling pod {patch.namespace}/{patch.name} what it has"):
                log.info("told pod=%s/%s %s", patch.namespace, patch.name, next(iter(patch.annotations.values())))

    async def _tell_node(self, state: State) -> None:
        if state.dry:
            for place in set(state.destroyed) - self._would:
                log.info("vNPU %d (%s) of card %s would be destroyed: nobody holds it", place.start, place.profile, place.card)
            self._would = set(state.destroyed)
        else:
            await self._tell_each("VNPUDestroyed", state.destroyed, "destroyed: nobody holds it")
        await self._tell_each("VNPURestored", state.restored, "made again: it had vanished under its pod")
        failed = dict(state.failed)
        for place, why in failed.items():
            if self._failed.get(place) != why:
                log.error("vNPU %d (%s) vanished under its pod and cannot be made again: %s", place.start, place.profile, why)
        self._failed = failed
        self._warn_of_others(state)

    async def _tell_each(self, reason: str, places: Iterable[Place], what: str) -> None:
        name = self._own.name
        for place in places:
            text = f"vNPU {place.start} ({place.profile}) of card {place.card} {what}"
            log.info(text)
            await self._own.perform(Event.on_node(name, "Normal", reason, text))

    def _warn_of_others(self, state: State) -> None:
        register = f"{names.NODE_NPU_REGISTER}{self._kind.name}"
        beside = self._own.node is not None and register in self._own.node.metadata.annotations
        if beside and not self._beside:
            log.warning("HAMi's plugin has registered this node's chips, too: only one of both may run here, for each takes the "
                        "other's slices for a stranger's")  # fmt: skip
        self._beside = beside
        strangers = {card: len(slices) for card, slices in foreign(state.entries, state.seen).items()}
        if strangers != self._strangers:
            for card, count in strangers.items():
                log.warning("%d slices of card %s were made by somebody else and are left alone", count, card)
            self._strangers = strangers
