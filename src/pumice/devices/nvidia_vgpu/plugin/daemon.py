"""The plugin of one node's vGPUs (spec nvidia-device-plugin). The order at start matters: library and directories first,
registration last (spec 6)."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pumice.adapters.journal import FileJournal
from pumice.adapters.mps import MpsPrograms
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.apps.node.allocating import PATIENCE
from pumice.apps.node.brand import Brand, PluginSettings
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.apps.node.files import digests, install_files
from pumice.apps.node.performing import in_turn
from pumice.apps.node.serving import run_plugins
from pumice.apps.service.device_config import load_device_config
from pumice.apps.service.worker import once
from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator
from pumice.devices.nvidia_vgpu.node.answer import CONTROL_NODES, ResponseOptions
from pumice.devices.nvidia_vgpu.node.library import NAMES, install
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter
from pumice.devices.nvidia_vgpu.node.sharing import Flags, Sharing
from pumice.devices.nvidia_vgpu.node.static import StaticSlices
from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiFiles, CdiPlaces, KeptFiles
from pumice.devices.nvidia_vgpu.plugin.configuration import load_sharing, read_sharing
from pumice.devices.nvidia_vgpu.plugin.slicing import Slicing
from pumice.effects.tasks import first
from pumice.model.errors import BadInput
from pumice.ports.cards import CardFacts, Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.mps import PROGRAM
from pumice.ports.slices import Slice

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """Paths are the host's.

    ``advertise`` and ``handshake``: see VgpuAllocator. ``mig_strategy``: ``none`` cuts cards on demand, ``mixed`` hands out what
    somebody has cut (spec 15). ``mps_root``: the folder of the control daemons of MPS, where they are to be kept, and
    ``mps_program`` what starts them. ``library``: the ``libvgpu.so`` to install into ``hook_path``; None
    installs nothing. ``config_namespace`` is searched first.
    """

    hook_path: Path = Path("/usr/local/vgpu")
    lock_dir: Path = Path("/tmp/vgpulock")
    library: Path | None = None
    advertise: str = "status"
    advertise_percentage: bool = False
    handshake: str = "auto"
    config_namespace: str = ""
    node_config: Path = Path("/config/config.json")
    flags: Flags = field(default_factory=Flags)
    response_options: ResponseOptions = field(default_factory=ResponseOptions)
    mig_strategy: str = "none"
    cdi: CdiPlaces = field(default_factory=CdiPlaces)
    mps_root: Path | None = None
    mps_program: str = PROGRAM


async def run(
    settings: Settings,
    *,
    cluster: Cluster,
    clock: Clock,
    dice: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    cards: Cards | None = None,
) -> None:
    """Serve until ``stop``. ``ready`` is set once the kubelet and the node object know the cards.

    ``cards`` are this machine's (NVML unless given). Raises PumiceError on what a person has to mend.
    """
    brand = vgpu(settings, cluster=cluster, clock=clock, dice=dice, cards=cards)
    await run_plugins(settings, brand, cluster=cluster, clock=clock, dice=dice, stop=stop, ready=ready)


def vgpu(
    settings: Settings, *, cluster: Cluster, clock: Clock, dice: random.Random, cards: Cards | None = None
) -> Brand:
    """vGPUs as the plugin server takes them."""
    devices = _cdi(settings, cards)
    kept = Configured(settings, cluster, clock, dice, devices)
    daemons = ControlDaemons(MpsPrograms(settings.mps_root, settings.mps_program), clock) if settings.mps_root else None
    prepare = in_turn(*(part.prepare for part in (devices, daemons) if part is not None))
    brand = Brand("pumice-device-plugin", kept.allocator, partial(NvmlCards, settings.nvml), cards, outdated=kept.outdated,
                  prepare=prepare, daemons=daemons,
                  by_name=not settings.response_options.cdi)  # fmt: skip
    if settings.mig_strategy == "mixed":
        return brand
    cutter = Cutter(NvmlSlices(), FileJournal(settings.hook_path / "vgpu" / "mig.json"))
    return replace(brand, slicer=partial(Slicing, cutter), learn=kept.learn)


@dataclass(slots=True)
class Configured:
    """An allocator by the configuration as it stands, and whether it stands so still. ``devices``: the files of CDI devices."""

    settings: Settings
    cluster: Cluster
    clock: Clock
    dice: random.Random
    devices: KeptFiles | None
    read: tuple[Sharing, str] | None = None

    async def allocator(self) -> VgpuAllocator:
        settings = self.settings
        sharing, level = self.read = await load_sharing(
            settings.node_name, settings.node_config, settings.config_namespace, settings.flags, self.cluster, self.clock
        )
        _check(sharing, settings)
        await asyncio.to_thread(_install, settings.library, settings.hook_path)
        options = _response_options(settings, level)
        if self.devices is not None:
            await self.devices.begin()
            options = replace(options, extras=self.devices.files.extras)
        static: StaticSlices | None = None
        if settings.mig_strategy == "mixed":
            sharing = replace(sharing, static_mig=True)
            static = StaticSlices(await once("nvml", partial(_cut_already, settings.nvml)))
        return VgpuAllocator(settings.node_name, sharing, options, self.dice,
                             advertise=settings.advertise, percentage=settings.advertise_percentage,
                             handshake=settings.handshake, static=static)  # fmt: skip

    async def outdated(self) -> None:
        """Returns when the plugin has to begin again: asked to by a signal, or by another configuration that can be meant."""
        settings, refused = self.settings, ""
        while True:
            asked = settings.hangup or asyncio.Event()
            if await first(self.clock.sleep(settings.reload_every), asked.wait()) == 1:
                asked.clear()
                log.info("beginning again: asked to by a signal")
                return
            if self.devices is not None:
                await self.devices.begin()
            try:
                there = await read_sharing(
                    settings.node_name, settings.node_config, settings.config_namespace, settings.flags, self.cluster
                )
                if there is not None:
                    _check(there[0], settings)
            except (BadInput, ApiError) as error:
                if str(error) != refused:
                    log.warning("the configuration is kept: %s", error)
                refused = str(error)
                continue
            refused = ""
            if there is not None and there != self.read:
                log.info("beginning again: the configuration has changed")
                return

    async def learn(self, allocator: VgpuAllocator) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                allocator.learn(await load_device_config(self.settings.config_namespace, self.cluster, self.clock))
        except (BadInput, TimeoutError) as error:
            log.warning("device configuration kept: %s", error or "the API server does not answer")


def _check(sharing: Sharing, settings: Settings) -> None:
    """Raises BadInput where the configuration shares cards in a way for which this process was not started (spec 2.2)."""
    if sharing.mps and settings.mps_root is None:
        raise BadInput(f"operatingmode mps of node {settings.node_name} needs --mps-root, a folder of the host for the pipes and "
                       "the shared memory of MPS")  # fmt: skip
    if sharing.mps and settings.mig_strategy == "mixed":
        raise BadInput(f"operatingmode mps of node {settings.node_name} does not go with --mig-strategy mixed: a slice is "
                       "one container's; use none")  # fmt: skip


def _cut_already(nvml: str) -> list[Slice]:
    """The slices that are there. Raises Unavailable."""
    return _there(nvml, None)[1]


def _there(nvml: str, given: Cards | None) -> tuple[tuple[CardFacts, ...], list[Slice]]:
    """Cards and slices as they are now. Raises Unavailable."""
    driver = NvmlSlices()
    with nullcontext(given) if given is not None else closing(NvmlCards(nvml)) as cards:
        facts = cards.facts()
        return facts, [slice_ for card in facts if card.mig for slice_ in driver.slices(card.uuid)]


def _cdi(settings: Settings, cards: Cards | None) -> KeptFiles | None:
    """The files of CDI devices, where containers are given such."""
    options = settings.response_options
    if not options.cdi:
        return None
    switches = {"gdrcopy": options.gdrcopy, "gds": options.gds, "mofed": options.mofed}
    return KeptFiles(CdiFiles(settings.cdi, partial(_there, settings.nvml, cards), [of for of, on in switches.items() if on]))


def _install(library: Path | None, hook: Path) -> None:
    """Put the library where containers mount it from. Raises BadInput."""
    if library is None:
        return
    try:
        content = library.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read the library {library}: {error.strerror}; was it built (make native)?") from error
    files = install(str(hook), content, digests(hook, NAMES))
    install_files(files)
    for file in files:
        log.info("installed path=%s", file.path)


def _response_options(settings: Settings, log_level: str) -> ResponseOptions:
    root = settings.response_options.dev_root
    present = frozenset(path for path in CONTROL_NODES if Path(root + path).exists())
    return replace(
        settings.response_options,
        hook=str(settings.hook_path),
        lock=str(settings.lock_dir),
        mps_root=str(settings.mps_root or ""),
        log_level=log_level or settings.response_options.log_level,
        present=present,
    )
