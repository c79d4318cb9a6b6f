"""The legacy plugin of one node: shares cards by memory, or hands out whole ones, without limits."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial

from pumice.adapters.nvml import NvmlCards
from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.plugin import run_plugins
from pumice.devices.nvidia_gpushare.node.allocator import Legacy, ShareAllocator
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """The settings of the plugin. ``legacy``: how the node shares."""

    legacy: Legacy = field(default_factory=Legacy)


async def run(
    settings: Settings,
    *,
    cluster: Cluster,
    clock: Clock,
    rng: random.Random,
    stop: asyncio.Event,
    ready: asyncio.Event | None = None,
    cards: Cards | None = None,
) -> None:
    """Serve until ``stop``. ``ready`` is set once the kubelet and the node's status know the cards."""
    device_type = gpushare(settings, cards)
    await run_plugins(settings, device_type, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)


def gpushare(settings: Settings, cards: Cards | None = None) -> ServedDevices:
    """Legacy shares as the plugin server takes them."""

    async def allocator() -> ShareAllocator:
        return ShareAllocator(settings.node_name, settings.legacy)

    return ServedDevices("pumice-gpushare-plugin", allocator, partial(NvmlCards, settings.nvml), cards)
