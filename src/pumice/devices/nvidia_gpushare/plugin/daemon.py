"""The legacy plugin of one node: shares cards by memory, or hands out whole ones, without limits."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial

from pumice.adapters.nvml import NvmlCards
from pumice.apps.node.brand import Brand, PluginSettings
from pumice.apps.node.serving import run_plugins
from pumice.devices.nvidia_gpushare.node.allocator import ShareAllocator
from pumice.devices.nvidia_gpushare.node.sharing import Legacy
from pumice.ports.cards import Cards
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Settings(PluginSettings):
    """``legacy``: how the node shares."""

    legacy: Legacy = field(default_factory=Legacy)


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
    brand = gpushare(settings, cards)
    await run_plugins(settings, brand, cluster=cluster, clock=clock, dice=dice, stop=stop, ready=ready)


def gpushare(settings: Settings, cards: Cards | None = None) -> Brand:
    """Legacy shares as the plugin server takes them."""

    async def allocator() -> ShareAllocator:
        return ShareAllocator(settings.node_name, settings.legacy)

    return Brand("pumice-gpushare-plugin", allocator, partial(NvmlCards, settings.nvml), cards)
