"""The NVIDIA device plugin of one node: registers cards with the kubelet and the scheduler, and hands them out.

Spec nvidia-device-plugin. The order at start matters: library and directories first, registration last (spec 6).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pumice.adapters.bookings.foreign import SHARED, ForeignPrograms
from pumice.adapters.kubelet.checkpoint import holders
from pumice.adapters.kubelet.endpoint import Endpoint, Options, device_list
from pumice.apps.node.allocating import EmptyHandler, NumberHandler
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.configuration import load_sharing
from pumice.apps.node.files import digests, install_files, make_directory
from pumice.apps.node.plugin_pages import PluginHealth, plugin_pages
from pumice.apps.node.registration import Registration
from pumice.apps.service.own_node import OwnNode
from pumice.apps.service.tasks import first, run_until
from pumice.model.errors import BadInput
from pumice.node.effects import Effect, MakeDirectory, PatchNode, Tell
from pumice.node.health import XidRule
from pumice.node.vgpu.advertise import Advertisement, Handshake, register_annotation, topology_annotation
from pumice.node.vgpu.allocator import Allocator
from pumice.node.vgpu.answer import CONTROL_NODES, ResponseOptions
from pumice.node.vgpu.inventory import (
    MESSAGE_LIMIT,
    SharedCard,
    Unit,
    capacity,
    core_list,
    memory_list,
    share,
    share_list,
    worst_size,
)
from pumice.node.vgpu.library import install
from pumice.node.vgpu.sharing import Flags, Sharing, needed_factor
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.wire import names
from pumice.wire.objects import Node

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line or ``pumice up`` says. Paths are the host's.

    ``advertise``: ``status`` keeps memory and cores in the node's status, ``devices`` lists one device per unit as
    upstream does (decision 17). ``library``: the ``libvgpu.so`` to install into ``hook_path``; None installs nothing.
    ``nvml``: file or directory of the NVML library, empty for the system's. ``config_namespace`` is searched first.
    ``health_address``: where /healthz and /readyz are served; empty for nowhere. ``booking_dirs``: where `pumice run` books.
    """

    node_name: str
    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    hook_path: Path = Path("/usr/local/vgpu")
    lock_dir: Path = Path("/tmp/vgpulock")
    library: Path | None = None
    nvml: str = ""
    advertise: str = "status"
    handshake: str = "auto"
    config_namespace: str = ""
    node_config: Path = Path("/config/config.json")
    flags: Flags = field(default_factory=Flags)
    response_options: ResponseOptions = field(default_factory=ResponseOptions)
    wait_for_driver: bool = False
    disable_health_checks: str = ""
    enable_health_checks: str = ""
    health_every: float = 1.0
    health_address: str = ""
    health_port: int = 0
    booking_dirs: tuple[Path, ...] = SHARED


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
    health = PluginHealth()
    async with plugin_pages(settings.health_address, settings.health_port, health):
        machine = cards or await open_cards(settings.nvml, settings.wait_for_driver, clock, stop)
        if machine is None:
            return
        rule = XidRule.parse(settings.disable_health_checks, settings.enable_health_checks)
        watch = CardWatch(machine, clock, rule, every=settings.health_every, foreign=ForeignPrograms(settings.booking_dirs))
        own = OwnNode(cluster, settings.node_name, clock=clock, dice=dice, component="pumice-device-plugin")
        try:
            await watch.start()
            sharing, level = await load_sharing(
                settings.node_name, settings.node_config, settings.config_namespace, settings.flags, cluster, clock
            )
            plugin = Plugin(settings, sharing, level, own, watch, dice)
            await asyncio.to_thread(plugin.install)
            health.watch, health.missing = watch, plugin.missing
            await run_until(stop, *own.tasks(), plugin.run(ready))
        finally:
            watch.close()
            if cards is None:
                machine.close()


class Plugin:
    """Everything of one node's plugin that outlives a registration."""

    def __init__(
        self, settings: Settings, sharing: Sharing, log_level: str, own: OwnNode, watch: CardWatch, dice: random.Random
    ) -> None:
        self._settings, self._sharing, self._own, self._watch = settings, sharing, own, watch
        self._clock = own.clock
        self._handshake = Handshake(settings.handshake)
        self._allocator = Allocator(settings.node_name, sharing, _response_options(settings, log_level), dice)
        self._held = partial(holders, settings.device_plugin_dir, sharing.number)
        self._handler = NumberHandler(self._allocator, own, self._held)
        self._sick: dict[str, str] = {}
        self._lists: dict[str, Registration] = {}

    def install(self) -> None:
        """Put the library where containers mount it from. Raises BadInput."""
        library, hook = self._settings.library, self._settings.hook_path
        if library is None:
            return
        try:
            content = library.read_bytes()
        except OSError as error:
            raise BadInput(f"cannot read the library {library}: {error.strerror}; was it built (make native)?") from error
        files = install(str(hook), content, digests(hook))
        install_files(files)
        for file in files:
            log.info("installed path=%s", file.path)

    async def run(self, ready: asyncio.Event | None) -> None:
        """Advertise and serve until cancelled."""
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        await asyncio.to_thread(self._restore_directories)
        cards = self._show()
        await self._resume()
        self._lists = self._endpoints(cards)
        await self._announce(cards)
        async with asyncio.TaskGroup() as tasks:
            for registration in self._lists.values():
                tasks.create_task(registration.keep(self._clock))
            await self._listening()
            await self._watch.settle()
            cards = self._show()
            await self._announce(cards)
            await self._tell_health(cards)
            tasks.create_task(self._watch.run())
            tasks.create_task(self._keep_advertised())
            tasks.create_task(self._follow_health())
            tasks.create_task(self._handler.sweep())
            for registration in self._lists.values():
                await registration.done.wait()
            while self._advertisement().missing(self._own.node) if self._own.node else True:
                await first(self._own.node_changed.wait(), self._clock.sleep(1.0))
            log.info("ready node=%s cards=%d", self._settings.node_name, len(cards))
            if ready is not None:
                ready.set()

    async def _resume(self) -> None:
        """Go on with the books of the process before."""
        node = self._own.node
        published = node.metadata.annotations.get(names.HANDED_OUT, "") if node is not None else ""
        held = await asyncio.to_thread(self._held)
        self._allocator.resume(published, self._own.pods, held)

    async def _listening(self) -> None:
        """Wait until our sockets answer: from then on `pumice run` leaves the cards to us."""
        while not all(registration.endpoint.path.exists() for registration in self._lists.values()):
            await self._clock.sleep(0.05)

    def missing(self) -> list[str]:
        """The resources that the kubelet does not have, else the node object where it does not say what it should."""
        if waiting := [resource for resource, registration in self._lists.items() if not registration.done.is_set()]:
            return waiting
        return ["the node object"] if self._own.node is None or self._advertisement().missing(self._own.node) else []

    def _show(self) -> tuple[SharedCard, ...]:
        cards = share(self._watch.facts, self._sharing, self._watch.sick)
        self._allocator.show(cards)
        return cards

    def _endpoints(self, cards: tuple[SharedCard, ...]) -> dict[str, Registration]:
        """The resources to register. A resource without devices is not registered at all (spec 5)."""
        if not cards:
            log.warning("no cards on this node: nothing to register node=%s", self._settings.node_name)
            return {}
        number, memory, cores = self._sharing.number, self._sharing.memory, self._sharing.cores
        options = Options(preferred=True)
        lists = {number: self._registration(number, self._handler, options)}
        lists[number].on_return = self._allocator.kubelet_restarted
        if self._settings.advertise == "devices":
            lists[cores] = self._registration(cores, EmptyHandler(), Options())
            if self._short_enough(memory_list(cards)):
                lists[memory] = self._registration(memory, EmptyHandler(), Options())
        return lists

    def _registration(self, resource: str, handler: NumberHandler | EmptyHandler, options: Options) -> Registration:
        folder = self._settings.device_plugin_dir
        endpoint = Endpoint(folder, f"nvidia-{resource.rpartition('/')[2]}.sock", handler, options)
        return Registration(endpoint, resource, folder / "kubelet.sock", options)

    def _short_enough(self, units: list[Unit]) -> bool:
        size = worst_size(units)
        if size <= MESSAGE_LIMIT:
            return True
        factor = needed_factor(len(units), self._sharing.factor)
        log.error(
            "not serving %s: its list may take %d bytes and the kubelet takes %d; set gpuMemoryFactor to at least %d, "
            "or --advertise=status", self._sharing.memory, size, MESSAGE_LIMIT, factor,
        )  # fmt: skip
        return False

    async def _announce(self, cards: tuple[SharedCard, ...]) -> None:
        makers = {
            self._sharing.number: share_list,
            self._sharing.memory: memory_list,
            self._sharing.cores: core_list,
        }
        for resource, registration in self._lists.items():
            units = makers[resource](cards)
            await registration.endpoint.announce(device_list([(unit.id, unit.healthy) for unit in units]))

    async def _follow_health(self) -> None:
        changed = self._watch.changed.wait()
        while True:
            await changed
            changed = self._watch.changed.wait()  # now: telling of one illness takes a while, and the next may come meanwhile
            cards = self._show()
            await self._announce(cards)
            self._own.node_changed.fire()
            await self._tell_health(cards)

    async def _tell_health(self, cards: Sequence[SharedCard]) -> None:
        """Events on the node for what has changed since the last time."""
        name, sick = self._settings.node_name, {card.uuid: card.closed for card in cards if card.closed}
        for uuid in sick.keys() - self._sick.keys():
            await self._own.perform(Tell("Node", "", name, name, "CardUnhealthy", f"card {uuid}: {sick[uuid]}"))
        for uuid in self._sick.keys() - sick.keys():
            await self._own.perform(Tell("Node", "", name, name, "CardRecovered", f"card {uuid}", warning=False))
        self._sick = sick

    def _advertisement(self) -> Advertisement:
        cards = share(self._watch.facts, self._sharing, self._watch.sick)
        register = register_annotation(cards)
        present = self._own.node is not None and names.NODE_VGPU_REGISTER in self._own.node.metadata.annotations
        kept = capacity(cards, self._sharing) if cards and self._settings.advertise == "status" else {}
        notes = {names.NODE_VGPU_REGISTER: register} if register or present else {}
        if topology := topology_annotation(cards):
            notes[names.CARD_TOPOLOGY] = topology
        return Advertisement(notes, kept)

    async def _keep_advertised(self) -> None:
        """Keep the node object saying what it should, and answer older schedulers."""
        while True:
            changed, pause = self._own.node_changed.wait(), 10.0
            if self._own.node is not None:
                effects = [*self._advertisement().missing(self._own.node), *self._handed_out(self._own.node)]
                stamp = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                asked = self._own.node.metadata.annotations.get(names.NODE_VGPU_HANDSHAKE)
                answer = self._handshake.answer(asked, self._clock.monotonic(), stamp)
                for effect in [*effects, answer] if answer else effects:
                    if not await self._own.perform_soon(effect, "advertising the cards"):
                        pause = 5.0
            if pause < 10.0:
                await self._clock.sleep(pause)
            else:
                await first(changed, self._clock.sleep(pause))

    def _handed_out(self, node: Node) -> list[Effect]:
        """Tell schedulers what was handed out: a pod's owner may change what stands on the pod."""
        said, text = node.metadata.annotations.get(names.HANDED_OUT, ""), self._allocator.record.text()
        return [PatchNode({names.HANDED_OUT: text or None})] if said != text else []

    def _restore_directories(self) -> None:
        """Make again what cached answers of the kubelet mount: /tmp and /run may be empty after a boot (spec 12.2)."""
        response_options = _response_options(self._settings, "")
        make_directory(MakeDirectory(response_options.lock))
        for pod in self._own.pods:
            if pod.finished or pod.annotations.get(names.VGPU_NODE) != self._settings.node_name:
                continue
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                if container.asks(self._sharing.number):
                    make_directory(MakeDirectory(response_options.directory(pod.uid, container.name)))


def _response_options(settings: Settings, log_level: str) -> ResponseOptions:
    root = settings.response_options.dev_root
    present = frozenset(path for path in CONTROL_NODES if Path(root + path).exists())
    return replace(
        settings.response_options,
        hook=str(settings.hook_path),
        lock=str(settings.lock_dir),
        log_level=log_level or settings.response_options.log_level,
        present=present,
    )
