"""Everything of a node that others connect to: kubelet.sock, pod resources, and the HTTP server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pumice_lab.kubelet.devices.grpc_plugin import PluginServer
from pumice_lab.kubelet.podresources import PodResourcesServer
from pumice_lab.kubelet.server import NodeServer

if TYPE_CHECKING:
    from pumice_lab.kubelet.twin import KubeletTwin


@contextlib.asynccontextmanager
async def open_sockets(twin: KubeletTwin) -> AsyncIterator[None]:
    """Open all of them; they close in the opposite order. The device checkpoint is read first."""
    twin.take_over()
    async with contextlib.AsyncExitStack() as stack:
        plugins = PluginServer(twin.settings.plugin_dir, twin.devices, twin.clock)
        await plugins.start()
        stack.push_async_callback(plugins.stop)
        resources = PodResourcesServer(twin)
        await resources.start()
        stack.push_async_callback(resources.stop)
        server = NodeServer(twin)
        twin.port = await server.start()
        stack.push_async_callback(server.stop)
        yield
