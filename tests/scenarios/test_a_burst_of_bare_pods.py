"""The whole controller beside a burst of pods that are bound as fast as they come."""

from __future__ import annotations

import asyncio
import random

from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import pod
from kit.scheduler_daemon import create
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.controller.daemon import Controller, Settings
from pumice.wire import volcano

SETTINGS = Settings(listen="127.0.0.1:0", leader_elect=False)


async def groups(cluster: FaultyCluster) -> int:
    return len((await cluster.list(volcano.POD_GROUPS))["items"])


def test_groups_of_bare_pods_come_behind_the_bindings_of_a_burst_and_within_ten_seconds() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        stop, ready = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(Controller(SETTINGS, cluster, clock, random.Random(1), stop, ready).run())
        await asyncio.wait_for(ready.wait(), 10)

        async def burst(word: str, size: int) -> None:
            """A hundred pods a second, each bound as soon as it is there."""
            for name in (f"{word}{number}" for number in range(size)):
                await create(cluster, pod(name, cpu="1"))
                await cluster.bind("default", name, b'{"target":{"kind":"Node","name":"n1"}}')
                await clock.sleep(0.01)

        await burst("a", 300)
        assert await groups(cluster) <= 16, "while nobody knows yet that many come"
        await clock.sleep(2)
        assert await groups(cluster) == 300
        await burst("b", 1200)
        assert 450 <= await groups(cluster) <= 550, "what has waited for ten seconds comes amid the others"
        stop.set()
        await running

    run_virtually(story())
