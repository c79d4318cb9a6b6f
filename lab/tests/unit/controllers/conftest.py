from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from kit.direct_cluster import DirectCluster, memory_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.ports.cluster import ApiError, Json, Resource
from pumice.wire.kinds import PODS
from pumice_lab.controllers import manager
from pumice_lab.kubelet.run import HollowRuntime
from pumice_lab.kubelet.run import run as run_kubelet
from pumice_lab.kubelet.settings import KubeletSettings


class Cluster:
    """An API server with all controllers and hollow nodes n1, n2, in virtual time. Every pod is bound by its template."""

    def __init__(self, kube: DirectCluster, clock: VirtualClock) -> None:
        self.kube, self.clock = kube, clock
        self.runtime = HollowRuntime(clock)

    async def settle(self, seconds: float = 2.0) -> None:
        await self.clock.sleep(seconds)

    async def make(self, resource: Resource, kind: str, name: str, spec: Json, **meta: Any) -> Json:
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default", **meta}, "spec": spec}
        return await self.kube.create(resource, body)

    async def names(self, resource: Resource, namespace: str = "default") -> list[str]:
        return sorted(o["metadata"]["name"] for o in (await self.kube.list(resource, namespace))["items"])

    async def pods(self, phase: str = "") -> list[Json]:
        items = (await self.kube.list(PODS, "default"))["items"]
        return [p for p in items if not phase or p["status"]["phase"] == phase]

    async def get(self, resource: Resource, name: str) -> Json | None:
        try:
            return await self.kube.get(resource, name, "default" if resource.namespaced else "")
        except ApiError as error:
            if error.code != 404:
                raise
            return None


def template(*command: str, **spec: Any) -> Json:
    container = {"name": "c", "image": "i", "command": list(command or ("sleep", "infinity"))}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], "nodeName": "n1", **spec}}


@pytest.fixture
def with_controllers(tmp_path: Path) -> Callable[[Callable[[Cluster], Coroutine[Any, Any, None]]], None]:
    def run(work: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            clock = VirtualClock()
            cluster = Cluster(await memory_cluster(clock), clock)
            stop, ready = asyncio.Event(), asyncio.Event()
            tasks = [asyncio.create_task(manager.run(manager.ControllersSettings(), cluster=cluster.kube, clock=clock,
                                                   rng=random.Random(1), stop=stop, ready=ready))]
            await ready.wait()
            for number in (1, 2):
                up = asyncio.Event()
                settings = KubeletSettings(f"n{number}", tmp_path / f"n{number}", tmp_path, address=f"127.64.0.{number + 1}",
                                           hollow=True)
                tasks.append(asyncio.create_task(run_kubelet(settings, cluster=cluster.kube, clock=clock,
                                                          rng=random.Random(number), stop=stop, ready=up,
                                                          runtime=cluster.runtime)))
                await up.wait()
            try:
                await work(cluster)
            finally:
                stop.set()
                await asyncio.gather(*tasks)
                await cluster.runtime.close()

        run_virtually(main())

    return run
