"""A node with a kubelet to test against: the twin, or the real one with etcd, kube-apiserver, containerd and runc."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit import real_kubelet
from kit.grpc_plugin import ScriptedPlugin, register
from pumice.adapters.kube import KubeClient
from pumice.adapters.kube.config import Access, load_kubeconfig
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice.wire.kinds import NODES, PODS
from pumice_lab import kube_control_plane, pki
from pumice_lab.apiserver import ApiServer, User, open_storage, serve
from pumice_lab.kubelet.run import run as run_kubelet
from pumice_lab.kubelet.settings import KubeletSettings

TOKEN = "kubelet-token-of-this-test"
PATIENCE = 60.0
_numbers = itertools.count(1)


@dataclass
class Node:
    """A node with a kubelet, its API server's client, and its device plugin folder."""

    kube: KubeClient
    name: str
    plugins: Path
    pod_resources: Path
    running: list[ScriptedPlugin] = field(default_factory=list)

    def resource(self) -> str:
        return f"example.com/case-{next(_numbers)}"

    async def plug(self, resource: str, plugin: ScriptedPlugin, name: str = "") -> ScriptedPlugin:
        endpoint = (name or resource.partition("/")[2]) + ".sock"
        self.running.append(plugin)
        await plugin.serve(self.plugins / endpoint)
        await register(self.plugins, resource, endpoint)
        return plugin

    async def until_counts(self, resource: str, capacity: int, allocatable: int) -> None:
        async def there() -> bool:
            status = (await self.kube.get(NODES, self.name))["status"]
            shown = tuple(int(status[key].get(resource, -1)) for key in ("capacity", "allocatable"))
            return shown == (capacity, allocatable)

        await self.until(there, f"{resource} to be {capacity} and {allocatable}")

    async def pod(self, *containers: Json, **spec: Any) -> str:
        name = f"case-{next(_numbers)}"
        await self.kube.create(PODS, {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": self.name, "terminationGracePeriodSeconds": 0, "containers": list(containers), **spec}})
        return name

    async def status(self, name: str) -> Json:
        status: Json = (await self.kube.get(PODS, name, "default"))["status"]
        return status

    async def until_phase(self, name: str, phase: str) -> Json:
        async def there() -> bool:
            return bool((await self.status(name)).get("phase") == phase)

        await self.until(there, f"{name} to be {phase}")
        return await self.status(name)

    async def until(self, there: Callable[[], Coroutine[Any, Any, bool]], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not await there():
            assert asyncio.get_running_loop().time() < deadline, f"waited {PATIENCE:.0f} s for {what}"
            await asyncio.sleep(0.05)

    async def refused(self, *containers: Json, **spec: Any) -> Json:
        return await self.until_phase(await self.pod(*containers, **spec), "Failed")

    async def log(self, name: str) -> str:
        return (await self.kube.request("GET", f"/api/v1/namespaces/default/pods/{name}/log")).decode()


def box(resource: str = "", count: int = 0, script: str = "sleep 1000", name: str = "main", **more: Any) -> Json:
    limits = {"resources": {"limits": {resource: str(count)}}} if resource else {}
    return {"name": name, "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
            **limits, **more}


@pytest.fixture(scope="session", params=["twin", pytest.param("real", marks=pytest.mark.e2e)])
def where(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """A context of a Node, made in the loop of the test that uses it."""
    with tempfile.TemporaryDirectory(prefix="pumice") as folder:  # a socket path has at most 107 bytes
        if request.param == "twin":
            yield lambda: _simulator(Path(folder))
            return
        if reason := real_kubelet.missing():
            pytest.skip(reason)
        with _real(Path(folder)) as (kubeconfig, name):
            yield lambda: _client(kubeconfig, name)


@contextlib.asynccontextmanager
async def _simulator(directory: Path) -> AsyncIterator[Node]:
    served = await serve(ApiServer(open_storage(":memory:")), tokens={"t": User("admin", groups=("system:masters",))})
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = KubeletSettings("twin-1", directory / "n", directory)
    async with KubeClient(Access(served.url, None, lambda: "t")) as kube:
        task = asyncio.create_task(run_kubelet(settings, cluster=kube, clock=SystemClock(), rng=random.Random(0), stop=stop,
                                            ready=ready))
        await asyncio.wait_for(ready.wait(), 20)
        try:
            yield Node(kube, "twin-1", settings.plugin_dir, settings.kubelet_dir / "pod-resources")
        finally:
            stop.set()
            await task
    await served.close()


@contextlib.contextmanager
def _real(directory: Path) -> Iterator[tuple[Path, str]]:
    now = datetime.datetime.now(datetime.UTC)
    keys = pki.ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], now)
    certificate = pki.issue(keys, "kubelet", [real_kubelet.NODE_IP], now)
    plane = asyncio.run(kube_control_plane.start(
        kube_control_plane.find_assets(), directory, directory, keys, clock=SystemClock(), controller_manager=False,
        users=[f'{TOKEN},system:node:real-1,real-1,"system:nodes"']))
    try:
        kubeconfig = kube_control_plane.kubeconfig(keys, plane.server, directory / "kubeconfig")
        with real_kubelet.real_node(directory / "node", plane.server, TOKEN, certificate, "real-1"):
            yield kubeconfig, "real-1"
    finally:
        for process in reversed(plane.processes.values()):
            with contextlib.suppress(ProcessLookupError):
                process.kill()


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path, name: str) -> AsyncIterator[Node]:
    async with KubeClient(load_kubeconfig(kubeconfig)) as kube:
        node = Node(kube, name, real_kubelet.PLUGINS, kubeconfig.parent / "node" / "kubelet" / "pod-resources")

        async def ready() -> bool:
            found = (await kube.list(NODES, field_selector=f"metadata.name={name}"))["items"]
            return any(c["type"] == "Ready" and c["status"] == "True" for n in found for c in n["status"]["conditions"])

        await node.until(ready, "the node")
        yield node


@pytest.fixture
def on(where: Callable[[], Any]) -> Callable[[Callable[[Node], Coroutine[Any, Any, None]]], None]:
    def run(work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with where() as node:
                try:
                    await work(node)
                finally:
                    for pod in (await node.kube.list(PODS, "default"))["items"]:
                        with contextlib.suppress(Exception):
                            await node.kube.delete(PODS, pod["metadata"]["name"], "default", grace=0)
                    for plugin in node.running:
                        await plugin.stop()

        asyncio.run(main())

    return run


On = Callable[[Callable[[Node], Coroutine[Any, Any, None]]], None]  # the fixture ``on``
