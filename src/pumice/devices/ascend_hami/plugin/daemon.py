"""The plugin of one node's Ascend NPUs in HAMi's mode (spec ascend 15 to 18): one brand for each type of chip that the node
has."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.apps.node.allocating import PATIENCE
from pumice.apps.node.brand import Brand, PluginSettings
from pumice.apps.node.card_watch import open_cards
from pumice.apps.node.npu_metrics import npu_page
from pumice.apps.node.serving import run_plugins
from pumice.apps.service.own_node import OwnNode
from pumice.devices.ascend_hami.node.allocator import NpuAllocator
from pumice.devices.ascend_hami.node.answer import SoftPlaces
from pumice.devices.ascend_hami.node.inventory import NpuSharing
from pumice.devices.ascend_hami.node.keeper import Keeper
from pumice.devices.ascend_hami.plugin.configuration import known, load_vnpus, read_node_entry, sharing_of
from pumice.devices.ascend_hami.plugin.slicing import NpuSlices
from pumice.devices.ascend_hami.plugin.soft_npus import ASSETS, install_library, open_shared
from pumice.effects.tasks import first
from pumice.metrics.text import Family
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import NpuChip
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.ports.vnpus import Vnpus

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """``dcmi``: file or folder of the driver's library, empty for the system's. ``config_file`` and ``node_config``: as mounted;
    without the first the ConfigMaps are read from the API server. ``sweep``: off, owned or all, every ``sweep_every`` seconds;
    ``dry_run`` tells what would be destroyed. ``hook_path`` holds the journal, and library and folders of soft shares, which
    come from ``assets``."""

    dcmi: str = ""
    config_file: Path | None = None
    node_config: Path | None = None
    sweep: str = "owned"
    sweep_every: float = 60.0
    dry_run: bool = False
    report_offset: float = 1.0
    hook_path: Path = Path("/usr/local/hami-vnpu-core")
    assets: Path = ASSETS


async def run(
    settings: Settings, *, cluster: Cluster, clock: Clock, dice: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None,
) -> None:  # fmt: skip
    """Serve until ``stop``. Raises PumiceError on what a person has to mend."""
    config = await load_vnpus(settings.config_file, cluster, clock)
    entry = read_node_entry(settings.node_config, settings.node_name)
    cards = await open_cards(partial(DcmiCards, settings.dcmi), settings.wait_for_driver, clock, stop)
    if cards is None:
        return
    there = dict.fromkeys(card.name for card in await asyncio.to_thread(cards.facts))

    def brand(chip: NpuChip) -> Brand:
        async def again() -> NpuSharing | None:
            there = await load_vnpus(settings.config_file, cluster, clock, tell=False)
            own = read_node_entry(settings.node_config, settings.node_name)
            return next((sharing_of(found, there, own) for found in there.chips if found.word == chip.word), None)

        return ascend(settings, sharing_of(chip, config, entry), latest=Latest(partial(reread, again), clock))

    brands = [brand(chip) for chip in known(list(there), config.chips)]
    await run_plugins(settings, *brands, cluster=cluster, clock=clock, dice=dice, stop=stop, ready=ready)


@dataclass(frozen=True, slots=True)
class Latest:
    """How the configuration of one type of chips is had once more: None where it cannot be, or does not name them."""

    read: Callable[[], Awaitable[NpuSharing | None]]
    clock: Clock


def ascend(
    settings: Settings, sharing: NpuSharing, cards: Cards | None = None, vnpus: Vnpus | None = None, *,
    latest: Latest | None = None,
) -> Brand:  # fmt: skip
    """The chips of one type as the plugin server takes them. ``cards`` and ``vnpus`` are the driver's unless given. ``sharing``
    is the configuration to begin with; ``latest``: how it is had later."""
    current = sharing

    async def now() -> NpuSharing | None:
        """Return whether cards are shared softly stays as it is: chips are switched to it when the plugin starts."""
        found = None if latest is None else await latest.read()
        return None if found is None else replace(found, soft=sharing.soft)

    async def allocator() -> NpuAllocator:
        if current.soft:
            await asyncio.to_thread(install_library, settings.assets, settings.hook_path)
        places = SoftPlaces(library=str(settings.hook_path), hook=str(settings.hook_path))
        return NpuAllocator(settings.node_name, current, places, settings.report_offset)

    async def learn(allocator: NpuAllocator) -> None:
        if (found := await now()) is not None:
            allocator.learn(found.chip)

    async def outdated(clock: Clock) -> None:
        nonlocal current
        while True:
            await first(clock.sleep(settings.reload_every), (settings.hangup or asyncio.Event()).wait())
            if settings.hangup is not None:
                settings.hangup.clear()
            found = await now()
            if found is not None and found != current:
                log.info("beginning again: the configuration of %s has changed", found.chip.word)
                current = found
                return

    async def metrics(opened: Cards, own: OwnNode) -> list[Family]:
        return await npu_page(opened, driver, settings.hook_path, sharing.chip.word, own)

    driver = vnpus or DcmiVnpus(settings.dcmi)
    journal = FileJournal(settings.hook_path / f"{sharing.chip.word}.json")
    keeper = Keeper(driver, journal, settings.sweep, dry=settings.dry_run)
    opened = partial(open_shared if sharing.soft else DcmiCards, settings.dcmi, sharing.chip.name)
    return Brand("pumice-ascend-plugin", allocator, opened, cards, slicer=partial(NpuSlices, keeper, settings.sweep_every),
                 learn=learn, metrics=metrics, outdated=partial(outdated, latest.clock) if latest else None)  # fmt: skip


async def reread(again: Callable[[], Awaitable[NpuSharing | None]]) -> NpuSharing | None:
    """In the time that a call has; what is wrong is told."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await again()
    except (BadInput, TimeoutError) as error:
        log.warning("device configuration kept: %s", error or "the API server does not answer")
        return None
