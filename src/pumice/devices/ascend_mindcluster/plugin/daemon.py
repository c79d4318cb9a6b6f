"""The plugin of one node's Ascend NPUs that are cut on demand, in MindCluster's mode (MindCluster ascend-device-plugin)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.apps.node.card_watch import open_cards
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.npu_metrics import npu_page
from pumice.apps.node.serving import run_plugins
from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.own_node import OwnNode
from pumice.devices.ascend_mindcluster.node.allocator import ChipAllocator
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper
from pumice.devices.ascend_mindcluster.plugin.slicing import ChipSlices
from pumice.metrics.text import MetricFamily
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import driver_chips, slice_kinds
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.vnpus import Vnpus
from pumice.wire.mindcluster import DRIVER_NAME, KIND, PAIRED


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """``dcmi``: file or folder of the driver's library, empty for the system's. ``sweep``: which slices that nobody holds are
    destroyed (off, owned, all); ``dry_run`` tells of them only. ``look_every``: seconds between two looks at what the kubelet has
    written down. ``journal``: the folder of the books."""

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
    need_chips(found, (await asyncio.to_thread(cards.products)).values() if isinstance(cards, DcmiCards) else ())
    device_type = mindcluster(settings, cluster)
    await run_plugins(settings, device_type, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)


def need_chips(found: Collection[str], products: Iterable[str] = ()) -> None:
    """Raises BadInput where the driver lists no chip that is cut on demand, or two on one card (the Atlas 300I Duo)."""
    if pairs := [product for product in products if PAIRED in product]:
        raise BadInput(f"{pairs[0]}: two chips on one card are not cut on demand; --mode hami shares them")
    if DRIVER_NAME not in found:
        listed = ", ".join(sorted(found)) or "(none: the driver lists no NPU)"
        raise BadInput(f"chips of type {listed} are not cut on demand, only {DRIVER_NAME}; --mode hami shares others")


def mindcluster(settings: Settings, cluster: Cluster, cards: Cards | None = None, vnpus: Vnpus | None = None) -> ServedDevices:
    """The chips as the plugin server takes them. ``cards`` and ``vnpus`` are the driver's unless given."""
    driver = vnpus or DcmiVnpus(settings.dcmi)
    keeper = ChipKeeper(driver, FileJournal(settings.journal / f"{KIND}.cut.json"), settings.sweep, dry=settings.dry_run)
    chips = ChipAllocator(settings.node_name, slice_kinds()[KIND], driver_chips()[DRIVER_NAME].size.cores)

    async def allocator() -> ChipAllocator:
        return chips

    async def metrics(opened: Cards, own: OwnNode) -> list[MetricFamily]:
        return await npu_page(opened, driver, settings.journal, KIND, own)

    def slicer(own: WrittenNode, held: object) -> ChipSlices:
        return ChipSlices(keeper, chips, cluster, settings.device_plugin_dir, settings.look_every, own)

    return ServedDevices("pumice-mindcluster-plugin", allocator, partial(DcmiCards, settings.dcmi, DRIVER_NAME), cards,
                 slicer=slicer, metrics=metrics)  # fmt: skip
