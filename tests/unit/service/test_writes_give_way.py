"""While many Bindings are on their way, events and status leave the API server to them, and are written all the same."""

from __future__ import annotations

import asyncio
import random

from pumice.apps.status_writer import BESIDE_BINDINGS, StatusWriter
from pumice.engine.effects import Event
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json, Resource


class SlowCluster:
    """Creates that last a moment; remembers how many were on their way at once."""

    def __init__(self) -> None:
        self.at_once = self.most = self.done = 0

    async def create(self, resource: Resource, obj: Json, namespace: str = "") -> Json:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        self.done += 1
        return obj


def write_events(*, busy: bool) -> SlowCluster:
    cluster = SlowCluster()

    async def story() -> None:
        writer = StatusWriter(cluster, SystemClock(), random.Random(1), busy=lambda: busy)  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        await asyncio.sleep(0)
        for i in range(40):
            writer.put(Event("Pod", "v1", "default", f"p{i}", f"u{i}", "Normal", "Scheduled", "assigned"))
        while cluster.done < 40:
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), 10))
    return cluster


def test_beside_many_bindings_few_workers_write() -> None:
    assert write_events(busy=True).most == BESIDE_BINDINGS


def test_when_no_bindings_wait_all_workers_write() -> None:
    assert write_events(busy=False).most == 8
