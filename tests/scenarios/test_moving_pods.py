"""``pumice defrag apply`` on the embedded API server with a live scheduler: one step at a time, stopped where the world
differs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kit.objects import node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.moving import Mover
from pumice.cli.casefile import Case, engine_of
from pumice.cli.defrag import opened
from pumice.cli.picture import collect
from pumice.ports.cluster import ApiError
from pumice.scheduler.explaining.moves import ForPod, Limits
from pumice.simulation.moving import Answer, planned
from pumice.wire import kinds, names

Json = dict[str, Any]
WHERE = "volcano-system/volcano-scheduler-configmap"
GOAL, LIMITS = ForPod("default", "late"), Limits(min_age=0.0)


def owned(name: str) -> Json:
    return pod(name, mib={"a": 3000, "b": 4000}[name], owner=name)


@asynccontextmanager
async def two_halves() -> AsyncIterator[Daemon]:
    """Two cards with a pod on each, the pods' controller and a kubelet."""
    async with daemon(node("n1", cards=2)) as running:
        await create(running.cluster, owned("b"))
        await running.bind_all("b")
        (held,) = [one for one in ("GPU-n1-0", "GPU-n1-1") if one in str((await running.cluster.pods())["b"])]
        await _cordon(running, held)
        await create(running.cluster, owned("a"))
        await running.bind_all("a")
        await _cordon(running, None)
        life = asyncio.create_task(_live(running))
        try:
            yield running
        finally:
            life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await life


async def _cordon(running: Daemon, card: str | None) -> None:
    await running.cluster.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.CORDONED_CARDS: card}}})


async def _live(running: Daemon) -> None:
    """Pods that are bound run; those that terminate are gone, and made anew under another name."""
    made = 0
    while True:
        for name, one in (await running.cluster.pods()).items():
            if one["metadata"].get("deletionTimestamp"):
                await running.cluster.delete(kinds.PODS, name, "default", grace=0)
                made += 1
                again = owned(name.partition("-")[0])
                again["metadata"]["name"] = f"{name}-{made}"
                await create(running.cluster, again)
            elif one["spec"].get("nodeName") and one.get("status", {}).get("phase") != "Running":
                await running.cluster.patch(kinds.PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")
        await running.clock.sleep(0.5)


async def picture(running: Daemon, ours: Mapping[str, frozenset[str]]) -> Case:
    case = opened(await collect(running.cluster, WHERE), ours)
    case.now += 1e9  # by the virtual clock the pods may be younger or older
    return case


async def answer(running: Daemon, ours: Mapping[str, frozenset[str]] | None = None) -> Answer:
    case = await picture(running, ours or {})
    return planned(lambda: engine_of(case), case.objects, case.now, GOAL, LIMITS)


async def applied(running: Daemon, plan: Answer) -> str:
    return await Mover(running.cluster, lambda ours: answer(running, ours), running.clock.sleep).carry_out(plan)


async def cordons(running: Daemon) -> str:
    found = await running.cluster.get(kinds.NODES, "n1")
    return str((found["metadata"].get("annotations") or {}).get(names.CORDONED_CARDS, ""))


async def _both_on_cards_of_their_own(running: Daemon) -> Answer:
    await create(running.cluster, pod("late", mib=8000))
    await running.clock.sleep(5)
    return await answer(running)


def scenario(story: Callable[[Daemon], Awaitable[None]]) -> None:
    async def play() -> None:
        async with two_halves() as running:
            await story(running)
            assert await cordons(running) == ""
            await running.audit()

    run_virtually(play())


def test_the_plan_is_carried_out_and_the_promised_pod_starts() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        assert len(plan.moves) == 1, plan
        assert await applied(running, plan) == ""
        assert await running.bound("late")

    scenario(story)


def test_an_eviction_that_is_refused_ends_it_and_nothing_stays_cordoned() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)

        def fault(verb: str, path: str) -> Any:
            if path.endswith("/eviction"):
                return ApiError(429, "TooManyRequests", "The disruption budget guards needs 2 healthy pods"), False
            return None

        running.cluster.fault = fault  # type: ignore[method-assign]
        why = await applied(running, plan)
        assert "was refused" in why
        assert why.endswith("0 of 1 moves were carried out")
        assert not await running.bound("late")

    scenario(story)


def test_a_world_that_has_overtaken_the_plan_stops_it_before_anybody_is_evicted() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        (move,) = plan.moves
        await running.cluster.delete(kinds.PODS, move.pod.partition("/")[2], "default", grace=0)
        assert await applied(running, plan) in (
            f"{move.pod} is not where the plan saw it; 0 of 1 moves were carried out",
            "default/late does not wait any more; 0 of 1 moves were carried out",
        )

    scenario(story)


def test_a_pod_that_has_since_said_no_is_left_alone() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        for name in ("a", "b"):
            note = {"metadata": {"annotations": {names.MOVE: "false"}}}
            await running.cluster.patch(kinds.PODS, name, note, "default")
        assert "1 moves do not lead there: no plan" in await applied(running, plan)
        assert {"a", "b"} <= set(await running.cluster.pods())

    scenario(story)
