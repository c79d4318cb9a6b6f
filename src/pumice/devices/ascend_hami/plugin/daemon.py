"""The plugin of one node's Ascend NPUs in HAMi's mode (HAMi ascend-device-plugin): one device type for each type of chip
that the node has."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pumice.adapters.bookings.claims import held_by_claims, unclaimed
from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.apps.node.allocating import PATIENCE
from pumice.apps.node.card_watch import open_cards
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.apps.node.npu_metrics import npu_page, short_id
from pumice.apps.node.performing import Slicer
from pumice.apps.node.plugin import run_plugins
from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.own_node import OwnNode
from pumice.devices.ascend_hami.node.allocator import NpuAllocator
from pumice.devices.ascend_hami.node.answer import SHARED, NpuSharing, SoftPlaces
from pumice.devices.ascend_hami.node.keeper import Keeper, Swept
from pumice.effects.tasks import first
from pumice.effects.vocabulary import Event, InstallFile, MakeDirectory
from pumice.metrics.text import MetricFamily
from pumice.model.errors import BadInput, Unavailable
from pumice.model.hardware.npu import NpuChip
from pumice.node.pods import AllocatedIds, NodePod
from pumice.node.protocol import Conflict, Partition, Serve
from pumice.ports.cards import CardFacts, Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.slices import Vnpus
from pumice.wire import names, variables
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.kinds import CONFIGMAPS
from pumice.wire.node_config import NpuNodeEntry, parse_npu_node_config
from pumice.wire.npu_config import VnpuConfig, shipped

log = logging.getLogger("pumice.node")

NAMES = ("libvnpu.so", "ld.so.preload")
ASSETS = Path("/usr/local/hami-vnpu-core-assets")


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """The settings of the plugin. ``dcmi``: file or folder of the driver's library, empty for the system's. ``config_file``
    and ``node_config``: as mounted; without the first the ConfigMaps are read from the API server. ``sweep``: off, owned or
    all, every ``sweep_every`` seconds; ``dry_run`` tells what would be destroyed. ``hook_path`` holds the journal, and library
    and folders of soft shares, which come from ``assets``."""

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
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
    ready: asyncio.Event | None = None,
) -> None:  # fmt: skip
    """Serve until ``stop``. Raises PumiceError on what a person has to mend."""
    config = await load_vnpus(settings.config_file, cluster, clock)
    entry = read_node_entry(settings.node_config, settings.node_name)
    cards = await open_cards(partial(DcmiCards, settings.dcmi), settings.wait_for_driver, clock, stop)
    if cards is None:
        return
    there = dict.fromkeys(card.name for card in await asyncio.to_thread(cards.facts))

    def device_type(chip: NpuChip) -> ServedDevices:
        async def again() -> NpuSharing | None:
            there = await load_vnpus(settings.config_file, cluster, clock, tell=False)
            own = read_node_entry(settings.node_config, settings.node_name)
            return next((sharing_of(found, there, own) for found in there.chips if found.word == chip.word), None)

        return ascend(settings, sharing_of(chip, config, entry), latest=Latest(partial(reread, again), clock))

    device_types = [device_type(chip) for chip in known(list(there), config.chips)]
    await run_plugins(settings, *device_types, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)


@dataclass(frozen=True, slots=True)
class Latest:
    """Read the configuration of one type of chips once more: None where it cannot be read, or does not name them."""

    read: Callable[[], Awaitable[NpuSharing | None]]
    clock: Clock


def ascend(
    settings: Settings, sharing: NpuSharing, cards: Cards | None = None, vnpus: Vnpus | None = None, *,
    latest: Latest | None = None,
) -> ServedDevices:  # fmt: skip
    """The chips of one type as the plugin server takes them. ``cards`` and ``vnpus`` are the driver's unless given. ``sharing``
    is the configuration to begin with; ``latest``: how it is had later."""
    current = sharing
    claimed = partial(held_by_claims, settings.booking_dirs)

    async def now() -> NpuSharing | None:
        """Return whether cards are shared softly stays as it is: chips are switched to it when the plugin starts."""
        found = None if latest is None else await latest.read()
        return None if found is None else replace(found, soft=sharing.soft)

    async def allocator() -> NpuAllocator:
        if current.soft:
            await asyncio.to_thread(install_library, settings.assets, settings.hook_path)
        places = SoftPlaces(library=str(settings.hook_path), hook=str(settings.hook_path))
        return NpuAllocator(settings.node_name, current, places, settings.report_offset, claimed)

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

    async def metrics(opened: Cards, own: OwnNode) -> list[MetricFamily]:
        return await npu_page(opened, driver, settings.hook_path, sharing.chip.word, own)

    driver = vnpus or DcmiVnpus(settings.dcmi)
    journal = FileJournal(settings.hook_path / f"{sharing.chip.word}.json")
    keeper = Keeper(driver, journal, settings.sweep, dry=settings.dry_run)
    opened = partial(open_shared if sharing.soft else DcmiCards, settings.dcmi, sharing.chip.name)
    return ServedDevices("pumice-ascend-plugin", allocator, opened, cards,
                         slicer=partial(NpuSlices, keeper, settings.sweep_every, claimed=claimed), learn=learn, metrics=metrics,
                         outdated=partial(outdated, latest.clock) if latest else None)  # fmt: skip


async def reread(again: Callable[[], Awaitable[NpuSharing | None]]) -> NpuSharing | None:
    """In the time that a call has; what is wrong is told."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await again()
    except (BadInput, TimeoutError) as error:
        log.warning("device configuration kept: %s", error or "the API server does not answer")
        return None


# -- Keeps the books of NPU slices off the loop, and sweeps once in a while (HAMi ascend-device-plugin) --------------------------


class NpuSlices(Slicer):
    """Slices that the runtime makes: claims to them, and sweeps ``every`` so many seconds. Cards that ``claimed`` names have
    slices of ResourceClaims, which their driver keeps."""

    def __init__(
        self, keeper: Keeper, every: float, own: WrittenNode, allocated: Callable[[], AllocatedIds | None],
        claimed: Callable[[], Mapping[str, str]] = dict,
    ) -> None:  # fmt: skip
        super().__init__(own, allocated, "vnpus")
        self._keeper, self._every, self._claimed = keeper, every, claimed
        self._cards: tuple[str, ...] = ()
        self._reported: dict[str, int] = {}
        self._strange: Mapping[str, tuple[str, ...]] = {}

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """Chips with slices that nobody has booked: what schedulers put there the driver may refuse. Which of them can be cut in
        any way is all the same here."""
        return {card: f"slices of it were made by somebody else ({', '.join(found)})" for card, found in self._strange.items()}

    async def start(self, cards: Iterable[CardFacts]) -> None:
        self._cards = tuple(card.uuid for card in cards)
        await self._sweep()

    async def keep(self) -> None:
        while True:
            await self._own.clock.sleep(self._every)
            await self._sweep()

    async def partition(self, wanted: Partition) -> Serve | Conflict:
        """Its claim is on disk before the runtime hears of it."""
        try:
            owner_of = containers(self._own.pods)
            await self._call(lambda: self._keeper.claim(wanted.places, wanted.pod.uid, owner_of))
        except Unavailable as error:
            return Conflict(wanted.pod, str(error))
        return wanted.then({})

    async def _sweep(self) -> None:
        await self._ask()
        owner_of = containers(self._own.pods)
        try:
            cards = unclaimed(self._cards, self._claimed())
            swept = await self._call(lambda: self._keeper.sweep(cards, self._owners.holds, owner_of))
        except Unavailable as error:
            log.error("slices are left as they are: %s", error)
            return
        await self._report(swept)

    async def _report(self, swept: Swept) -> None:
        self._strange = swept.strange
        verb = "would be destroyed" if swept.dry else "destroyed"
        for place in swept.destroyed:
            text = f"idle slice {place.start} ({place.profile}) of card {place.card} {verb}: its pod is gone"
            log.info(text)
            if not swept.dry:
                await self._own.perform(Event.on_node(self._own.name, "Normal", "VNPUDestroyed", text))
        if swept.foreign != self._reported:
            self._reported = dict(swept.foreign)
            for card, count in swept.foreign.items():
                log.warning("%d idle slices of card %s were made by somebody else and are left alone", count, card)


def containers(pods: Iterable[NodePod]) -> dict[int, str]:
    """The pod of each container that the kubelet has told of, by the id that the driver has of it."""
    return {
        short: pod.uid
        for pod in pods
        for status in pod.container_statuses
        if (short := short_id(status.container_id))
    }


# -- configuration ----------------------------------------------------------------------------------------------------

# How a node shares its NPUs, by the ConfigMaps or the files that are mounted in their place (HAMi ascend-device-plugin).

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
    """A node's entry replaces the global word on soft sharing (HAMi ascend-device-plugin)."""
    sharing = NpuSharing(chip, config.soft)
    if entry is None:
        return sharing
    return replace(sharing, soft=entry.soft, shares=entry.shares, without_indices=entry.without_indices,
                   without_uuids=entry.without_uuids)  # fmt: skip


async def load_vnpus(file: Path | None, cluster: Cluster, clock: Clock, *, tell: bool = True) -> VnpuConfig:
    """The chips and templates: of the file, else of the first ConfigMap that says something of NPUs, else as shipped. ``tell``:
    whether the log shall have what is wrong with them."""
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: {error}") from error
        found = _parse(text, str(file), tell)
        if found is None:
            raise BadInput(f"{file}: nothing in it is about NPUs (vnpus)")
        return found
    for name in (names.NPU_CONFIGMAP, names.DEVICE_CONFIGMAP):
        text = await _config_map(name, cluster, clock)
        found = _parse(text, f"ConfigMap {names.DEVICE_CONFIG_NAMESPACE}/{name}", tell) if text else None
        if found is not None:
            return found
    if tell:
        log.warning("no ConfigMap says anything of NPUs: the chips and templates that are known are used")
    return shipped()


async def _config_map(name: str, cluster: Cluster, clock: Clock) -> str:
    while True:
        try:
            found = await cluster.get(CONFIGMAPS, name, names.DEVICE_CONFIG_NAMESPACE)
            return str((found.get("data") or {}).get(names.DEVICE_CONFIG_KEY, ""))
        except ApiError as error:
            if error.code in (403, 404):
                return ""
            log.warning("reading ConfigMap %s: %s", name, error)
            await clock.sleep(2.0)


def _parse(text: str, where: str, tell: bool) -> VnpuConfig | None:
    try:
        config = parse_device_config(text)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    for warning in config.warnings if tell else ():
        log.warning("%s: %s", where, warning)
    return config.vnpus


def read_node_entry(file: Path | None, node: str) -> NpuNodeEntry | None:
    if file is None:
        return None
    try:
        entry, problems = parse_npu_node_config(file.read_text("utf-8"), node)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, BadInput) as error:
        raise BadInput(f"{file}: {error}") from error
    for problem in problems:
        log.warning("%s: %s", file, problem)
    return entry


# -- The needs of a node before soft shares of its NPUs can be given --------------------------------------------------

# The library has to be where containers mount it from, and the chips switched to be shared (HAMi ascend-device-plugin). Nodes
# that only cut their chips need none of it.




def assets_folder() -> Path:
    return Path(os.environ.get(variables.VNPU_ASSETS_PATH) or ASSETS)


def install_library(assets: Path, library: Path, shared: str = SHARED) -> None:
    """Copy what is new, and make the folder that containers share. Raises BadInput where there is nothing to copy and nothing was
    copied before."""
    present = digests(library, NAMES)
    files = []
    for name in NAMES:
        try:
            content = (assets / name).read_bytes()
        except OSError as error:
            if name not in present:
                raise BadInput(f"soft sharing needs {name}, and {assets / name} cannot be read: {error.strerror}") from error
            continue
        if present.get(name) != hashlib.sha256(content).hexdigest():
            files.append(InstallFile(str(library / name), content, 0o755 if name.endswith(".so") else 0o644))
    install_files(files)
    make_directory(MakeDirectory(shared, 0o777))


def open_shared(place: str, chip: str) -> DcmiCards:
    """The chips of this type, switched to be shared; one that refuses takes no pods, and the others do. Raises
    CardsUnavailable."""
    cards = DcmiCards(place, chip)
    for uuid, why in cards.share().items():
        log.error("card %s cannot be shared softly: %s", uuid, why)
    return cards
