"""The plugin of one node's Ascend NPUs in HAMi's mode (spec ascend 15 to 18): one brand for each type of chip that the node
has."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.apps.node.card_watch import open_cards
from pumice.apps.node.npu_metrics import npu_page
from pumice.apps.node.npu_slices import NpuSlices
from pumice.apps.node.plugin import Brand, PluginSettings, run_plugins
from pumice.apps.node.soft_npus import ASSETS, install_library, open_shared
from pumice.apps.service.own_node import CONFIG_MAPS, OwnNode
from pumice.metrics.text import Family
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import NpuChip
from pumice.node.ascend.allocator import NpuAllocator
from pumice.node.ascend.answer import SoftPlaces
from pumice.node.ascend.inventory import NpuSharing
from pumice.node.ascend.keeper import Keeper
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.vnpus import Vnpus
from pumice.wire import names
from pumice.wire.device_config import parse_device_config
from pumice.wire.npu_config import VnpuConfig, shipped
from pumice.wire.npu_node_config import NpuNodeEntry, parse_npu_node_config

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
    settings: Settings,
    *,
    cluster: Cluster,
    clock: Clock,
    dice: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
) -> None:
    """Serve until ``stop``. Raises PumiceError on what a person has to mend."""
    config = await load_vnpus(settings.config_file, cluster, clock)
    entry = _node_entry(settings)
    cards = await open_cards(partial(DcmiCards, settings.dcmi), settings.wait_for_driver, clock, stop)
    if cards is None:
        return
    there = dict.fromkeys(card.name for card in await asyncio.to_thread(cards.facts))
    brands = [ascend(settings, sharing_of(chip, config, entry)) for chip in known(list(there), config.chips)]
    await run_plugins(settings, *brands, cluster=cluster, clock=clock, dice=dice, stop=stop, ready=ready)


def ascend(settings: Settings, sharing: NpuSharing, cards: Cards | None = None, vnpus: Vnpus | None = None) -> Brand:
    """The chips of one type as the plugin server takes them. ``cards`` and ``vnpus`` are the driver's unless given."""

    async def allocator() -> NpuAllocator:
        if sharing.soft:
            await asyncio.to_thread(install_library, settings.assets, settings.hook_path)
        places = SoftPlaces(library=str(settings.hook_path), hook=str(settings.hook_path))
        return NpuAllocator(settings.node_name, sharing, places, settings.report_offset)

    async def metrics(opened: Cards, own: OwnNode) -> list[Family]:
        return await npu_page(opened, driver, settings.hook_path, sharing.chip.word, own)

    driver = vnpus or DcmiVnpus(settings.dcmi)
    journal = FileJournal(settings.hook_path / f"{sharing.chip.word}.json")
    keeper = Keeper(driver, journal, settings.sweep, dry=settings.dry_run)
    opened = partial(open_shared if sharing.soft else DcmiCards, settings.dcmi, sharing.chip.name)
    return Brand("pumice-ascend-plugin", allocator, opened, cards,
                 slicer=partial(NpuSlices, keeper, settings.sweep_every), metrics=metrics)  # fmt: skip


def known(found: Sequence[str], chips: Sequence[NpuChip]) -> list[NpuChip]:
    """The configuration's entries of the chips that the driver reports. Raises BadInput where it has none for any of them."""
    by_name = {chip.name: chip for chip in chips}
    for name in found:
        if name not in by_name:
            log.error("can not find vnpu config for chip %s; it is not shared", name)
    if not any(name in by_name for name in found):
        raise BadInput(f"can not find vnpu config for chip {', '.join(found) or '(none: the driver lists no NPU)'}")
    return [by_name[name] for name in found if name in by_name]


def sharing_of(chip: NpuChip, config: VnpuConfig, entry: NpuNodeEntry | None) -> NpuSharing:
    """A node's entry replaces the global word on soft sharing (spec ascend 15.2)."""
    sharing = NpuSharing(chip, config.soft)
    if entry is None:
        return sharing
    return replace(sharing, soft=entry.soft, shares=entry.shares, without_indices=entry.without_indices,
                   without_uuids=entry.without_uuids)  # fmt: skip


async def load_vnpus(file: Path | None, cluster: Cluster, clock: Clock) -> VnpuConfig:
    """The chips and templates: of the file, else of the first ConfigMap that says something of NPUs, else as shipped."""
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: {error}") from error
        found = _parse(text, str(file))
        if found is None:
            raise BadInput(f"{file}: nothing in it is about NPUs (vnpus)")
        return found
    for name in (names.NPU_CONFIGMAP, names.DEVICE_CONFIGMAP):
        text = await _config_map(name, cluster, clock)
        found = _parse(text, f"ConfigMap {names.DEVICE_CONFIG_NAMESPACE}/{name}") if text else None
        if found is not None:
            return found
    log.warning("no ConfigMap says anything of NPUs: the chips and templates that are known are used")
    return shipped()


async def _config_map(name: str, cluster: Cluster, clock: Clock) -> str:
    while True:
        try:
            found = await cluster.get(CONFIG_MAPS, name, names.DEVICE_CONFIG_NAMESPACE)
            return str((found.get("data") or {}).get(names.DEVICE_CONFIG_KEY, ""))
        except ApiError as error:
            if error.code in (403, 404):
                return ""
            log.warning("reading ConfigMap %s: %s", name, error)
            await clock.sleep(2.0)


def _parse(text: str, where: str) -> VnpuConfig | None:
    try:
        config = parse_device_config(text)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    for warning in config.warnings:
        log.warning("%s: %s", where, warning)
    return config.vnpus


def _node_entry(settings: Settings) -> NpuNodeEntry | None:
    if settings.node_config is None:
        return None
    try:
        entry, problems = parse_npu_node_config(settings.node_config.read_text("utf-8"), settings.node_name)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, BadInput) as error:
        raise BadInput(f"{settings.node_config}: {error}") from error
    for problem in problems:
        log.warning("%s: %s", settings.node_config, problem)
    return entry
