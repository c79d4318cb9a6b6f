"""The plugin server of a node: makes the devices of each type known to the kubelet and the schedulers, and hands them out.

What a device type means is its allocator's (``node/protocol.py``). One machine may serve several side by side, in one process or
several: its cards are opened and watched, its plugins begin one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pumice.adapters.bookings.claims import held_by_claims
from pumice.adapters.bookings.foreign import ForeignPrograms
from pumice.adapters.kubelet.checkpoint import allocated_devices, recorded
from pumice.adapters.kubelet.endpoint import Options, device_list
from pumice.apps.node.allocating import AllocateHandler, AnswerLinks, CountedHandler, GivingHandler
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.files import ShareFiles, make_directory
from pumice.apps.node.naming import NamingHandler, unnamed
from pumice.apps.node.pages import PluginHealth, plugin_pages
from pumice.apps.node.performing import Performer
from pumice.apps.node.registration import Registration
from pumice.apps.node.written_node import WrittenNode
from pumice.effects.tasks import first, group, run_until
from pumice.effects.vocabulary import Event, NodeEffect, PatchNode
from pumice.model.errors import BadInput
from pumice.node.device_list import MESSAGE_LIMIT, worst_size
from pumice.node.health import XidRule
from pumice.node.protocol import Allocator
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.wire.objects import Node, NodeInfo
from pumice.wire.times import stamp

log = logging.getLogger("pumice.node")
LAST_WORDS = 2.0
"""Seconds for the last write of a plugin that ends."""


class Plugin:
    """Everything of one device type's plugin that outlives a registration."""

    def __init__(
        self,
        allocator: Allocator,
        own: WrittenNode,
        watch: CardWatch,
        settings: PluginSettings,
        device_type: ServedDevices,
    ) -> None:
        self._allocator, self._own, self._watch, self._settings = allocator, own, watch, settings
        self._folder = settings.device_plugin_dir
        self._clock = own.clock
        self._allocated = partial(allocated_devices, self._folder, allocator.resource)
        self._slicer = device_type.slicer(own, self._allocated) if device_type.slicer else None
        watch.uncut = self._slicer.closed if self._slicer else None
        self._prepare, self._daemons, self._by_name = device_type.prepare, device_type.daemons, device_type.by_name
        self._performer = Performer(allocator, own, self._slicer, watch.soon, device_type.learn, device_type.prepare)
        self._handler: NamingHandler | None = None
        self._resumed = False
        self._unhealthy: dict[str, str] = {}
        self._registrations: dict[str, Registration] = {}

    async def run(self, ready: asyncio.Event) -> None:
        """Advertise and serve until cancelled. Raises BadInput where the kubelet would not take the list of devices."""
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        await asyncio.to_thread(self._restore_directories)
        if self._slicer is not None:
            await self._slicer.start(self._watch.facts)
        await self._watch.look_at_slices()
        self._show()
        await self._resume()
        if self._daemons is not None:
            self._daemons.wanted = lambda: self._allocator.daemons(self._own.pods)
            self._daemons.changed = self._watch.changed.fire
            self._watch.unserved = self._daemons.closed
            await self._daemons.look()
            self._show()
        self._handler = handler = self._answering()
        await handler.begin()
        self._registrations = {resource: self._registration(resource, handler) for resource in self._servable()}
        if not self._registrations:
            log.warning("no cards on this node: nothing to register node=%s", self._own.name)
        await self._announce()
        async with asyncio.TaskGroup() as tasks:
            for registration in self._registrations.values():
                tasks.create_task(registration.keep(self._clock))
            tasks.create_task(handler.keep())
            await self._listening()
            shown = self._watch.unhealthy
            await self._watch.learn_holders()
            if self._watch.unhealthy != shown:
                self._show()
                await self._announce()
            await self._tell_health()
            tasks.create_task(self._watch.run())
            tasks.create_task(self._keep_advertised())
            tasks.create_task(self._follow_health())
            tasks.create_task(self._performer.sweep())
            if self._slicer is not None:
                tasks.create_task(self._slicer.keep())
            if self._daemons is not None:
                tasks.create_task(self._daemons.keep())
            for registration in self._registrations.values():
                await registration.done.wait()
            while self.missing():
                await first(self._own.node_changed.wait(), self._clock.sleep(1.0))
            log.info("ready node=%s resource=%s cards=%d", self._own.name, self._allocator.resource, len(self._watch.facts))
            ready.set()

    async def last_words(self) -> None:
        """Tell what was handed out while the plugin was ending already: whoever comes next goes on with it."""
        if self._resumed and self._own.node is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    for effect in self._record(self._own.node):
                        await self._own.perform_soon(effect, "telling what was handed out")

    def close(self) -> None:
        if self._slicer is not None:
            self._slicer.close()

    def missing(self) -> list[str]:
        """The resources that the kubelet does not have, else the node object where it does not say what it should."""
        if waiting := [resource for resource, registration in self._registrations.items() if not registration.done.is_set()]:
            return waiting
        return ["the node object"] if self._own.node is None or self._lacking(self._own.node) else []

    def _lacking(self, node: Node) -> list[NodeEffect]:
        """Return what the node object does not say of the cards as they are now: telling of the last illness may still take a
        while."""
        self._show()
        return self._allocator.missing(node)

    def _restore_directories(self) -> None:
        """Make the directories that cached answers of the kubelet mount. Where one cannot be made, its pod has trouble and not
        the node."""
        for directory in self._allocator.directories(self._own.pods):
            try:
                make_directory(directory)
            except BadInput as error:
                log.error("%s", error)

    def _show(self) -> None:
        self._allocator.show(self._watch.facts, self._watch.unhealthy)

    async def _resume(self) -> None:
        """Go on with the books of the process before."""
        node = self._own.node
        published = node.metadata.annotations.get(self._allocator.record_annotation, "") if node is not None else ""
        allocated = await asyncio.to_thread(self._allocated)
        self._allocator.resume(published, self._own.pods, allocated)
        self._resumed = True

    def _servable(self) -> Iterator[str]:
        """The resources to register: one without devices is not registered at all (HAMi volcano-vgpu-device-plugin
        pkg/plugin/vgpu/plugin.go), and too long
        a list the kubelet would drop (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/plugin.go)."""
        for resource in (self._allocator.resource, *self._allocator.counted, *self._allocator.given):
            units = self._allocator.units(resource)
            if (size := worst_size(units)) > MESSAGE_LIMIT:
                advice = self._allocator.shorter(resource, units)
                text = f"the list of {resource} may take {size} bytes and the kubelet takes {MESSAGE_LIMIT}; {advice}"
                if resource == self._allocator.resource:
                    raise BadInput(text)
                log.error("not served: %s", text)
            elif units:
                yield resource

    def _answering(self) -> NamingHandler:
        """Return who answers the kubelet, in the way that this node's runtime allows."""
        settings, record = self._settings, partial(recorded, self._folder, self._allocator.resource)
        info = self._own.node.status.node_info if self._own.node is not None else NodeInfo()
        why = unnamed(settings, info) if self._by_name else "its cards have names of CDI devices themselves"
        if why:
            log.info("answers name no CDI device of their own: %s", why)
        files = ShareFiles(settings.cdi_folder, self._allocator.resource)
        links = AnswerLinks(self._allocator.links, files.first)
        guessing = AllocateHandler(self._performer, record, links)
        return NamingHandler(self._performer, record, files, links, guessing, named=not why)

    def _registration(self, resource: str, answering: NamingHandler) -> Registration:
        allocates = resource == self._allocator.resource
        options = Options(preferred=allocates and self._allocator.prefers, pre_start=allocates)
        given = resource in self._allocator.given
        giving = GivingHandler(self._allocator, resource, self._prepare) if given else CountedHandler()
        handler = answering if allocates else giving
        transport = self._settings.transport
        endpoint = transport.endpoint(self._folder, self._allocator.socket(resource), handler, options)
        registration = Registration(endpoint, resource, self._folder / "kubelet.sock", options, transport=transport)
        if allocates:
            registration.on_return = self._allocator.kubelet_restarted
        return registration

    async def _listening(self) -> None:
        """Wait until our sockets answer: from then on `pumice run` leaves the cards to us."""
        while not all(registration.endpoint.path.exists() for registration in self._registrations.values()):
            await self._clock.sleep(0.05)

    async def _announce(self) -> None:
        for resource, registration in self._registrations.items():
            units = self._allocator.units(resource)
            await registration.endpoint.announce(device_list([(unit.id, unit.healthy, unit.numa) for unit in units]))

    async def _follow_health(self) -> None:
        changed = self._watch.changed.wait()
        while True:
            await changed
            changed = self._watch.changed.wait()  # now: telling of one illness takes a while, and the next may come meanwhile
            self._show()
            await self._announce()
            self._own.node_changed.fire()
            await self._tell_health()

    async def _tell_health(self) -> None:
        """Events on the node for what has changed since the last time."""
        name, unhealthy = self._own.name, dict(self._allocator.closed())
        for uuid in unhealthy.keys() - self._unhealthy.keys():
            await self._own.perform(Event.on_node(name, "Warning", "CardUnhealthy", f"card {uuid}: {unhealthy[uuid]}"))
        for uuid in self._unhealthy.keys() - unhealthy.keys():
            await self._own.perform(Event.on_node(name, "Normal", "CardRecovered", f"card {uuid}"))
        self._unhealthy = unhealthy

    async def _keep_advertised(self) -> None:
        """Keep the node object saying what it should."""
        while True:
            changed, pause = self._own.node_changed.wait(), 10.0
            for effect in self._due(self._own.node) if self._own.node is not None else ():
                if not await self._own.perform_soon(effect, f"advertising {self._allocator.resource}"):
                    pause = 5.0
            if pause < 10.0:
                await self._clock.sleep(pause)
            else:
                await first(changed, self._clock.sleep(pause))

    def _record(self, node: Node) -> list[NodeEffect]:
        record_annotation, text = self._allocator.record_annotation, self._allocator.published()
        return (
            [PatchNode({record_annotation: text or None})]
            if node.metadata.annotations.get(record_annotation, "") != text
            else []
        )

    def _due(self, node: Node) -> list[NodeEffect]:
        """All that is to be written on the node object now. What was handed out is told to schedulers there, because a pod's
        owner may change what stands on the pod."""
        effects = self._lacking(node) + self._record(node)
        serving = self._handler is not None and self._handler.serving
        if serving or any(pod.awaits(self._allocator.resource) for pod in self._own.pods):
            self._performer.lock.busy()
        effects += self._performer.lock.left(node)
        return effects + self._allocator.upkeep(node, self._clock.monotonic(), stamp(self._clock.now()))


async def run_plugins(
    settings: PluginSettings,
    *device_types: ServedDevices,
    cluster: Cluster,
    clock: Clock,
    rng: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
) -> None:
    """Serve every device type until ``stop``. ``ready`` is set once the kubelet and the node object know all their devices.

    Raises PumiceError on what a person has to mend.
    """
    def written(name: str) -> WrittenNode:
        return WrittenNode(cluster, settings.node_name, clock=clock, rng=rng, component=name)

    served = [Served(device_type, settings, written(device_type.name)) for device_type in device_types]

    async def tell_ready() -> None:
        for one in served:
            await one.known.wait()
        if ready is not None:
            ready.set()

    async with plugin_pages(settings.health_address, settings.health_port, *(one.page for one in served)), group() as tasks:
        telling = tasks.create_task(tell_ready())
        # None is cancelled at `stop`: what a plugin takes back then has to be awaited.
        await asyncio.wait([tasks.create_task(one.run(stop)) for one in served])
        telling.cancel()


@dataclass(slots=True)
class Served:
    """One device type, and what outlives its plugins."""

    device_type: ServedDevices
    settings: PluginSettings
    own: WrittenNode
    page: PluginHealth = field(default_factory=PluginHealth)
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the kubelet and the node object know its devices."""

    async def run(self, stop: asyncio.Event) -> None:
        device_type, settings, clock = self.device_type, self.settings, self.own.clock
        cards = device_type.cards or await open_cards(device_type.open, settings.wait_for_driver, clock, stop)
        if cards is None:
            return
        rule = XidRule.parse(settings.disable_health_checks, settings.enable_health_checks)
        foreign = ForeignPrograms(settings.booking_dirs, others=held_by_claims)
        watch = CardWatch(cards, clock, rule, every=settings.health_every, foreign=foreign,
                          patience=settings.driver_patience)  # fmt: skip
        try:
            await run_until(stop, *self.own.tasks(), self._keep(watch, cards))
            if settings.cleanup:
                await self._leave()
        finally:
            if device_type.daemons is not None:
                await device_type.daemons.leave()
            watch.close(cards.close if device_type.cards is None else None)

    async def _keep(self, watch: CardWatch, cards: Cards) -> None:
        """One plugin after the other, each by the configuration of its time: what follows is what a new process would do."""
        device_type = self.device_type
        await watch.start()
        if device_type.metrics is not None:
            self.page.metrics = partial(device_type.metrics, cards, self.own)
        while True:
            plugin = Plugin(await device_type.allocator(), self.own, watch, self.settings, device_type)
            self.page.watch, self.page.missing = watch, plugin.missing
            try:
                if device_type.outdated is None:
                    await plugin.run(self.known)
                else:
                    await first(plugin.run(self.known), device_type.outdated())
            finally:
                try:
                    await plugin.last_words()
                finally:
                    plugin.close()

    async def _leave(self) -> None:
        allocator = await self.device_type.allocator()
        for effect in allocator.leaving(self.own.node) if self.own.node is not None else ():
            await self.own.perform_soon(effect, f"taking back what the node says of {allocator.resource}")
