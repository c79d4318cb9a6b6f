"""One of several schedulers leads; a lease that is not renewed passes on."""

from __future__ import annotations

import asyncio
import random

from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.service.lease import Election
from pumice.ports.cluster import ApiError
from pumice.wire import kinds


class Nonsense:
    """Answers everything with one object."""

    def __init__(self, answer: dict[str, object]) -> None:
        self._answer = answer

    async def get(self, *_: object) -> dict[str, object]:
        return self._answer


def election(cluster: object, clock: VirtualClock, name: str) -> Election:
    return Election(cluster, clock, random.Random(name), "volcano", "volcano-system", identity=name)  # type: ignore[arg-type]


async def led_for(seconds: float) -> tuple[VirtualClock, FaultyCluster, Election, asyncio.Task[None]]:
    """A leader who has kept its lease that long."""
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    leader = election(cluster, clock, "first")
    await leader.acquire()
    keeping = asyncio.create_task(leader.keep(asyncio.Event()))
    await clock.sleep(seconds)
    return clock, cluster, leader, keeping


def test_the_second_waits_until_the_first_stops_renewing() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        first, second = election(cluster, clock, "first"), election(cluster, clock, "second")
        await first.acquire()
        keeping = asyncio.create_task(first.keep(asyncio.Event()))
        waiting = asyncio.create_task(second.acquire())
        await clock.sleep(60)
        assert not waiting.done()
        keeping.cancel()
        began = clock.monotonic()
        await waiting
        assert 12 <= clock.monotonic() - began <= 20
        lease = await cluster.get(kinds.LEASES, "volcano", "volcano-system")
        assert lease["spec"]["holderIdentity"] == "second"
        assert lease["spec"]["leaseTransitions"] == 1

    run_virtually(story())


def test_a_released_lease_passes_on_at_once() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        first, second = election(cluster, clock, "first"), election(cluster, clock, "second")
        await first.acquire()
        await first.release()
        began = clock.monotonic()
        await second.acquire()
        assert clock.monotonic() - began < 3

    run_virtually(story())


def test_a_lease_that_cannot_be_read_is_lost_like_one_that_cannot_be_renewed() -> None:
    async def story() -> None:
        clock, cluster, leader, keeping = await led_for(5)
        nonsense = await cluster.get(kinds.LEASES, "volcano", "volcano-system")
        leader.cluster = Nonsense({**nonsense, "spec": {**nonsense["spec"], "leaseDurationSeconds": "fifteen"}})  # type: ignore[assignment]
        await keeping
        assert clock.monotonic() <= 5 + 16

    run_virtually(story())


def test_a_leader_that_cannot_renew_steps_down_after_the_deadline() -> None:
    async def story() -> None:
        clock, cluster, _, keeping = await led_for(30)
        assert not keeping.done()
        cluster.fault = lambda verb, path: ApiError(0, "Timeout", "no answer") if "/leases" in path else None
        began = clock.monotonic()
        await keeping
        assert 8 <= clock.monotonic() - began <= 16

    run_virtually(story())
