"""The legacy device plugin of one node: shares cards by memory, or hands out whole ones, without limits."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pumice.adapters.bookings.foreign import SHARED, ForeignPrograms
from pumice.adapters.kubelet.checkpoint import holders
from pumice.adapters.kubelet.endpoint import Endpoint, Options, PluginError, device_list
from pumice.apps.node.allocating import PATIENCE, message
from pumice.apps.node.card_watch import CardWatch, open_cards
from pumice.apps.node.plugin_pages import PluginHealth, plugin_pages
from pumice.apps.node.registration import Registration
from pumice.apps.service.own_node import OwnNode, persist
from pumice.apps.service.tasks import first, run_until
from pumice.model.errors import BadInput
from pumice.node.effects import PatchNode
from pumice.node.gpushare.allocator import Legacy, ShareAllocator, Shared, Unshared
from pumice.node.health import XidRule
from pumice.node.vgpu.inventory import MESSAGE_LIMIT, worst_size
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import names

log = logging.getLogger("pumice.node")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line or ``pumice up`` says. ``nvml``: file or directory of the NVML library; ``health_address``: where
    /healthz and /readyz are served, empty for nowhere."""

    node_name: str
    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    legacy: Legacy = field(default_factory=Legacy)
    nvml: str = ""
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
    """Serve until ``stop``. ``ready`` is set once the kubelet and the node's status know the cards."""
    health = PluginHealth()
    async with plugin_pages(settings.health_address, settings.health_port, health):
        machine = cards or await open_cards(settings.nvml, settings.wait_for_driver, clock, stop)
        if machine is None:
            return
        rule = XidRule.parse(settings.disable_health_checks, settings.enable_health_checks)
        watch = CardWatch(machine, clock, rule, every=settings.health_every, foreign=ForeignPrograms(settings.booking_dirs))
        own = OwnNode(cluster, settings.node_name, clock=clock, dice=dice, component="pumice-gpushare-plugin")
        plugin = SharePlugin(settings, own, watch)
        try:
            await watch.start()
            health.watch, health.missing = watch, plugin.missing
            await run_until(stop, *own.tasks(), plugin.run(ready))
        finally:
            watch.close()
            if cards is None:
                machine.close()


class SharePlugin:
    """One node's legacy plugin; also the handler of its endpoint."""

    def __init__(self, settings: Settings, own: OwnNode, watch: CardWatch) -> None:
        self._legacy, self._own, self._watch = settings.legacy, own, watch
        self._allocator = ShareAllocator(settings.node_name, settings.legacy)
        self._one_at_a_time = asyncio.Lock()
        self._folder = folder = settings.device_plugin_dir
        endpoint = Endpoint(folder, "volcano.sock", self)
        self._registration = Registration(endpoint, settings.legacy.resource, folder / "kubelet.sock", Options())
        self._registration.on_return = self._allocator.kubelet_restarted

    async def run(self, ready: asyncio.Event | None) -> None:
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        self._check_length()
        await self._show()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            tasks.create_task(self._keep_status())
            tasks.create_task(self._follow_health())
            tasks.create_task(self._prune())
            if self._watch.facts:  # a plugin without devices is not registered
                tasks.create_task(self._registration.keep(self._own.clock))
                await self._registration.done.wait()
            while self.missing():
                await first(self._own.node_changed.wait(), self._own.clock.sleep(1.0))
            log.info("ready cards=%d strategy=%s", len(self._watch.facts), self._legacy.strategy)
            if ready is not None:
                ready.set()

    def missing(self) -> list[str]:
        """The resource, where there are cards and the kubelet does not have it; else the node's status, where it lacks them."""
        if self._watch.facts and not self._registration.done.is_set():
            return [self._legacy.resource]
        return ["the node's status"] if self._own.node is None or self._status() is not None else []

    def _check_length(self) -> None:
        """Raises BadInput when the kubelet would drop the list: it would then see no card at all (spec 5.1)."""
        size = worst_size(self._legacy.units(self._watch.facts, {}))
        if size > MESSAGE_LIMIT:
            factor = -(-self._legacy.factor * size // MESSAGE_LIMIT)
            raise BadInput(
                f"the list of {self._legacy.resource} may take {size} bytes and the kubelet takes {MESSAGE_LIMIT}; "
                f"set --gpu-memory-factor to at least {factor}"
            )

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return []

    async def allocate(self, ids: Sequence[str]) -> Any:
        async with self._one_at_a_time:
            decision = await self._decide(len(ids))
            try:
                return await self._perform(decision, len(ids))
            finally:
                await self._release_lock()

    async def _decide(self, count: int) -> Shared | Unshared | None:
        held = await asyncio.to_thread(holders, self._folder, self._legacy.resource)
        decision = self._allocator.allocate(self._own.pods, count, held)
        if decision is None:
            with suppress(ApiError):
                await self._own.relist()
                decision = self._allocator.allocate(self._own.pods, count, held)
        deadline = self._own.clock.monotonic() + PATIENCE
        while decision is None and (left := deadline - self._own.clock.monotonic()) > 0:
            await first(self._own.pods_changed.wait(), self._own.clock.sleep(left))
            decision = self._allocator.allocate(self._own.pods, count, held)
        return decision

    async def _perform(self, decision: Shared | Unshared | None, count: int) -> Any:
        match decision:
            case None:
                raise PluginError(f"no pod of this node waits for {count} of {self._legacy.resource}")
            case Unshared(reason=reason, effects=effects):
                log.warning("refused: %s", reason)
                for effect in effects:
                    await self._own.perform(effect)
                raise PluginError(reason)
            case Shared(pod=pod, patch=patch):
                if patch is not None:
                    refused = await persist(lambda: self._own.perform(patch), self._own.clock)
                    if refused is not None:
                        raise PluginError(f"pod {pod.key}: it could not be marked as assigned: {refused}")
                self._allocator.settled(decision)
                log.info("served pod=%s container=%s units=%d", pod.key, decision.container.name, count)
                return message(decision.answer)

    async def _release_lock(self) -> None:
        node = self._own.node
        if node is not None and names.NODE_LOCK_GPUSHARE in node.metadata.annotations:
            await self._own.perform_soon(PatchNode({names.NODE_LOCK_GPUSHARE: None}), "releasing the node lock")

    async def _show(self) -> None:
        self._allocator.cards = self._watch.facts
        units = self._legacy.units(self._watch.facts, self._watch.sick)
        await self._registration.endpoint.announce(device_list([(unit.id, unit.healthy) for unit in units]))

    def _status(self) -> Any:
        assert self._own.node is not None
        return self._legacy.status(self._watch.facts, self._watch.sick, self._own.node)

    async def _keep_status(self) -> None:
        while True:
            changed = self._own.node_changed.wait()
            patch = self._status() if self._own.node is not None else None
            if patch is not None and not await self._own.perform_soon(patch, "keeping the node's status"):
                await self._own.clock.sleep(5.0)
            else:
                await first(changed, self._own.clock.sleep(30.0))

    async def _follow_health(self) -> None:
        changed = self._watch.changed.wait()
        while True:
            await changed
            changed = self._watch.changed.wait()
            await self._show()
            self._own.node_changed.fire()

    async def _prune(self) -> None:
        while True:
            await self._own.pods_changed.wait()
            self._allocator.prune(self._own.pods)
