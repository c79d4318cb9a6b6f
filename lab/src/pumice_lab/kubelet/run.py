"""One node's kubelet twin with its runtime and its sockets, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import random

from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.simulator import KubeletSimulator
from pumice_lab.network.names import PodNames
from pumice_lab.network.pod_network import PodNetwork
from pumice_lab.runtime.hollow import HollowRuntime
from pumice_lab.runtime.process import ProcessRuntime
from pumice_lab.runtime.spec import Runtime


async def run(settings: KubeletSettings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None, runtime: Runtime | None = None, network: PodNetwork | None = None,
              names: PodNames | None = None) -> None:
    """Run one node until ``stop``. A runtime that is given is shared and stays open; otherwise the twin has its own.
    ``network`` and ``names`` are those that it shares with the other nodes."""
    own: ProcessRuntime | HollowRuntime | None = None
    if runtime is None:
        own = HollowRuntime(clock) if settings.hollow else await ProcessRuntime.launch(
            settings.directory / "containers", data_dir=settings.data_dir)
        runtime = own
    simulator = KubeletSimulator(settings, cluster, clock, rng, settings.runtime(runtime), network, names)
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            stack.push_async_callback(own.close)
        if not settings.hollow:
            from pumice_lab.kubelet.podresources import open_sockets  # gRPC and HTTP only where they are needed

            await stack.enter_async_context(open_sockets(simulator))
        await simulator.run(stop, ready)
