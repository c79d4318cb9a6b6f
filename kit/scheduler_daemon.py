"""The scheduler daemon on the embedded API server in virtual time, behind a client that fails on request.

    async with daemon(node("n1", cards=2)) as running:
        await create(running.cluster, pod("a", mib=4000))
        await running.bind_all("a")
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from kit.faulty_cluster import Fault, FaultyCluster, faulty_cluster
from kit.scheduler_confs import conf, sharing
from kit.virtual_time import VirtualClock
from pumice.apps.scheduler.daemon import Scheduler, Settings
from pumice.audit.auditor import audit
from pumice.ports.cluster import ApiError, WatchEvent
from pumice.wire import kinds, volcano

CONF = conf("priority", "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), "proportion")


class Daemon:
    """A cluster with a running scheduler."""

    def __init__(self, cluster: FaultyCluster, clock: VirtualClock, settings: Settings | None = None, seed: int = 1) -> None:
        self.cluster, self.clock = cluster, clock
        self.stop, self.ready = asyncio.Event(), asyncio.Event()
        settings = replace(settings or Settings(), listen="127.0.0.1:0")
        self.scheduler = Scheduler(settings, cluster, clock, random.Random(seed), self.stop, self.ready)
        self.task = asyncio.create_task(self.scheduler.run())

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
        end = self.clock.monotonic() + seconds
        while not await holds():
            assert self.clock.monotonic() < end, await self.cluster.pods()
            if self.task.done():
                self.task.result()
            await self.clock.sleep(0.05)

    async def bound(self, *names: str) -> bool:
        pods = await self.cluster.pods()
        return all(pods[name]["spec"].get("nodeName") for name in names)

    async def bind_all(self, *names: str) -> None:
        async def holds() -> bool:
            return await self.bound(*names)

        await self.until(holds)

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of the daemon's pages, over HTTP."""
        address = f"http://127.0.0.1:{self.scheduler.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return answer.status, await answer.text()

    async def condition(self, name: str) -> str:
        """The words of a pod's PodScheduled condition; empty while there is none."""
        found = (await self.cluster.pods())[name].get("status", {}).get("conditions", [])
        return next((str(c["message"]) for c in found if c["type"] == "PodScheduled"), "")

    async def audit(self) -> None:
        nodes = (await self.cluster.list(kinds.NODES))["items"]
        assert audit(nodes, (await self.cluster.pods()).values()) == []

    async def events(self, reason: str) -> list[str]:
        return [e["message"] for e in (await self.cluster.list(kinds.EVENTS))["items"] if e["reason"] == reason]

    async def die(self) -> None:
        """As a process that is killed: it finishes nothing."""
        killed, self.task = self.task, asyncio.create_task(asyncio.sleep(0))
        for task in (killed, *self.scheduler.binder._running):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killed

    def heir(self, seed: int = 1) -> Daemon:
        """One that comes after it died, and is closed in its place."""
        heir = Daemon(self.cluster, self.clock, seed=seed)
        self.task, self.stop = heir.task, heir.stop
        return heir

    async def close(self) -> None:
        self.stop.set()
        await self.task


@asynccontextmanager
async def daemon(*objects: dict[str, Any], conf: str | None = CONF, volcano_kinds: bool = True,
                 settings: Settings | None = None, fault: Fault | None = None,
                 cluster_kind: type[FaultyCluster] = FaultyCluster) -> AsyncIterator[Daemon]:  # fmt: skip
    """A scheduler that is ready, with these nodes. ``fault``: how the API server fails from the scheduler's start on."""
    clock = VirtualClock()
    cluster = await faulty_cluster(clock, volcano_kinds=volcano_kinds, kind=cluster_kind)
    if conf is not None:
        data = {"volcano-scheduler.conf": conf}
        body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": data}
        await cluster.create(kinds.CONFIGMAPS, body, "volcano-system")
    for obj in objects:
        await cluster.put_node(obj)
    if fault is not None:
        cluster.fault = fault  # type: ignore[method-assign]
    running = Daemon(cluster, clock, settings)
    await running.until(lambda: _is_set(running.ready))
    try:
        yield running
    finally:
        await running.close()


async def _is_set(event: asyncio.Event) -> bool:
    return event.is_set()


async def create(cluster: FaultyCluster, *objects: dict[str, Any]) -> None:
    for obj in objects:
        body = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k not in ("uid", "creationTimestamp")}}
        body.pop("status", None)
        kind = volcano.POD_GROUPS if obj["kind"] == "PodGroup" else kinds.PODS
        await cluster.create(kind, body, obj["metadata"].get("namespace", ""))


async def write_conf(running: Daemon, text: str) -> None:
    body = {"data": {"volcano-scheduler.conf": text}}
    await running.cluster.patch(kinds.CONFIGMAPS, "volcano-scheduler-configmap", body, "volcano-system")


def lost_answer(verb: str, path: str) -> Any:
    return (ApiError(0, "Timeout", "no answer"), True) if path.endswith("/binding") else None


async def tell_pod(running: Daemon, obj: dict[str, Any], kind: str = "MODIFIED") -> None:
    """Let the daemon's watch of pods say this once more, whatever the API server holds."""
    informers = running.scheduler.informers
    informers._take("pods", informers._on_pod, WatchEvent(kind, json.dumps(obj).encode()))  # type: ignore[arg-type]
    await running.clock.sleep(1)
