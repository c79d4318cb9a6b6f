"""Everything of a node that others connect to: kubelet.sock, pod resources, and the HTTP server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pumice_lab.kubelet.devices.grpc_plugin import PluginServer
from pumice_lab.kubelet.podresources import PodResourcesServer
from pumice_lab.kubelet.server import NodeServer

if TYPE_CHECKING:
    from pumice_lab.kubelet.simulator import KubeletSimulator


@contextlib.asynccontextmanager
async def open_sockets(simulator: KubeletSimulator) -> AsyncIterator[None]:
    """Open all of them; they close in the opposite order. The device checkpoint is read first."""
    simulator.take_over()
    async with contextlib.AsyncExitStack() as stack:
        plugins = PluginServer(simulator.settings.plugin_dir, simulator.devices, simulator.clock)
        await plugins.start()
        stack.push_async_callback(plugins.stop)
        resources = PodResourcesServer(simulator)
        await resources.start()
        stack.push_async_callback(resources.stop)
        server = NodeServer(simulator)
        simulator.port = await server.start()
        stack.push_async_callback(server.stop)
        yield
