"""A node daemon's cache of its pods: the watch and the lists past it, whichever answers first."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

from kit.fake_cluster import FakeCluster
from kit.node_objects import NODE, pod_object
from kit.node_world import until

from pumice.apps.service.own_node import OwnNode
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Json, Resource


class SlowLists(FakeCluster):
    """Answers a list with what was there when it was asked for, once ``answer`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.requested, self.answer = asyncio.Event(), asyncio.Event()

    async def list(self, resource: Resource, namespace: str = "", **more: str) -> Json:
        found = await super().list(resource, namespace, **more)
        self.requested.set()
        await self.answer.wait()
        return found


@contextlib.asynccontextmanager
async def own_node(cluster: FakeCluster) -> AsyncIterator[OwnNode]:
    own = OwnNode(cluster, NODE, clock=SystemClock(), rng=random.Random(7), component="test")
    tasks = [asyncio.create_task(task) for task in own.tasks()]
    try:
        await own.pods_synced.wait()
        yield own
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def no_watch(verb: str, path: str) -> None:
    if verb == "WATCH":
        raise ApiError(0, "Unreachable", "connection refused")


def known(own: OwnNode) -> dict[str, Any]:
    return {pod.metadata.name: pod.annotations.get("word") for pod in own.pods}


def pod(name: str, word: str) -> Json:
    made = pod_object(name, "", uid=f"uid of {name}")
    made["metadata"]["annotations"]["word"] = word
    return made


def test_a_list_that_comes_later_than_the_watch_takes_nothing_back():
    async def story() -> None:
        cluster = SlowLists()
        cluster.put(pod("changes", "old"))
        cluster.put(pod("goes", "old"))
        async with own_node(cluster) as own:
            asking = asyncio.create_task(own.relist())
            await cluster.requested.wait()
            cluster.put(pod("changes", "new"))
            cluster.remove("pods", "goes")
            await until(lambda: known(own) == {"changes": "new"})
            cluster.answer.set()
            await asking
            assert known(own) == {"changes": "new"}

    asyncio.run(story())


def test_a_list_that_is_ahead_of_the_watch_is_taken():
    async def story() -> None:
        cluster = SlowLists()
        async with own_node(cluster) as own:
            cluster.gate = no_watch
            cluster.hang_up()
            cluster.put(pod("new", "word"))
            cluster.answer.set()
            await own.relist()
            assert known(own) == {"new": "word"}

    asyncio.run(story())


def test_a_pod_that_only_a_list_past_the_watch_brought_is_forgotten_when_it_went_before_the_watch_was_listed_anew():
    async def story() -> None:
        cluster = SlowLists()
        cluster.answer.set()
        async with own_node(cluster) as own:
            cluster.gate = no_watch
            cluster.hang_up(forget=True)
            cluster.put(pod("brief", "word"))
            await own.relist()
            assert known(own) == {"brief": "word"}
            cluster.remove("pods", "brief")
            cluster.forgotten = cluster.store.version
            cluster.gate = open_gate
            await until(lambda: known(own) == {})

    asyncio.run(story())


async def open_gate(verb: str, path: str) -> None:
    return
