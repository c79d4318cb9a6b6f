"""The settings of the plugin server: how it serves on this node, and of each device type what it needs beside the
allocator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.adapters.bookings.foreign import SHARED
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.apps.node.performing import Prepare, Slicer
from pumice.apps.node.registration import GRPC, Transport
from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.own_node import OwnNode
from pumice.apps.service.worker import PATIENCE
from pumice.metrics.text import MetricFamily
from pumice.node.pods import AllocatedIds
from pumice.node.protocol import Allocator
from pumice.ports.cards import Cards


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The settings of a plugin from the command line or ``pumice up``, whatever its device type. Paths are the host's.

    ``nvml``: file or directory of the NVML library, empty for the system's. ``health_address``: where /healthz and /readyz are
    served; empty for nowhere. ``booking_dirs``: where `pumice run` books. ``cleanup``: a plugin that ends takes from the node
    object what it has said there. ``reload_every``: seconds between two looks at the configuration; ``hangup`` asks for one now.
    ``driver_patience``: seconds for which a plugin that ends waits for the driver. ``named_shares``: whether containers are given
    CDI devices of a name that is used once (``on``, ``off``, or ``auto``: where the node's runtime is known to heed them), whose
    files lie in ``cdi_folder``.
    """

    node_name: str
    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    nvml: str = ""
    wait_for_driver: bool = False
    disable_health_checks: str = ""
    enable_health_checks: str = ""
    health_every: float = 1.0
    health_address: str = ""
    health_port: int = 0
    booking_dirs: tuple[Path, ...] = SHARED
    cleanup: bool = False
    reload_every: float = 30.0
    driver_patience: float = PATIENCE
    hangup: asyncio.Event | None = None
    named_shares: str = "auto"
    cdi_folder: Path = Path("/var/run/cdi")
    transport: Transport = GRPC


@dataclass(frozen=True, slots=True)
class ServedDevices:
    """One kind of devices: the source that its Events name, how its allocator is made once there are cards, and how this
    machine's cards are opened (raises CardsUnavailable), unless ``cards`` are open already."""

    name: str
    allocator: Callable[[], Awaitable[Allocator]]
    open: Callable[[], Cards]
    cards: Cards | None = None
    slicer: Callable[[WrittenNode, Callable[[], AllocatedIds | None]], Slicer] | None = None
    """Makes the part that cuts its cards into slices; None where nothing is cut."""
    daemons: ControlDaemons | None = None
    """The keeper of its cards' control daemons; None where there are none."""
    learn: Callable[[Any], Awaitable[None]] | None = None
    """Has its allocator read its configuration again, where it can."""
    prepare: Prepare | None = None
    """Asked before an answer is given."""
    metrics: Callable[[Cards, OwnNode], Awaitable[list[MetricFamily]]] | None = None
    """Metric families of its cards, beside their health."""
    by_name: bool = True
    """True where its containers can be given a device of a name that is used once."""
    outdated: Callable[[], Awaitable[None]] | None = None
    """Returns once the allocator was made by another configuration than there is now, or somebody asks to begin again."""
