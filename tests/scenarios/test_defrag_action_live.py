"""The action defrag in the whole daemon on the embedded API server: evictions, refusals, kills, a lost lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kit.objects import node, pod
from kit.scheduler_confs import conf, sharing
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.effects.vocabulary import Evict
from pumice.model.errors import Unavailable
from pumice.ports.cluster import ApiError
from pumice.scheduler.cycle.cycle import Plan
from pumice.wire import kinds, names

Json = dict[str, Any]
ON = "configurations:\n- name: defrag\n  arguments: {pumice.interval: 5s, pumice.min-age: 5s, pumice.max-moves: 2}\n" + conf(
    "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), actions="enqueue, allocate, backfill, defrag"
)
SIZES = {"a": 3000, "b": 4000}


def owned(name: str, **more: Any) -> Json:
    notes = {names.MOVE: "false"} if name == "b" else {}
    return pod(name, mib=SIZES[name], owner=name, annotations=notes, **more)


@asynccontextmanager
async def two_halves(settings: Settings | None = None) -> AsyncIterator[Daemon]:
    """Two cards with a pod on each, of which one may be moved, their controllers and a kubelet."""
    async with daemon(node("n1", cards=2), conf=ON, settings=settings) as running:
        for name, closed in (("b", "GPU-n1-0"), ("a", "GPU-n1-1")):
            await cordon(running, closed)
            await create(running.cluster, owned(name))
            await running.bind_all(name)
        await cordon(running, None)
        life = asyncio.create_task(live(running))
        try:
            await running.clock.sleep(6)
            yield running
        finally:
            life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await life


async def cordon(running: Daemon, card: str | None) -> None:
    await running.cluster.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.CORDONED_CARDS: card}}})


async def live(running: Daemon) -> None:
    """Pods that are bound run; those that terminate are gone, and made anew under another name."""
    made, cluster = 0, replace_fault(running)
    while True:
        for name, one in (await cluster.pods()).items():
            if one["metadata"].get("deletionTimestamp"):
                await cluster.delete(kinds.PODS, name, "default", grace=0)
                made += 1
                again = owned(name.partition("-")[0])
                again["metadata"]["name"] = f"{name.partition('-')[0]}-{made}"
                await create(cluster, again)
            elif one["spec"].get("nodeName") and one.get("status", {}).get("phase") != "Running":
                await cluster.patch(kinds.PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")
        await running.clock.sleep(0.5)


def replace_fault(running: Daemon) -> Any:
    """The same API server for a client that never fails."""
    again = object.__new__(type(running.cluster))
    again.__dict__.update(running.cluster.__dict__)
    again.fault = lambda verb, path: None
    return again


async def cards(running: Daemon) -> dict[str, str]:
    """Of each pod by the first part of its name, the number of its card; empty where it has none."""
    found = {}
    for name, one in (await replace_fault(running).pods()).items():
        ids = one["metadata"].get("annotations", {}).get(names.VGPU_IDS, "") if one["spec"].get("nodeName") else ""
        found[name.partition("-")[0]] = ids.partition(",")[0].rpartition("-")[2]
    return found


def scenario(story: Callable[[Daemon], Awaitable[None]]) -> None:
    async def play() -> None:
        async with two_halves() as running:
            await story(running)
            await running.audit()

    run_virtually(play())


def test_a_pod_is_moved_by_the_eviction_api_and_the_one_that_waits_starts() -> None:
    async def story(running: Daemon) -> None:
        asked: list[str] = []
        running.cluster.fault = lambda verb, path: asked.append(path) if path.endswith("/eviction") else None  # type: ignore[func-returns-value, method-assign]
        await create(running.cluster, pod("late", mib=8000))
        await running.clock.sleep(30)
        assert await cards(running) == {"a": "1", "b": "1", "late": "0"}
        assert asked == ["/api/v1/namespaces/default/pods/a/eviction"]
        assert "moved one by one: default/a from n1 to n1" in (await running.events("MovesBegun"))[0]
        assert await running.events("Evict") == ["Pod is evicted, because of defrag"]
        assert not await running.events("MovesStopped")

    scenario(story)


def test_a_budget_that_refuses_ends_the_plan_and_what_was_held_is_free_for_others() -> None:
    async def story(running: Daemon) -> None:
        refused = ApiError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        asked: list[str] = []

        def fault(verb: str, path: str) -> ApiError | None:
            if path.endswith("/eviction"):
                asked.append(path)
                return refused
            return None

        running.cluster.fault = fault  # type: ignore[method-assign, assignment]
        await create(running.cluster, pod("late", mib=8000))
        await running.clock.sleep(9)
        assert len(asked) == 1
        assert await running.events("MovesStopped") == ["the eviction of default/a was refused; 0 of 1 moves were carried out"]
        assert "budget" in (await running.events("EvictionRefused"))[0]
        assert "nominatedNodeName" not in (await running.cluster.pods())["late"]["status"]
        await create(running.cluster, pod("other", mib=5000))
        await running.bind_all("other")
        assert (await cards(running))["a"] == "0"

    scenario(story)


@pytest.mark.parametrize("kth", range(1, 9))
def test_a_scheduler_that_is_killed_after_any_write_of_a_plan_leaves_nothing_held_for_ever(kth: int) -> None:
    async def story(running: Daemon) -> None:
        writes, killed = 0, asyncio.Event()

        def fault(verb: str, path: str) -> Any:
            nonlocal writes
            if verb == "GET" or "/leases/" in path:
                return None
            writes += bool(writes) or path.endswith(("/late/status", "/eviction"))
            if writes >= kth:
                killed.set()
            return (ApiError(0, "Timeout", "no answer"), writes == kth) if writes >= kth else None

        running.cluster.fault = fault  # type: ignore[method-assign, assignment]
        await create(replace_fault(running), pod("late", mib=8000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                await killed.wait()
        await running.die()
        running.cluster.fault = lambda verb, path: None  # type: ignore[method-assign]
        heir = running.heir()
        await heir.ready.wait()
        await heir.clock.sleep(120)
        found = await cards(heir)
        assert found["late"]
        assert found["a"] == found["b"] != found["late"]
        ledger = heir.scheduler.engine.state
        assert not [uid for uid in ledger.ledger.placements if uid.startswith("held for")]
        assert (ledger.moves.plan, ledger.nominations.kept) == (None, {})

    scenario(story)


def test_a_scheduler_that_lost_its_lease_evicts_nobody() -> None:
    async def play() -> None:
        async with two_halves(replace(Settings(), leader_elect=True, identity="first")) as first:
            election, cycle = first.scheduler._election, first.scheduler.engine.cycle
            assert election is not None
            told, asked, changing = list[str](), list[str](), list[asyncio.Task[Any]]()

            def slow(*given: Any, **more: Any) -> Plan:
                plan = cycle(*given, **more)
                if found := [effect.name for effect in plan.effects if isinstance(effect, Evict)]:
                    told.extend(found)
                    election._renewed -= 60  # a minute in this cycle, as the clock tells it
                    theirs = {"holderIdentity": "second", "leaseDurationSeconds": 15, "renewTime": "2031-01-01T00:00:00.0Z"}
                    taking = first.cluster.patch(kinds.LEASES, "volcano", {"spec": theirs}, "volcano-system")
                    changing.append(asyncio.create_task(taking))
                return plan

            first.scheduler.engine.cycle = slow  # type: ignore[method-assign]
            first.cluster.fault = lambda verb, path: asked.append(path) if path.endswith("/eviction") else None  # type: ignore[func-returns-value, method-assign]
            await create(replace_fault(first), pod("late", mib=8000))
            with pytest.raises(Unavailable, match="the lease was lost"):
                await asyncio.wait_for(first.task, 60)
            assert (told, asked) == (["a"], [])
            assert (await cards(first))["a"] == "0"
            first.task = asyncio.create_task(asyncio.sleep(0))

    run_virtually(play())
