"""Bursts and steady arrivals, measured by the server's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks.end_to_end.contenders import Contender
from benchmarks.end_to_end.load import check, clean, create_groups, create_pods, make_pod
from benchmarks.end_to_end.server import Server

Figures = dict[str, float]


async def burst(server: Server, contender: Contender, count: int, name: str, *, warm_up: int = 200) -> Figures:
    """All pods at once at a fresh process of this scheduler; checked; everything is deleted afterwards."""
    async with contender as running:
        warm = await one_burst(server, running, f"{name}-warm", warm_up)
        await settled(server)
        server.log.mark()
        running.mark()
        server_before = server.cpu()
        names = await one_burst(server, running, name, count)
        await settled(server)
        result = rates(server, names)
        result["server_cpu_ms_per_pod"] = (server.cpu() - server_before) / count * 1000
        result["cpu_ms_per_pod"] = running.cpu_since_mark() / count * 1000
        result["peak_rss_mib"] = running.peak_mib()
        result["api_writes_per_pod"] = sum(server.log.writes[agent] for agent in running.agents) / count
    await check(server.kube, names | warm, cards=contender.chooses_cards)
    await clean(server.kube)
    return result


async def settled(server: Server, quiet: float = 0.7, seconds: float = 90) -> None:
    """Until nobody has written for a moment: late writes (events, PodGroups, status) belong to the burst."""
    deadline, before = time.monotonic() + seconds, -1
    while (now := server.log.writes.total()) != before and time.monotonic() < deadline:
        before = now
        await asyncio.sleep(quiet)
        server.log.read()


async def one_burst(server: Server, contender: Contender, name: str, count: int, seconds: float = 180) -> set[str]:
    """``name`` must be new to the server's log, or nothing is waited for."""
    gang = f"{name}-group" if contender.grouped else None
    if gang is not None:
        await create_groups(server.kube, [gang], 1)
    pods = [make_pod(f"{name}-{i}", i, scheduler=contender.schedules, gang=gang) for i in range(count)]
    assert not any(obj["metadata"]["name"] in server.log.bound for obj in pods), f"{name} was used before"
    names = await create_pods(server.kube, pods)
    await server.log.until_bound(names, seconds)
    return names


def rates(server: Server, names: set[str]) -> Figures:
    """From the first create received to the last Binding answered."""
    log = server.log
    first, last = min(log.requested[name] for name in names), max(log.bound[name] for name in names)
    created = max(log.created[name] for name in names)
    return {"pods_per_s": len(names) / (last - first), "created_per_s": len(names) / (created - first),
            "behind_creation_s": max(0.0, last - created)}  # fmt: skip


async def steady(server: Server, name: str, scheduler: str, rate: float, count: int) -> list[float]:
    """Delays in ms from a create answered to its Binding answered, at ``rate`` pods a second, sorted."""
    start = time.monotonic()
    names = set()
    for i in range(count):
        await asyncio.sleep(max(0.0, start + i / rate - time.monotonic()))
        names |= await create_pods(server.kube, [make_pod(f"{name}-{i}", i, scheduler=scheduler)])
    await server.log.until_bound(names, 120)
    return server.log.delays_ms(names)


def percentiles(delays: Sequence[float]) -> Figures:
    """p50 and p99 by nearest rank, and the longest, of sorted values."""
    return {"p50_ms": delays[len(delays) // 2], "p99_ms": delays[min(len(delays) - 1, int(len(delays) * 0.99))],
            "max_ms": delays[-1]}  # fmt: skip


