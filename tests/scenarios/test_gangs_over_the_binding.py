"""A gang of eight that a Job makes is bound whole or evicted whole, whatever happens to its Bindings, and no card that a bound
pod holds is ever free in the ledger meanwhile. What nobody would make anew stays (``test_gangs_amid_outages.py``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kit.faulty_cluster import Fault
from kit.objects import group, node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.audit.auditor import audit
from pumice.ports.cluster import ApiError
from pumice.wire import kinds

SIZE = 8
PATIENCE = 10.0
"""Seconds within which a gang must stand whole or be gone."""
REFUSED = ApiError(500, "InternalError", "injected")
LATE = ApiError(0, "Timeout", "no answer")


def gang() -> list[dict[str, Any]]:
    return [group("g", minimum=SIZE), *(pod(f"g-{i}", mib=8000, group="g", owner="g") for i in range(SIZE))]


def bindings(answer: Callable[[int, str], ApiError | tuple[ApiError, bool] | None]) -> Fault:
    """A fault of Bindings only; they are counted from 1."""
    count = [0]

    def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
        if not path.endswith("/binding"):
            return None
        count[0] += 1
        return answer(count[0], path)

    return fault


async def standing(running: Daemon) -> list[dict[str, Any]]:
    pods = (await running.cluster.pods()).values()
    return [p for p in pods if p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]


@asynccontextmanager
async def watched(running: Daemon) -> AsyncIterator[None]:
    """At every moment, what the API server shows as bound is booked in the ledger, on that node and those cards."""

    async def look() -> None:
        while True:
            objects = (await running.cluster.pods()).values()
            ledger = running.scheduler.engine.state.ledger
            for obj in objects:
                if not obj["spec"].get("nodeName"):
                    continue
                placement = ledger.placements.get(obj["metadata"]["uid"])
                assert placement is not None, f"{obj['metadata']['name']} is bound and holds nothing"
                assert placement.node == obj["spec"]["nodeName"]
                book = ledger.device_tables["nvidia-vgpu"].nodes[placement.node]
                holders = [u for usage in book.usages for u in usage.holders]
                assert obj["metadata"]["uid"] in holders, f"{obj['metadata']['name']} is bound and its card is free"
            await running.clock.sleep(0.07)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        if looking.done():
            looking.result()
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def whole_or_evicted(running: Daemon) -> int:
    """Wait for the gang's time, then count its members; none or all."""
    await running.clock.sleep(PATIENCE)
    left = await standing(running)
    assert len(left) in (0, SIZE), [p["metadata"]["name"] for p in left]
    return len(left)


def story_of(fault: Callable[[Daemon], Fault], *, whole: bool | None, evicted: bool | None = None) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4), node("n2", cards=4)) as running, watched(running):
            running.cluster.fault = fault(running)
            await create(running.cluster, *gang())
            left = await whole_or_evicted(running)
            if whole is not None:
                assert (left == SIZE) is whole
            if evicted:
                texts = await running.events("Evict")
                assert "Pod is evicted, because of its gang could not be bound as a whole" in texts
                assert "its gang could not be bound as a whole" in texts
            nodes = (await running.cluster.list(kinds.NODES))["items"]
            assert audit(nodes, (await running.cluster.pods()).values()) == []

    run_virtually(story())


@pytest.mark.parametrize("first", range(SIZE))
def test_only_the_first_k_bindings_are_ever_accepted(first: int) -> None:
    story_of(lambda _: bindings(lambda n, path: REFUSED if n > first else None), whole=False, evicted=first > 0)


@pytest.mark.parametrize("first", range(SIZE))
def test_after_k_bindings_two_seconds_of_refusals(first: int) -> None:
    def fault(running: Daemon) -> Fault:
        began = running.clock.monotonic()
        return bindings(lambda n, path: REFUSED if n > first and running.clock.monotonic() < began + 2 else None)

    story_of(fault, whole=True)


@pytest.mark.parametrize("kth", range(1, SIZE + 1))
def test_one_members_binding_is_refused_for_ever(kth: int) -> None:
    def fault(running: Daemon) -> Fault:
        cursed: list[str] = []

        def answer(n: int, path: str) -> ApiError | None:
            if n == kth:
                cursed.append(path)
            return REFUSED if path in cursed else None

        return bindings(answer)

    story_of(fault, whole=False, evicted=True)


@pytest.mark.parametrize("done", [True, False], ids=["done all the same", "not done"])
@pytest.mark.parametrize("every", range(1, SIZE + 1))
def test_every_kth_binding_is_answered_by_a_timeout(every: int, done: bool) -> None:
    story_of(lambda _: bindings(lambda n, path: (LATE, True) if done and n % every == 0 else
                                LATE if n % every == 0 and n <= 2 * SIZE else None), whole=True)  # fmt: skip


@pytest.mark.parametrize("first", range(SIZE))
def test_the_server_falls_silent_after_k_bindings_and_answers_again_later(first: int) -> None:
    """The k-th Binding and all after it are done, but neither they nor any other request are answered for four seconds."""

    def fault(running: Daemon) -> Fault:
        count, silent_until = [0], [0.0]

        def silent(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            now = running.clock.monotonic()
            if path.endswith("/binding"):
                count[0] += 1
                if count[0] > first and not silent_until[0]:
                    silent_until[0] = now + 4
                if now < silent_until[0]:
                    return (LATE, True)
            elif now < silent_until[0] and "/pods/g-" in path:
                return LATE
            return None

        return silent

    story_of(fault, whole=True)


@pytest.mark.parametrize("rival", [False, True], ids=["alone", "beside a rival that takes the rest of the room"])
@pytest.mark.parametrize("kth", range(1, SIZE + 1))
def test_the_scheduler_is_killed_amid_the_bindings(kth: int, rival: bool) -> None:
    """Its successor completes the gang, or evicts the half that it finds when there is no room for the rest."""

    async def story() -> None:
        async with daemon(node("n1", cards=4), node("n2", cards=4)) as running:
            killed = asyncio.Event()
            running.scheduler.binder.concurrency = 1

            def kill(n: int, path: str) -> ApiError | None:
                if n > kth:
                    killed.set()
                return LATE if n > kth else None

            running.cluster.fault = bindings(kill)
            await create(running.cluster, *gang())
            if kth < SIZE:
                await killed.wait()
            else:
                await running.clock.sleep(0.5)
            await running.die()
            running.cluster.fault = lambda verb, path: None
            assert len(await standing(running)) == kth
            if rival and kth < SIZE:
                taken = pod("rival", mib=8000, nodeName="n2", annotations={
                    "volcano.sh/vgpu-ids-new": f"GPU-n2-{await free_card(running)},NVIDIA,8000,0:",
                    "volcano.sh/vgpu-node": "n2"})  # fmt: skip
                await create(running.cluster, taken)
            heir = running.heir()
            await heir.ready.wait()
            async with watched(heir):
                await heir.clock.sleep(PATIENCE)
            left = [p for p in await standing(heir) if p["metadata"]["name"] != "rival"]
            assert len(left) == (0 if rival and kth < SIZE else SIZE)
            if rival and kth < SIZE:
                assert "its gang could not be bound as a whole" in await heir.events("Evict")
            await heir.audit()

    run_virtually(story())


async def free_card(running: Daemon) -> int:
    """A card of n2 that nobody has been given."""
    given = " ".join(p["metadata"].get("annotations", {}).get("volcano.sh/vgpu-ids-new", "") for p in await standing(running))
    return next(i for i in range(4) if f"GPU-n2-{i}," not in given)


def test_members_that_come_back_to_a_running_gang_do_not_endanger_it() -> None:
    """Two of eight are made anew; one of them cannot be bound: the other goes, the six that ran go on."""

    async def story() -> None:
        async with daemon(node("n1", cards=8)) as running, watched(running):
            await create(running.cluster, *gang())
            await running.bind_all(*(f"g-{i}" for i in range(SIZE)))
            await running.clock.sleep(1)
            for name in ("g-0", "g-1"):
                await running.cluster.delete(kinds.PODS, name, "default", grace=0)
            running.cluster.fault = lambda verb, path: REFUSED if path.endswith("/h-0/binding") else None
            await create(running.cluster, *(pod(f"h-{i}", mib=8000, group="g", owner="g") for i in range(2)))
            await running.clock.sleep(PATIENCE)
            assert {p["metadata"]["name"] for p in await standing(running)} == {f"g-{i}" for i in range(2, SIZE)}

    run_virtually(story())


def test_the_last_member_after_a_restart_cannot_be_bound_and_the_half_is_evicted() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=8)) as running:
            running.cluster.fault = lambda verb, path: LATE if path.endswith("/g-7/binding") else None
            await create(running.cluster, *gang())
            await running.clock.sleep(0.5)
            await running.die()
            assert len(await standing(running)) == SIZE - 1
            running.cluster.fault = lambda verb, path: REFUSED if path.endswith("/g-7/binding") else None
            heir = running.heir()
            assert await whole_or_evicted(heir) == 0

    run_virtually(story())


def test_a_gang_that_was_evicted_does_not_come_back_in_part() -> None:
    """The member that could not be bound is not bound alone while the others are going."""

    async def story() -> None:
        async with daemon(node("n1", cards=8)) as running, watched(running):
            tasks, count = running.scheduler.engine.state.tasks, [0]

            def fault(verb: str, path: str) -> ApiError | None:
                given_up = any(task.backoff.times for task in tasks.values())
                if path.endswith("/pods/g-0/binding") and not given_up:
                    return REFUSED
                if verb == "DELETE" and count[0] < 20:  # the evictions take their time
                    count[0] += 1
                    return ApiError(503, "ServiceUnavailable", "later")
                return None

            running.cluster.fault = fault
            await create(running.cluster, *gang())
            await whole_or_evicted(running)
            await running.clock.sleep(30)
            assert len(await standing(running)) in (0, SIZE)

    run_virtually(story())


def test_a_gang_is_evicted_in_time_although_no_other_write_is_ever_answered() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=8)) as running, watched(running):

            async def hangs(*_: Any, **__: Any) -> Any:
                await asyncio.sleep(3600)

            running.cluster.patch = hangs  # type: ignore[method-assign]
            running.cluster.fault = lambda verb, path: REFUSED if path.endswith("/g-0/binding") else None
            await create(running.cluster, *gang(), *(pod(f"too-big-{i}", mib=9000 + i) for i in range(30)))
            assert await whole_or_evicted(running) == 0

    run_virtually(story())


def test_the_cards_of_a_pod_that_may_be_bound_are_kept_until_the_server_answers() -> None:
    """Its Binding was done and nobody said so; nothing can be asked for a minute, and another pod waits for its card."""

    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running, watched(running):
            silence = [False]

            def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
                if path.endswith("/pods/a/binding"):
                    silence[0] = True
                    return (LATE, True)
                return LATE if silence[0] and path.endswith("/pods/a") else None

            running.cluster.fault = fault
            await create(running.cluster, pod("a", mib=8000))
            await running.clock.sleep(1)
            await create(running.cluster, pod("b", mib=8000))
            await running.clock.sleep(60)
            running.cluster.fault = lambda verb, path: None
            await running.clock.sleep(30)
            assert [p["metadata"]["name"] for p in await standing(running)] == ["a"]
            await running.audit()

    run_virtually(story())
