"""The proxy that makes an API server hostile does what it says, and nothing when it is calm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from benchmarks.end_to_end.load import check, clean, create_pods, make_pod, prepare
from benchmarks.end_to_end.proxy import Weather, proxy
from benchmarks.end_to_end.server import Server, api_server

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import ApiError
from pumice.wire import kinds


@asynccontextmanager
async def proxied(nodes: int) -> AsyncIterator[tuple[Server, Weather, KubeClient]]:
    async with api_server("embedded") as server:
        await prepare(server.kube, nodes)
        async with proxy(server) as weather, KubeClient.from_kubeconfig(weather.kubeconfig) as kube:
            yield server, weather, kube


def test_refused_writes_are_answered_409_and_429_by_turns_and_never_carried_out() -> None:
    async def story() -> None:
        async with proxied(1) as (server, weather, kube):
            await create_pods(kube, [make_pod("calm", 0)])
            await weather.set(refuse=1.0)
            kube.clock = Impatient()
            with pytest.raises(ApiError) as reported:
                await create_pods(kube, [make_pod("refused", 0)])
            assert reported.value.code == 409, "429 is sent again by the client"
            assert (await weather.counts())["refused"] == 2
            await weather.set()
            assert [p["metadata"]["name"] for p in (await server.kube.list(kinds.PODS))["items"]] == ["calm"]

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_storm_adds_node_updates_to_the_watch() -> None:
    async def story() -> None:
        async with proxied(20) as (_, weather, kube):
            await weather.set(storm=500)
            seen: dict[str, set[str]] = {}
            async for event in kube.watch(kinds.NODES):
                if event.type == "MODIFIED":
                    obj = json.loads(event.raw)
                    seen.setdefault(obj["metadata"]["name"], set()).add(obj["status"]["allocatable"]["pods"])
                if len(seen.get("n00000", ())) == 2 and len(seen) == 20:
                    break
            changed = {name for name, offered in seen.items() if len(offered) > 1}
            assert changed <= {"n00000", "n00010"}, "every tenth changes what it offers"

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_lost_pod_fails_the_check_of_the_store() -> None:
    async def story() -> None:
        async with api_server("embedded") as server:
            await prepare(server.kube, 1)
            await create_pods(server.kube, [make_pod("waits", 0)])
            with pytest.raises(AssertionError, match="2 of 2 pods are lost or without a node"):
                await check(server.kube, {"waits", "gone"})
            await clean(server.kube)
            assert not (await server.kube.list(kinds.PODS))["items"]

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_killed_server_comes_back_with_its_objects() -> None:
    async def story() -> None:
        async with api_server("embedded") as server:
            await prepare(server.kube, 1)
            await create_pods(server.kube, [make_pod("kept", 0)])
            await server.kill()
            await server.start_again()
            assert [p["metadata"]["name"] for p in (await server.kube.list(kinds.PODS))["items"]] == ["kept"]

    asyncio.run(asyncio.wait_for(story(), 60))


class Impatient:
    """A clock whose pauses take no time."""

    def now(self) -> float:
        return 0.0

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
