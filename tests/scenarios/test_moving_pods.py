"""``pumice defrag apply`` on the embedded API server with a live scheduler: one step at a time, stopped where the world
differs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kit.objects import group, node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.moving import HELD, Mover, _at
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.cli.defrag import opened, taken_over
from pumice.cli.snapshot_source import collect
from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError
from pumice.scheduler.cycle.defragmenting.asking import Limits
from pumice.scheduler.explaining.moves import ForCards, ForGroup, ForPod, Goal
from pumice.simulation.moving import Answer, HeldCard, Outlook, Place, outlook, planned
from pumice.wire import kinds, names, volcano
from pumice.wire.held_places import HeldPlace, render_held_places
from pumice.wire.times import stamp

Json = dict[str, Any]
WHERE = "volcano-system/volcano-scheduler-configmap"
GOAL, LIMITS = ForPod("default", "late"), Limits(min_age=0.0)


def owned(name: str) -> Json:
    return pod(name, mib={"a": 3000, "b": 4000}[name], owner=name)


@asynccontextmanager
async def two_halves(cards: int = 2) -> AsyncIterator[Daemon]:
    """Cards with a pod on each of two, the pods' controller and a kubelet."""
    async with daemon(node("n1", cards=cards)) as running:
        await create(running.cluster, owned("b"))
        await running.bind_all("b")
        (held,) = [one for one in (f"GPU-n1-{at}" for at in range(cards)) if one in str((await running.cluster.pods())["b"])]
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


async def take_snapshot(running: Daemon, goal: Goal = GOAL) -> ClusterSnapshot:
    case = opened(await collect(running.cluster, WHERE), goal.text)
    case.now += 1e9  # by the virtual clock the pods may be younger or older
    return case


async def before(running: Daemon) -> set[str]:
    case = await collect(running.cluster, WHERE)
    case.now = running.clock.now()
    return taken_over(case, GOAL.text)[0]


async def answer(running: Daemon, goal: Goal = GOAL) -> Answer:
    case = await take_snapshot(running, goal)
    return planned(lambda: engine_of(case), case.objects, case.now, goal, LIMITS)


async def applied(running: Daemon, plan: Answer, goal: Goal = GOAL) -> str:
    return await mover(running, plan, goal).carry_out(plan)


def mover(running: Daemon, plan: Answer, goal: Goal = GOAL) -> Mover:
    async def again(done: int, moved: Sequence[str]) -> Outlook:
        case = await take_snapshot(running, goal)
        return outlook(lambda: engine_of(case), case.objects, case.now, plan, done, moved, LIMITS)

    return Mover(running.cluster, again, running.clock.sleep, running.clock.now)


def mover_again(running: Daemon, plan: Answer) -> Mover:
    """As the command makes it that is given again."""
    moving = mover(running, plan)
    moving.nodes = {"n1"}
    return moving


async def holds(running: Daemon) -> str:
    """What the node says, and what the scheduler has on its books."""
    found = await running.cluster.get(kinds.NODES, "n1")
    booked = [uid for uid in running.scheduler.engine.state.ledger.placements if "held on" in uid]
    return str((found["metadata"].get("annotations") or {}).get(names.HELD_PLACES, "")) + ", ".join(booked)


async def _both_on_cards_of_their_own(running: Daemon) -> Answer:
    await create(running.cluster, pod("late", mib=8000))
    await running.clock.sleep(5)
    return await answer(running)


def scenario(story: Callable[[Daemon], Awaitable[None]], cards: int = 2) -> None:
    async def play() -> None:
        async with two_halves(cards) as running:
            await story(running)
            await running.clock.sleep(1)
            assert await holds(running) == ""
            assert not running.scheduler.engine.state.problems
            await running.audit()

    run_virtually(play())


def test_the_plan_is_carried_out_and_the_promised_pod_starts() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        assert len(plan.moves) == 1, plan
        assert await applied(running, plan) == ""
        assert await running.bound("late")

    scenario(story)


def test_a_gang_starts_whole_on_the_cards_that_are_held_for_it() -> None:
    async def story(running: Daemon) -> None:
        goal = ForGroup("default", "train")
        await running.cluster.create(volcano.POD_GROUPS, group("train", minimum=2), "default")
        for name in ("t0", "t1"):
            await create(running.cluster, pod(name, mib=8000, group="train"))
        await running.clock.sleep(5)
        plan = await answer(running, goal)
        assert (len(plan.moves), len(plan.starts)) == (1, 2), plan
        moving = mover(running, plan, goal)
        moving.kube = Crowd(running.cluster, pod("large", mib=8000))  # type: ignore[assignment]
        assert await moving.carry_out(plan) == ""
        assert [await running.bound(name) for name in ("t0", "t1", "large")] == [True, True, False]

    scenario(story, cards=3)


def test_whole_cards_come_free_and_nobody_is_moved_beyond_that() -> None:
    async def story(running: Daemon) -> None:
        await running.clock.sleep(2)
        plan = await answer(running, ForCards(1))
        assert len(plan.moves) == 1
        assert await applied(running, plan, ForCards(1)) == ""
        notes = str([one["metadata"]["annotations"] for one in (await running.cluster.pods()).values()])
        assert len({uuid for uuid in ("GPU-n1-0", "GPU-n1-1") if uuid in notes}) == 1
        assert (await answer(running, ForCards(1))).reached

    scenario(story)


def test_an_eviction_that_is_refused_ends_it_and_nothing_stays_held() -> None:
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


def test_an_eviction_that_is_refused_half_way_leaves_who_was_moved_where_it_is_and_nothing_held() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        (first,) = plan.moves
        pods = await running.cluster.pods()
        (other,) = {"a", "b"} - {first.pod.partition("/")[2]}
        second = replace(first, pod=f"default/{other}", uid=pods[other]["metadata"]["uid"], owner=f"job-{other}",
                         source=replace(first.target), target=replace(first.source), closed=())  # fmt: skip
        asked: list[str] = []

        async def leads_there(done: int, moved: Sequence[str]) -> Outlook:
            return Outlook()

        def fault(verb: str, path: str) -> Any:
            if path.endswith("/eviction"):
                asked.append(path)
            return (ApiError(429, "TooManyRequests", "not now"), False) if path.endswith("/eviction") and asked[1:] else None

        moving = mover(running, plan)
        moving.again = leads_there
        running.cluster.fault = fault  # type: ignore[method-assign]
        why = await moving.carry_out(replace(plan, moves=(first, second)))
        assert why == f"the eviction of default/{other} was refused: not now; 1 of 2 moves were carried out"
        assert other in await running.cluster.pods()

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
        assert "1 moves do not lead there: default/" in await applied(running, plan)
        assert {"a", "b"} <= set(await running.cluster.pods())

    scenario(story)


# -- answers that are lost, and a run that is killed ---------------------------------------------------------------------


@pytest.mark.parametrize(("code", "done"), [
    (403, False), (429, False), (500, False), (504, False), (0, False), (504, True), (0, True),
])  # fmt: skip
def test_an_eviction_without_an_answer_goes_by_what_became_of_the_pod(code: int, done: bool) -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)

        def fault(verb: str, path: str) -> Any:
            return (ApiError(code, "Timeout", "no answer"), done) if path.endswith("/eviction") else None

        running.cluster.fault = fault  # type: ignore[method-assign]
        why = await applied(running, plan)
        assert (why == "") is done, why
        assert await running.bound("late") is done

    scenario(story)


def test_a_hold_whose_answer_is_lost_is_ended_all_the_same() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        asked = []

        def fault(verb: str, path: str) -> Any:
            if verb == "PATCH" and path.endswith("/nodes/n1"):
                asked.append(path)
                return (ApiError(504, "Timeout", "no answer"), True) if len(asked) == 1 else None
            return None

        running.cluster.fault = fault  # type: ignore[method-assign]
        assert "0 of 1 moves were carried out" in await applied(running, plan)

    scenario(story)


def test_places_that_stay_held_are_named_with_the_command_that_frees_them() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        moving = mover(running, plan)
        said: list[str] = []
        refused: list[str] = []
        moving.say = said.append

        def fault(verb: str, path: str) -> Any:
            if path.endswith("/eviction") or (verb == "PATCH" and path.endswith("/nodes/n1") and refused):
                refused.append(path)
                return ApiError(403, "Forbidden", "not you"), False
            return None

        running.cluster.fault = fault  # type: ignore[method-assign]
        assert "was refused" in await moving.carry_out(plan)
        assert "kubectl annotate node n1 pumice.io/held-places-" in said[-1], said
        running.cluster.fault = lambda verb, path: None  # type: ignore[method-assign]
        assert await mover_again(running, plan).open(plan.goal) == ""

    scenario(story)


class Away:
    """A client that gets no pods for a while once it has evicted one."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.refusals = cluster, 0

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            if verb == "create":
                self.refusals = 8
            elif verb == "list" and self.refusals > 1:
                self.refusals -= 1
                raise ApiError((503, 429, 0)[self.refusals % 3], "ServiceUnavailable", "starting")
            return await getattr(self.cluster, verb)(*args, **more)

        return call


def test_an_api_server_that_is_away_while_a_pod_is_awaited_ends_nothing() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        moving = mover(running, plan)
        moving.kube = away = Away(running.cluster)  # type: ignore[assignment]
        assert await moving.carry_out(plan) == ""
        assert away.refusals == 1

    scenario(story)


def test_another_run_for_another_goal_is_not_disturbed() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        text = render_held_places((HeldPlace(("GPU-n1-0",), stamp(running.clock.now() + 100)),))
        held = {names.HELD_FOR_MOVES: "pod default/other", names.HELD_PLACES: text}
        await running.cluster.patch(kinds.NODES, "n1", {"metadata": {"annotations": held}})
        assert "held for pod default/other by another pumice defrag apply" in await applied(running, plan)
        assert text in await holds(running)
        with pytest.raises(BadInput, match="held for pod default/other"):
            await before(running)
        await running.clock.sleep(101)
        assert await before(running) == set()
        assert await applied(running, await answer(running)) == ""

    scenario(story)


class Killed(BaseException):
    """No ``except`` of a process sees its end."""


class Mortal:
    """A client whose process ends at one of its writes, before it or behind it."""

    def __init__(self, cluster: Any, at: int, *, behind: bool) -> None:
        self.cluster, self.left, self.behind = cluster, at, behind

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            writes = verb in ("create", "patch")
            if self.left < 0 or (writes and self.left == 0 and not self.behind):
                self.left = -1
                raise Killed
            answer = await getattr(self.cluster, verb)(*args, **more)
            if writes:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            return answer

        return call


class Overtaken:
    """A client whose first eviction is preceded by the holds of a later run for the same goal."""

    def __init__(self, cluster: Any, later: Callable[[], Awaitable[str]], *, refused: bool) -> None:
        self.cluster, self.later, self.refused = cluster, later, refused

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            if verb == "create":
                with contextlib.suppress(Killed):
                    await self.later()
                if self.refused:
                    raise ApiError(429, "TooManyRequests", "the budget")
            return await getattr(self.cluster, verb)(*args, **more)

        return call


@pytest.mark.parametrize("refused", [False, True])
def test_a_run_that_a_later_one_of_the_same_goal_has_overtaken_stops_and_leaves_its_places_alone(refused: bool) -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        first, second = mover(running, plan), mover(running, plan)
        first.run, second.run, second.earlier = "one", "two", frozenset({"one"})
        second.kube = Mortal(running.cluster, 1, behind=False)  # type: ignore[assignment]
        first.kube = Overtaken(running.cluster, lambda: second.carry_out(plan), refused=refused)  # type: ignore[assignment]
        assert ("was refused" if refused else "by another pumice defrag apply") in await first.carry_out(plan)
        assert "until" in await holds(running)
        second.kube = running.cluster
        assert await second.open(plan.goal) == ""

    scenario(story)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("at", range(4))
def test_a_run_that_is_killed_anywhere_is_ended_by_the_same_command_again(at: int, behind: bool) -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        moving = mover(running, plan)
        moving.kube = Mortal(running.cluster, at, behind=behind)  # type: ignore[assignment]
        with contextlib.suppress(Killed):
            await moving.carry_out(plan)
        await running.clock.sleep(10)
        for _ in range(2):  # the second command has nothing left to do
            there = await before(running)
            late = (await running.cluster.pods())["late"]
            if late["spec"].get("nodeName"):
                assert await mover_again(running, plan).open(plan.goal) == ""
                continue
            rest = await answer(running)
            moving = mover(running, rest)
            moving.nodes = there
            assert await (moving.carry_out(rest) if rest.moves else moving.open(rest.goal)) == ""
            await running.clock.sleep(10)
        assert await running.bound("late")

    scenario(story)


@pytest.mark.parametrize("at", range(3))
def test_a_run_that_is_killed_and_not_given_again_holds_nothing_beyond_its_time(at: int) -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        moving = mover(running, plan)
        moving.kube = Mortal(running.cluster, at, behind=True)  # type: ignore[assignment]
        with contextlib.suppress(Killed):
            await moving.carry_out(plan)
        assert "until" in await holds(running)
        await running.clock.sleep(HELD + 1)
        await create(running.cluster, pod("more", mib=1000))
        await running.bind_all("more")
        assert "held on" not in await holds(running)
        await running.cluster.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.HELD_PLACES: None}}})

    scenario(story)


def test_a_third_pod_that_comes_while_a_pod_is_moved_takes_neither_its_place_nor_the_one_that_comes_free() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        moving = mover(running, plan)
        moving.kube = Crowd(running.cluster, pod("thief", mib=3000), pod("large", mib=8000))  # type: ignore[assignment]
        assert await moving.carry_out(plan) == ""
        assert await running.bound("late")
        assert not await running.bound("large")

    scenario(story)


class Noting:
    """A client whose calls are noted."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.calls = cluster, set[tuple[str, str, str]]()

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            self.calls.add((verb, args[0].plural, more.get("subresource", "")))
            return await getattr(self.cluster, verb)(*args, **more)

        return call


def test_a_plan_is_carried_out_with_the_rights_that_the_how_to_names() -> None:
    async def story(running: Daemon) -> None:
        plan = await _both_on_cards_of_their_own(running)
        moving = mover(running, plan)
        moving.kube = noting = Noting(running.cluster)  # type: ignore[assignment]
        assert await moving.carry_out(plan) == ""
        nodes = {("get", "nodes", ""), ("patch", "nodes", "")}
        assert noting.calls == nodes | {("list", "pods", ""), ("create", "pods", "eviction")}

    scenario(story)


class Crowd:
    """A client of which others come to know whom it evicts, and come themselves before the pod is made anew."""

    def __init__(self, cluster: Any, *pods: Json) -> None:
        self.cluster, self.pods = cluster, pods

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **more: Any) -> Any:
            answer = await getattr(self.cluster, verb)(*args, **more)
            if verb == "create" and more.get("subresource") == "eviction":
                for one in self.pods:
                    await create(self.cluster, one)
            return answer

        return call


def test_a_card_is_no_part_of_another_card_with_a_longer_number() -> None:
    place = Place("n1", (HeldCard(1, "Ascend910-1", 0, 0),))
    made = pod("a", annotations={"huawei.com/Ascend910": "[Ascend910-1]"}, nodeName="n1")
    assert _at(made, place)
    made["metadata"]["annotations"] = {"huawei.com/Ascend910": "Ascend910-10,Ascend910-11"}
    assert not _at(made, place)
