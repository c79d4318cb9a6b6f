"""Every device type of a node served side by side: its cards opened and watched, its plugins one after the other, and left."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial

from pumice.adapters.bookings.claims import held_by_claims
from pumice.adapters.bookings.foreign import ForeignPrograms
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.pages import PluginHealth, plugin_pages
from pumice.apps.node.plugin import Plugin
from pumice.apps.node.written_node import WrittenNode
from pumice.effects.tasks import first, group, run_until
from pumice.node.health import XidRule
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster


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

    async with plugin_pages(settings.health_address, settings.health_port, *(one.page for one in served)), group() as beside:
        telling = beside.create_task(tell_ready())
        async with group() as plugins:  # nobody cancels them at `stop`: what they take back and end then has to be awaited
            for one in served:
                plugins.create_task(one.run(stop))
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
