"""A node in memory: API server, kubelet twin without sockets or processes, plugins as plain objects, virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from kit.direct_cluster import DirectCluster, memory_cluster
from kit.virtual_time import VirtualClock

from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import EVENTS, PODS
from pumice_lab.kubelet.devices.plugin import Allocation, Device, Options, PluginError
from pumice_lab.kubelet.run import HollowRuntime
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.kubelet.simulator import KubeletSimulator

NUMBER = "volcano.sh/vgpu-number"


class FakePlugin:
    """Answers as told and writes down what it was asked."""

    def __init__(self, *, prefers: Callable[[list[str], list[str], int], list[str] | None] | None = None,
                 answer: Callable[[list[str]], Allocation | None] | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.closed = False
        self.error = ""
        self._prefers = prefers
        self._answer = answer or (lambda ids: Allocation(envs=(("IDS", ",".join(sorted(ids))),)))

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str] | None:
        self.calls.append(("preferred", sorted(available), sorted(must_include), size))
        if self._prefers is None:
            raise PluginError("rpc error: code = Unknown desc = no opinion")
        return self._prefers(sorted(available), sorted(must_include), size)

    async def allocate(self, ids: Sequence[str]) -> Allocation | None:
        self.calls.append(("allocate", list(ids)))
        if self.error:
            raise PluginError(self.error)
        return self._answer(list(ids))

    async def pre_start(self, ids: Sequence[str]) -> None:
        self.calls.append(("pre_start", sorted(ids)))
        if self.error:
            raise PluginError(self.error)

    def close(self) -> None:
        self.closed = True

    def allocations(self) -> list[set[str]]:
        return [set(call[1]) for call in self.calls if call[0] == "allocate"]


def devices(*ids: str, health: str = "Healthy") -> list[Device]:
    return [Device(ident, health) for ident in ids]


class World:
    def __init__(self, kube: DirectCluster, clock: VirtualClock, directory: Path) -> None:
        self.kube, self.clock, self.directory = kube, clock, directory
        self.runtime = HollowRuntime(clock)
        self.settings = KubeletSettings("n1", directory / "n1", directory, address="127.64.0.2", hollow=True)
        self.simulator: KubeletSimulator
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def boot(self, seed: int = 0, *, checkpoint: bool = False) -> None:
        """Start a kubelet twin (again); with a checkpoint it knows what its predecessor handed out."""
        self._stop = asyncio.Event()
        ready = asyncio.Event()
        self.simulator = KubeletSimulator(self.settings, self.kube, self.clock, random.Random(seed), self.runtime)
        if checkpoint:
            self.simulator.take_over()
        self._task = asyncio.create_task(self.simulator.run(self._stop, ready))
        reported = asyncio.create_task(ready.wait())
        await asyncio.wait({self._task, reported}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def shut(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    def plug(self, plugin: FakePlugin, ids: Sequence[Device], resource: str = NUMBER, *, preferred: bool = False,
             pre_start: bool = False) -> FakePlugin:
        self.simulator.devices.connected(resource, plugin, Options(pre_start, preferred))
        self.simulator.devices.listed(resource, list(ids))
        return plugin

    async def pod(self, name: str, *command: str, limits: dict[str, Any] | None = None, container: dict[str, Any] | None = None,
                  **spec: Any) -> Json:
        main = {"name": "main", "image": "busybox", **({"command": list(command)} if command else {}),
                **({"resources": {"limits": limits}} if limits else {}), **(container or {})}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": "n1", "containers": [main], **spec}}
        return await self.kube.create(PODS, body)

    async def status(self, name: str) -> Json:
        return (await self.kube.get(PODS, name, "default"))["status"]

    async def state(self, name: str, container: str = "main") -> Json:
        status = await self.status(name)
        every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        return next(s for s in every if s["name"] == container)

    async def exists(self, name: str) -> bool:
        try:
            await self.kube.get(PODS, name, "default")
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def events(self, name: str) -> list[tuple[str, str, str, int]]:
        """(type, reason, message, count) of one pod, in the order in which they were written."""
        items = (await self.kube.list(EVENTS, "default"))["items"]
        mine = sorted((e for e in items if e["involvedObject"]["name"] == name),
                      key=lambda e: int(e["metadata"]["resourceVersion"]))
        return [(e["type"], e["reason"], e["message"], e["count"]) for e in mine]

    async def reasons(self, name: str) -> list[str]:
        return [reason for _, reason, _, _ in await self.events(name)]

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.sleep(seconds)


@contextlib.asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    clock = VirtualClock()
    here = World(await memory_cluster(clock), clock, directory)
    await here.boot()
    try:
        yield here
    finally:
        await here.shut()
        await here.runtime.close()


Work = Callable[[World], Coroutine[Any, Any, None]]
OnNode = Callable[[Work], None]
"""The fixture ``on_node``: run this with a node in virtual time."""
