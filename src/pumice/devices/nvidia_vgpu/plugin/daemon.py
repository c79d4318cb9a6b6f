"""The plugin of one node's vGPUs (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu). The order at start matters: library and
directories first,
registration last (Volcano pkg/scheduler/api/devices/nvidia/vgpu)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from pumice.adapters.bookings.claims import held_by_claims, slice_owners
from pumice.adapters.journal import FileJournal
from pumice.adapters.mps import MpsPrograms
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.apps.node.allocating import PATIENCE
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.files import digests, install_files
from pumice.apps.node.performing import Slicer, in_turn
from pumice.apps.node.plugin import run_plugins
from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.device_config import load_device_config, read_device_config, spaces
from pumice.apps.service.worker import once
from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator
from pumice.devices.nvidia_vgpu.node.answer import CONTROL_NODES, NAMES, ResponseOptions, install
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter, Given, Holds, StaticSlices, foreign, of_claim
from pumice.devices.nvidia_vgpu.node.sharing import Flags, Sharing, effective
from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiFiles, CdiPlaces, KeptFiles
from pumice.effects.tasks import first
from pumice.effects.vocabulary import EndPod, Event
from pumice.model.errors import BadInput, Unavailable
from pumice.node.pods import AllocatedIds
from pumice.node.protocol import Conflict, Partition, Serve
from pumice.node.slices import known
from pumice.ports.cards import CardFacts, Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.mps import PROGRAM
from pumice.ports.slices import Journal, Slice, Slices
from pumice.wire import names
from pumice.wire.document import safe_load_all
from pumice.wire.kinds import CONFIGMAPS
from pumice.wire.node_config import NodeConfig, NodeEntry, parse_node_config
from pumice.wire.objects import Meta

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """Paths are the host's.

    ``advertise`` and ``handshake``: see VgpuAllocator. ``mig_strategy``: ``none`` cuts cards on demand, ``mixed`` hands out what
    somebody has cut (Volcano pkg/scheduler/api/devices/nvidia/vgpu). ``mps_root``: the folder of the control daemons of MPS,
    where they are to be kept, and
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
    rng: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    cards: Cards | None = None,
    slices: Slices | None = None,
) -> None:
    """Serve until ``stop``. ``ready`` is set once the kubelet and the node object know the cards.

    ``cards`` and ``slices`` are this machine's (NVML unless given). Raises PumiceError on what a person has to mend.
    """
    device_type = vgpu(settings, cluster=cluster, clock=clock, rng=rng, cards=cards, slices=slices)
    await run_plugins(settings, device_type, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)


def vgpu(
    settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, cards: Cards | None = None,
    slices: Slices | None = None,
) -> ServedDevices:  # fmt: skip
    """vGPUs as the plugin server takes them."""
    devices = _cdi(settings, cards)
    kept = Configured(settings, cluster, clock, rng, devices)
    daemons = ControlDaemons(MpsPrograms(settings.mps_root, settings.mps_program), clock) if settings.mps_root else None
    prepare = in_turn(*(part.prepare for part in (devices, daemons) if part is not None))
    device_type = ServedDevices("pumice-device-plugin", kept.allocator, partial(NvmlCards, settings.nvml), cards,
                                outdated=kept.outdated, prepare=prepare, daemons=daemons,
                                by_name=not settings.response_options.cdi)  # fmt: skip
    if settings.mig_strategy == "mixed":
        return device_type
    cutter = Cutter(slices or NvmlSlices(), _journal(settings))
    return replace(device_type, learn=kept.learn,
                   slicer=partial(Slicing, cutter, partial(slice_owners, settings.booking_dirs)))


@dataclass(slots=True)
class Configured:
    """An allocator by the configuration as it stands, and whether it stands so still. ``devices``: the files of CDI devices."""

    settings: Settings
    cluster: Cluster
    clock: Clock
    rng: random.Random
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
            static = StaticSlices(await once("nvml", partial(_cut_already, settings.nvml, _journal(settings))))
        return VgpuAllocator(settings.node_name, sharing, options, self.rng,
                             advertise=settings.advertise, percentage=settings.advertise_percentage,
                             handshake=settings.handshake, static=static,
                             claimed=partial(held_by_claims, settings.booking_dirs))  # fmt: skip

    async def outdated(self) -> None:
        """Returns when the plugin has to begin again: asked to by a signal, or by another configuration that can be meant."""
        settings, refused = self.settings, ""
        while True:
            requested = settings.hangup or asyncio.Event()
            if await first(self.clock.sleep(settings.reload_every), requested.wait()) == 1:
                requested.clear()
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
    """Raises BadInput where the configuration shares cards in a way for which this process was not started (Volcano
    pkg/scheduler/api/devices/config)."""
    if sharing.mps and settings.mps_root is None:
        raise BadInput(f"operatingmode mps of node {settings.node_name} needs --mps-root, a folder of the host for the pipes and "
                       "the shared memory of MPS")  # fmt: skip
    if sharing.mps and settings.mig_strategy == "mixed":
        raise BadInput(f"operatingmode mps of node {settings.node_name} does not go with --mig-strategy mixed: a slice is "
                       "one container's; use none")  # fmt: skip


def _journal(settings: Settings) -> FileJournal:
    return FileJournal(settings.hook_path / "vgpu" / "mig.json")


def _cut_already(nvml: str, journal: Journal) -> list[Slice]:
    """The slices that are there, but for those that the driver of claims has made. Raises Unavailable."""
    return foreign(_there(nvml, None)[1], known(entry for entry in journal.read() if of_claim(entry)))


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


# -- Has cards cut for pods, off the loop -----------------------------------------------------------------------------

# The driver is slow, and only the pod that waits for it shall wait.

GONE = "SliceGone"
"""The Event of a pod that is failed because what its containers were given names nothing any more."""


class Slicing(Slicer):
    """MIG slices: cards are cut when a pod needs it, and slices lie until they are in the way."""

    def __init__(
        self, cutter: Cutter, claimed: Callable[[], Mapping[str, str]], own: WrittenNode,
        allocated: Callable[[], AllocatedIds | None],
    ) -> None:  # fmt: skip
        """``claimed``: the claims that hold slices, by their names in the journal."""
        super().__init__(own, allocated, "slices")
        self._cutter, self._claimed = cutter, claimed

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        return self._cutter.closed(cards)

    async def start(self, cards: Iterable[CardFacts]) -> None:
        """Put right what a crash or a boot has left, and fail the pods that lost their slices by it."""
        await self._ask()
        claimed = self._claimed()
        try:
            lost = await self._call(lambda: self._cutter.start([card.uuid for card in cards if card.mig], self._holds()))
        except Unavailable as error:
            log.error("slices are left as they are: %s", error)
            return
        pods = {pod.uid: pod.metadata for pod in self._own.pods}
        for one in (one for one in lost if one.owner not in claimed):
            what = f"it was given {one.was}, and that slice ({one.place} of card {one.place.card}) is not there any more"
            message = f"{what}; what lies there now is {one.now}" if one.now else what
            log.warning("failing pod=%s: %s", self._owners.holds(one.owner), message)
            if (meta := pods.get(one.owner)) is not None:
                await self._fail(meta, message)

    async def partition(self, wanted: Partition) -> Serve | Conflict:
        await self._ask()
        try:
            given = await self._call(lambda: self._cutter.cut(wanted.places, wanted.pod.uid, self._holds()))
        except Unavailable as error:
            given = str(error)
        if isinstance(given, str):
            return Conflict(wanted.pod, given, self._owners.vanishing)
        if given.made or given.removed:
            await self._own.perform(self._reported(wanted, given))
        return wanted.then(given.slices)

    def _holds(self) -> Holds:
        """Return who still holds slices: a pod, or a claim by the book of its driver, which cuts the same cards."""
        claimed = self._claimed()
        return lambda uid: claimed.get(uid) or self._owners.holds(uid)

    async def _fail(self, pod: Meta, message: str) -> None:
        try:
            await self._own.perform(EndPod.of(pod, names.SLICE_GONE, message))
        except ApiError as error:
            log.warning("pod %s/%s could not be failed, and is tried again at the next start: %s", pod.namespace, pod.name, error)
            return
        await self._own.perform(Event.on_pod(pod, "Warning", GONE, message))

    def _reported(self, wanted: Partition, given: Given) -> Event:
        made, removed = (", ".join(str(place) for place in places) for places in (given.made, given.removed))
        text = "; ".join(part for part in (made and f"cut {made}", removed and f"removed {removed}") if part)
        card = ", ".join(dict.fromkeys(place.card for place in wanted.places))
        log.info("card %s for pod=%s: %s", card, wanted.pod.key, text)
        return Event.on_node(self._own.name, "Normal", "MIGRecut", f"card {card} for pod {wanted.pod.key}: {text}")


# -- How the plugin shares the cards of its node ----------------------------------------------------------------------

# The device and node ConfigMaps, read now and again.

async def load_sharing(
    node: str, file: Path, namespace: str, flags: Flags, cluster: Cluster, clock: Clock
) -> tuple[Sharing, str]:
    """The values in force on ``node`` and the library's log level. ``file`` is the node ConfigMap's, where mounted.

    Raises BadInput when a document cannot be meant.
    """
    document = _node_config(file)
    for warning in document.warnings:
        log.warning("%s: %s", file, warning)
    entries = document.of(node)
    await _provide(namespace, cluster)
    sharing = effective(await load_device_config(namespace, cluster, clock), entries, flags)
    log.info(
        "sharing mode=%s shares=%d factor=%d memory_scaling=%s core_scaling=%s",
        sharing.mode, sharing.split, sharing.factor, float(sharing.memory_scaling), float(sharing.core_scaling),
    )  # fmt: skip
    return sharing, _log_level(entries)


async def read_sharing(
    node: str, file: Path, namespace: str, flags: Flags, cluster: Cluster
) -> tuple[Sharing, str] | None:
    """The same as it stands there now, without a word; None where there is no device ConfigMap. Raises BadInput and ApiError."""
    entries = _node_config(file).of(node)
    found = await read_device_config(namespace, cluster)
    return None if found is None else (effective(found.nvidia, entries, flags), _log_level(entries))


def _node_config(file: Path) -> NodeConfig:
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            return parse_node_config(file.read_bytes())
        except BadInput as error:
            raise BadInput(f"{file}: {error}") from error
    return NodeConfig()


def _log_level(entries: Sequence[NodeEntry]) -> str:
    return next((entry.log_level for entry in reversed(entries) if entry.log_level), "")


async def _provide(namespace: str, cluster: Cluster) -> None:
    """Make the device ConfigMap of our manifests where there is none, for people to change. What is there is theirs."""
    for space in spaces(namespace):
        try:
            await cluster.get(CONFIGMAPS, names.DEVICE_CONFIGMAP, space)
            return
        except ApiError as error:
            if error.code != 404:
                return  # whoever loads it says so
    wanted = spaces(namespace)[0]
    try:
        await cluster.create(CONFIGMAPS, _shipped(wanted), wanted)
        log.info("made ConfigMap %s/%s with the defaults", wanted, names.DEVICE_CONFIGMAP)
    except ApiError as error:
        if error.code != 409:  # another node's plugin was faster
            log.warning("ConfigMap %s/%s could not be made: %s", wanted, names.DEVICE_CONFIGMAP, error)


def _shipped(namespace: str) -> dict[str, Any]:
    text = (files("pumice") / "manifests" / "volcano-vgpu-device-plugin.yml").read_text("utf-8")
    found: dict[str, Any] = next(
        obj for obj in safe_load_all(text) if (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", names.DEVICE_CONFIGMAP)
    )
    return {**found, "metadata": {"name": names.DEVICE_CONFIGMAP, "namespace": namespace}}
