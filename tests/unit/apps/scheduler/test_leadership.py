"""Several schedulers of one cluster: one leads, the others wait, and nobody decides on an outdated lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import node, pod
from kit.room_worlds import room_conf
from kit.scheduler_daemon import CONF, Daemon, create
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.effects.vocabulary import Evict
from pumice.model.errors import Unavailable
from pumice.ports.cluster import ApiError
from pumice.scheduler.cycle.cycle import Plan
from pumice.wire import kinds

PREEMPTING = room_conf("enqueue, allocate, preempt, backfill", spares_gangs="false")
DURATION, RETRY = 15.0, 2.0


async def place() -> tuple[FaultyCluster, VirtualClock]:
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": CONF}}
    await cluster.create(kinds.CONFIGMAPS, body, "volcano-system")
    await cluster.put_node(node("n1", cards=4))
    return cluster, clock


def candidate(cluster: FaultyCluster, clock: VirtualClock, name: str, **settings: Any) -> Daemon:
    return Daemon(cluster, clock, Settings(leader_elect=True, identity=name, **settings), seed=len(name))


async def kill(daemon: Daemon) -> None:
    """As SIGKILL: nothing is finished, nothing given back."""
    keeper = daemon.scheduler._keeper
    daemon.scheduler._keeper = None
    assert keeper is not None
    for task in (keeper, daemon.task):
        task.cancel()
    await asyncio.gather(keeper, daemon.task, return_exceptions=True)


async def holder(cluster: FaultyCluster, name: str = "volcano") -> str:
    return str((await cluster.get(kinds.LEASES, name, "volcano-system"))["spec"]["holderIdentity"])


async def with_bindings_that_wait() -> tuple[FaultyCluster, VirtualClock, Daemon, asyncio.Event]:
    """A leader that has decided on pods a and b; one Binding is on its way and comes in once the event is set."""
    cluster, clock = await place()
    leader = candidate(cluster, clock, "first", bind_concurrency=1)
    await asyncio.wait_for(leader.ready.wait(), 5)
    gate = holds_bindings(cluster)
    await create(cluster, pod("a", mib=4000), pod("b", mib=4000))
    await clock.sleep(0.5)
    return cluster, clock, leader, gate


def holds_bindings(cluster: FaultyCluster) -> asyncio.Event:
    """From now on Bindings are on their way until the event is set."""
    gate, request = asyncio.Event(), cluster.request

    async def slow(verb: str, path: str, **options: Any) -> bytes:
        if path.endswith("/binding"):
            await gate.wait()
        return await request(verb, path, **options)

    cluster.request = slow  # type: ignore[method-assign]
    return gate


def test_when_the_leader_is_killed_the_other_takes_over_and_binds_what_waits() -> None:
    async def story() -> None:
        cluster, clock = await place()
        first = candidate(cluster, clock, "first")
        await asyncio.wait_for(first.ready.wait(), 5)
        second = candidate(cluster, clock, "second")
        await create(cluster, pod("a", mib=4000))
        await first.bind_all("a")
        await clock.sleep(60)
        assert await holder(cluster) == "first"
        assert not second.ready.is_set()
        assert (await second.page("/readyz"))[0] == 200, "a stand-by with a complete cache is ready to take over"
        await kill(first)
        began = clock.monotonic()
        await create(cluster, pod("b", mib=4000))
        await second.until(lambda: second.bound("b"), DURATION + 2 * RETRY)
        assert DURATION - RETRY <= clock.monotonic() - began <= DURATION + 1.2 * RETRY + 1
        assert await holder(cluster) == "second"
        await second.audit()
        await second.close()

    run_virtually(story())


def test_a_leader_that_stops_hands_over_at_once() -> None:
    async def story() -> None:
        cluster, clock = await place()
        first = candidate(cluster, clock, "first")
        await asyncio.wait_for(first.ready.wait(), 5)
        second = candidate(cluster, clock, "second")
        await clock.sleep(5)
        await first.close()
        began = clock.monotonic()
        await asyncio.wait_for(second.ready.wait(), 10)
        assert clock.monotonic() - began <= 1.2 * RETRY + 0.1
        await second.close()

    run_virtually(story())


def test_a_leader_whose_lease_requests_are_never_answered_stops_before_another_may_lead() -> None:
    """A half-open connection: the request neither fails nor ends."""

    async def story() -> None:
        cluster, clock = await place()
        first = candidate(cluster, clock, "first")
        await asyncio.wait_for(first.ready.wait(), 5)
        await clock.sleep(5)
        silent, request = asyncio.Event(), cluster.request

        async def hang(verb: str, path: str, **options: Any) -> bytes:
            if "/leases/" in path:
                await silent.wait()
            return await request(verb, path, **options)

        cluster.request = hang  # type: ignore[method-assign]
        began = clock.monotonic()
        with pytest.raises(Unavailable, match="the lease was lost"):
            await first.task
        assert clock.monotonic() - began < DURATION

    run_virtually(story())


def test_a_process_that_was_frozen_decides_nothing_on_its_old_lease() -> None:
    async def story() -> None:
        cluster, clock = await place()
        first = candidate(cluster, clock, "first")
        await asyncio.wait_for(first.ready.wait(), 5)
        first.scheduler._election._renewed -= 60  # type: ignore[union-attr] # a minute of SIGSTOP, as the clock tells it
        cluster.fault = lambda verb, path: ApiError(0, "Timeout", "no answer") if "/leases" in path else None
        await create(cluster, pod("a", mib=4000))
        with pytest.raises(Unavailable):
            await first.task
        assert not await first.bound("a")

    run_virtually(story())


def test_without_the_lease_bindings_that_were_decided_wait_and_are_sent_once_it_is_renewed() -> None:
    async def story() -> None:
        cluster, clock, first, gate = await with_bindings_that_wait()
        away = True
        cluster.fault = lambda verb, path: ApiError(0, "Timeout", "no answer") if away and "/leases" in path else None
        first.scheduler._election._renewed -= 60  # type: ignore[union-attr] # a minute of SIGSTOP, as the clock tells it
        gate.set()
        await clock.sleep(1)
        assert sorted([await first.bound("a"), await first.bound("b")]) == [False, True], "only the one that was on its way"
        away = False
        await first.until(lambda: first.bound("a", "b"), 5)
        await first.close()

    run_virtually(story())


def test_a_leader_whose_lease_was_taken_sends_nothing_more() -> None:
    async def story() -> None:
        cluster, clock, first, gate = await with_bindings_that_wait()
        taken = {"spec": {"holderIdentity": "upstream_1", "leaseDurationSeconds": 15, "renewTime": "2031-01-01T00:00:00.000000Z"}}
        await cluster.patch(kinds.LEASES, "volcano", taken, "volcano-system")
        with pytest.raises(Unavailable, match="the lease was lost"):
            await asyncio.wait_for(first.task, 10)
        gate.set()
        await clock.sleep(10)
        assert not await first.bound("a")
        assert not await first.bound("b")
        assert await holder(cluster) == "upstream_1"

    run_virtually(story())


@pytest.mark.parametrize("taken", [False, True], ids=["alone", "another leads"])
def test_who_is_late_after_a_long_cycle_renews_its_lease_before_anything_else_and_evicts_only_as_the_leader(taken: bool) -> None:
    async def story() -> None:
        cluster, clock = await place()
        await cluster.patch(
            kinds.CONFIGMAPS, "volcano-scheduler-configmap", {"data": {"volcano-scheduler.conf": PREEMPTING}}, "volcano-system"
        )
        await cluster.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
        first = candidate(cluster, clock, "first")
        await asyncio.wait_for(first.ready.wait(), 5)
        await create(cluster, pod("low", cards=4, mib=8000, terminationGracePeriodSeconds=0))
        await first.bind_all("low")
        await cluster.patch(kinds.PODS, "low", {"status": {"phase": "Running"}}, "default", subresource="status")
        election, reported = first.scheduler._election, list[str]()
        assert election is not None
        requested, cycle = list[str](), first.scheduler.engine.cycle

        def slow(*given: Any, **more: Any) -> Plan:
            plan = cycle(*given, **more)
            if found := [effect.name for effect in plan.effects if isinstance(effect, Evict)]:
                reported.extend(found)
                election._renewed -= 60  # a minute in this cycle, as the clock tells it
                if taken:
                    theirs = {"holderIdentity": "upstream_1", "leaseDurationSeconds": 15, "renewTime": "2031-01-01T00:00:00.0Z"}
                    taking = cluster.patch(kinds.LEASES, "volcano", {"spec": theirs}, "volcano-system")
                    changing.append(asyncio.create_task(taking))
                requested.clear()
            return plan

        changing = list[asyncio.Task[Any]]()
        first.scheduler.engine.cycle = slow  # type: ignore[method-assign]
        cluster.fault = lambda verb, path: requested.append(f"{verb} {path}") if verb != "GET" else None  # type: ignore[func-returns-value]
        await create(cluster, pod("high", cards=4, mib=8000, priorityClassName="high"))
        if taken:
            with pytest.raises(Unavailable, match="the lease was lost"):
                await asyncio.wait_for(first.task, 20)
            assert reported == ["low"]
            assert "low" in await cluster.pods()
            assert [one for one in requested if "/leases/" not in one] == []
        else:
            await first.until(lambda: first.bound("high"), 20)
            assert reported == ["low"], "once, and not refused"
            assert requested[0].startswith("PUT")
            assert "/leases/" in requested[0]
            await first.close()

    run_virtually(story())


def test_a_stop_does_not_wait_long_for_a_lease_that_nobody_takes_back() -> None:
    async def story() -> None:
        cluster, clock = await place()
        first = candidate(cluster, clock, "first")
        await asyncio.wait_for(first.ready.wait(), 5)
        request = cluster.request

        async def hang(verb: str, path: str, **options: Any) -> bytes:
            if "/leases/" in path:
                await asyncio.Event().wait()
            return await request(verb, path, **options)

        cluster.request = hang  # type: ignore[method-assign]
        began = clock.monotonic()
        await first.close()
        assert clock.monotonic() - began < 10

    run_virtually(story())


@pytest.mark.parametrize(("names", "lease"), [(("volcano",), "volcano"), (("team",), "team"), (("a", "b"), "volcano")])
def test_the_lease_is_named_after_the_only_scheduler_name(names: tuple[str, ...], lease: str) -> None:
    async def story() -> None:
        cluster, clock = await place()
        leader = candidate(cluster, clock, "", scheduler_names=names)
        await asyncio.wait_for(leader.ready.wait(), 5)
        host, _, unique = (await holder(cluster, lease)).rpartition("_")
        assert host
        assert len(unique) == 32
        await leader.close()
        assert await holder(cluster, lease) == ""

    run_virtually(story())
