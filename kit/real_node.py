"""One API server on a socket and one node with real processes, as kubectl meets them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pumice.adapters.kube import KubeClient
from pumice.adapters.kube.config import Access
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice.wire.kinds import PODS
from pumice_lab.apiserver import ApiServer, User, open_storage, serve
from pumice_lab.kubelet.run import run as run_kubelet
from pumice_lab.kubelet.settings import KubeletSettings

V5 = "v5.channel.k8s.io"


class Cluster:
    """One API server on a socket, one node with real processes."""

    def __init__(self, kube: KubeClient, url: str) -> None:
        self.kube, self.url = kube, url

    async def pod(self, name: str, script: str, **spec: Any) -> Json:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", script]}], **spec}}
        return await self.kube.create(PODS, body)

    async def until(self, name: str, *phases: str) -> Json:
        async with asyncio.timeout(60):
            async for event in self.kube.watch(PODS, "default", field_selector=f"metadata.name={name}"):
                if event.type in ("ADDED", "MODIFIED"):
                    pod = json.loads(event.raw)
                    if pod["status"].get("phase") in phases:
                        return dict(pod)
        raise AssertionError("the watch ended")

    async def log(self, name: str, **options: Any) -> str:
        path = f"/api/v1/namespaces/default/pods/{name}/log"
        return (await self.kube.request("GET", path, params={k: str(v) for k, v in options.items()})).decode()

    @contextlib.asynccontextmanager
    async def exec(self, name: str, *command: str, protocol: str = V5, subresource: str = "exec",
                   **streams: str) -> AsyncIterator[Any]:
        query = [*({"stdout": "true", "stderr": "true"} | streams).items(), *(("command", word) for word in command)]
        headers = {"Authorization": "Bearer t"}
        path = f"{self.url}/api/v1/namespaces/default/pods/{name}/{subresource}"
        async with aiohttp.ClientSession() as session, session.ws_connect(
            path, params=query, headers=headers, protocols=(protocol,) if protocol else (),
        ) as socket:  # fmt: skip
            yield socket

    async def run(self, name: str, *command: str, **options: str) -> tuple[bytes, bytes, Json]:
        async with self.exec(name, *command, **options) as socket:
            return await outcome(socket)


async def outcome(socket: Any) -> tuple[bytes, bytes, Json]:
    """(stdout, stderr, final status) of an exec."""
    channels = {1: b"", 2: b"", 3: b""}
    async with asyncio.timeout(60):
        async for message in socket:
            channels[message.data[0]] += message.data[1:]
    return channels[1], channels[2], json.loads(channels[3] or b"{}")


Cases = Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def on_cluster(tmp_path: Path) -> Cases:
    def run(work: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            api = ApiServer(open_storage(":memory:"))
            served = await serve(api, "127.0.0.1", 0, None, {"t": User("admin", groups=("system:masters",))})
            stop, ready = asyncio.Event(), asyncio.Event()
            settings = KubeletSettings("n1", tmp_path / "n1", tmp_path, address="127.0.0.1")
            async with KubeClient(Access(served.url, None, lambda: "t")) as kube:
                node = asyncio.create_task(run_kubelet(settings, cluster=kube, clock=SystemClock(), rng=random.Random(0),
                                                    stop=stop, ready=ready))
                try:
                    async with asyncio.timeout(60):
                        await ready.wait()
                    await work(Cluster(kube, served.url))
                finally:
                    stop.set()
                    await node
            await served.close()

        asyncio.run(main())

    return run
