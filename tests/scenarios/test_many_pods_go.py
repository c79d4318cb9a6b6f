"""The scheduler's writes of PodGroups while their pods are deleted: a few words, not one for each pod."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from kit.objects import group, node, pod
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import run_virtually

from pumice.wire import kinds, volcano
from pumice_jobs.apps.controller.daemon import Settings, run


@pytest.mark.parametrize("apart", [0.01, 0.05])
@pytest.mark.parametrize("minimum", [1, pytest.param(100, marks=pytest.mark.soak), 200])
def test_of_two_hundred_pods_of_a_gang_that_are_deleted_a_few_words_are_written(minimum: int, apart: float) -> None:
    written: Counter[str] = Counter()

    async def story() -> None:
        async with daemon(node("n1", cpu="1000", pods=1000)) as running:
            cluster, clock = running.cluster, running.clock
            await create(cluster, group("g", minimum=minimum), *(pod(f"g-{i}", cpu="1", group="g") for i in range(200)))
            await running.bind_all(*(f"g-{i}" for i in range(200)))
            for i in range(200):
                await cluster.patch(kinds.PODS, f"g-{i}", {"status": {"phase": "Running"}}, "default", subresource="status")
            await clock.sleep(10)

            def count(verb: str, path: str) -> None:
                if verb in ("PATCH", "POST") and ("/podgroups/" in path or path.endswith("/events")):
                    written[path.split("/")[-2 if verb == "PATCH" else -1]] += 1

            cluster.fault = count  # type: ignore[method-assign]
            for i in range(200):
                await cluster.delete(kinds.PODS, f"g-{i}", "default")
                await clock.sleep(apart)
            for i in range(200):
                await cluster.delete(kinds.PODS, f"g-{i}", "default", grace=0)
                await clock.sleep(apart)
            await clock.sleep(30)
            found = (await cluster.get(volcano.POD_GROUPS, "g", "default"))["status"]
            assert found.get("running", 0) == 0

    run_virtually(story())
    assert written.total() <= 10, written


@pytest.mark.parametrize("apart", [0.01, 0.05])
def test_of_two_hundred_single_pods_that_are_deleted_with_their_groups_a_few_words_are_written(apart: float) -> None:
    written: Counter[str] = Counter()

    async def story() -> None:
        async with daemon(node("n1", cpu="1000", pods=1000)) as running:
            cluster, clock = running.cluster, running.clock
            stop, ready = asyncio.Event(), asyncio.Event()
            controller = asyncio.create_task(run(Settings(listen="127.0.0.1:0"), cluster=cluster, clock=clock,
                                                 rng=random.Random(1), stop=stop, ready=ready))  # fmt: skip
            await ready.wait()
            await create(cluster, *(pod(f"p-{i}", cpu="1") for i in range(200)))
            await running.bind_all(*(f"p-{i}" for i in range(200)))
            for i in range(200):
                await cluster.patch(kinds.PODS, f"p-{i}", {"status": {"phase": "Running"}}, "default", subresource="status")
            await clock.sleep(10)
            assert len((await cluster.list(volcano.POD_GROUPS))["items"]) == 200

            def count(verb: str, path: str) -> None:
                if verb in ("PATCH", "POST", "PUT") and ("/podgroups" in path or path.endswith("/events")):
                    written[verb + " " + ("podgroups" if "/podgroups" in path else "events")] += 1

            cluster.fault = count  # type: ignore[method-assign]
            for grace in (None, 0):
                for i in range(200):
                    await cluster.delete(kinds.PODS, f"p-{i}", "default", grace=grace)
                    await clock.sleep(apart)
            for found in (await cluster.list(volcano.POD_GROUPS))["items"]:  # as the garbage collector, later than it would
                await cluster.delete(volcano.POD_GROUPS, found["metadata"]["name"], "default")
                await clock.sleep(apart)
            await clock.sleep(30)
            stop.set()
            await controller

    run_virtually(story())
    assert written.total() <= 10, written
