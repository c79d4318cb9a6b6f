"""The whole controller beside a burst of pods that are bound as fast as they come."""

from __future__ import annotations

import asyncio
import random

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import node, pod
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings as SchedulerSettings
from pumice.wire import kinds, volcano
from pumice_jobs.apps.controller.daemon import Controller, Settings

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


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies before"])
def test_a_pod_is_told_its_group_by_its_binding_and_nobody_writes_it_again(dies: bool) -> None:
    """Beside its event a pod costs its Binding and its PodGroup. A controller that starts anew makes those that are named."""
    patched: list[str] = []

    async def story() -> None:
        async with daemon(node("n1", cpu="1000", pods=1000), settings=SchedulerSettings(names_groups=True)) as running:
            cluster, clock = running.cluster, running.clock
            owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-1", "controller": True}]
            stop, beside = await _controller(cluster, clock)

            def note(verb: str, path: str) -> None:
                if verb == "PATCH" and "/pods/" in path:
                    patched.append(path)

            cluster.fault = note  # type: ignore[method-assign]
            pods = [pod(f"p{number}", cpu="1") for number in range(30)]
            pods[0]["metadata"]["ownerReferences"] = pods[1]["metadata"]["ownerReferences"] = owner
            if dies:
                stop.set()
                await beside
            await create(cluster, *pods)
            await running.bind_all(*(f"p{number}" for number in range(30)))
            if dies:
                stop, beside = await _controller(cluster, clock)
            await clock.sleep(20)
            groups = {obj["metadata"]["name"]: obj for obj in (await cluster.list(volcano.POD_GROUPS))["items"]}
            named = {each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for each in (await cluster.pods()).values()}
            assert named == groups.keys()
            assert len(groups) == 29
            assert {obj["status"]["phase"] for obj in groups.values()} == {"Running"}
            await cluster.delete(volcano.POD_GROUPS, sorted(groups)[0], "default")
            await cluster.patch(kinds.PODS, "p5", {"metadata": {"labels": {"a": "b"}}}, "default")
            await clock.sleep(20)
            assert len((await cluster.list(volcano.POD_GROUPS))["items"]) == 28, "who deletes a group means it"
            stop.set()
            await beside

    run_virtually(story())
    reported = {path.rpartition("/")[2] for path in patched}
    assert reported - {"p0", "p1"} == {"p5"}, "those of an owner wait for their group, and are told its name while they do"


async def _controller(cluster: FaultyCluster, clock: VirtualClock) -> tuple[asyncio.Event, asyncio.Task[None]]:
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(Controller(SETTINGS, cluster, clock, random.Random(1), stop, ready).run())
    await asyncio.wait_for(ready.wait(), 10)
    return stop, running
